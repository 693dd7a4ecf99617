// Package wire holds the messages between a node's gateways and the leader of
// a queue: the hop that carries publishes and settlements one way and answers
// and deliveries the other.
//
// The caller's duties, in order. A node that wants to use a queue sends Batch,
// Attach, Get or Query to the node that leads it. Batches carry the node's
// stream for that queue: sequences are dense, unanswered ones are kept and sent
// again after NotLeader, a Rewind, a RollCall or a broken link. A leader that
// begins sends RollCall to every live node; each answers with Resync, which
// replaces everything the leader knows of that node's consumers and of the
// deliveries they hold, and then sends its unanswered stream again. Until the
// roll call is complete the leader delivers nothing.
//
// Messages to the local node are passed as Go values; to other nodes in the
// encoding of docs/formats/queue-hop.md.
package wire
