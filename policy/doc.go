// Package policy is policies and operator policies without their storage: what a
// definition may say, which objects a policy applies to, and what becomes of a policy,
// an operator policy and a queue's own arguments together.
//
// keys.go lists the keys, each with its check, the queues it hides a policy from, and how
// its values are merged; a new queue argument that policies may set is one line there.
// policy.go makes a policy of what an operator gave, or says in RabbitMQ's words what is
// wrong with it; pattern.go bounds and compiles patterns; set.go keeps the policies of a
// vhost in the order in which they are tried; merge.go computes what is in effect.
//
// Everything here is immutable and pure: each node computes the same from the same
// catalog. A policy never decides alone: what is in effect enters a queue's log as settings.
package policy
