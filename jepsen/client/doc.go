// Package client is a real AMQP client that records what it does and sees.
//
// A Client is one connection with one channel in confirm mode, one life of a process
// of a workload. Every operation has a time limit. When the answer does not come in time, or the
// connection is lost under it, it is recorded as info, and the client is of no more use:
// the process opens the next one, at another node, as an application would. A message is never
// published again under the same ID.
package client
