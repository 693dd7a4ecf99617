// Package broker holds the use cases that every protocol shares: log in, declare,
// route, publish, consume, get, settle. A gateway translates its protocol into these
// calls and their errors ([Error]) into its codes.
//
// It owns three things on its node. A [Conn] with its [Channel]s is a client's view: what
// it may do, its consumers and what they hold. A stream for each queue used here is the
// node's ordered sequence of operations on it, with everything that has to be said again
// when the queue's leader changes. And the hosted queues are the replicas the catalog
// places here, with a leader (package queue/leader) where this node leads.
//
// It refuses to know wire formats, Raft and sockets: groups of replicas, the links to
// other nodes and the verdicts about them come in through [Config].
package broker
