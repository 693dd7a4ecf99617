// Package leader is the leader's side of a queue: what is true only on the node
// that leads the queue's log and is not replicated. It owns consumers and their
// credit, the deliveries they hold, the verdicts and victims it names in
// commands, the batches it proposes and the timers for expiry.
//
// A Replica holds the machine of one queue on one node, leader or not. When the
// node begins to lead, Replica.Lead starts a Leader: one goroutine with an
// inbox, which alone touches the leader's state. Its life is
//
//	open    its first entry is proposed; publishes are taken, nothing is delivered
//	roll    the entry is applied: every live node is asked what its consumers hold
//	active  all have answered or are gone: deliveries begin
//
// and it ends when leadership does. Nothing of it needs to survive: streams are
// sent again by their origins, holds come back with the next roll call.
//
// Rules it keeps, because apply cannot check them: it delivers only what is at
// or below the committed delivered mark; it never delivers a message that a
// proposed command names; it takes a settlement only from the node that holds
// the delivery; it names only messages nobody holds as victims of expiry, length
// limit and purge. In a queue with a single active consumer it delivers only to the
// holder that the log names, nothing while something is on its way back, and names
// another holder only when nobody can deliver to the former one any more.
package leader
