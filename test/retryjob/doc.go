// Package retryjob is a job as users of RabbitMQ write it, with bookkeeping
// that tells whether the broker kept its promises.
//
// The job retries with exponential back-off by a wait queue:
//
//	publishers ─▶ primary-exchange ─▶ primary ─▶ consumers ─▶ done
//	                    ▲                │           │ failed
//	           expired  │       rejected │           ▼
//	                    └── wait ◀───────┼── wait-exchange
//	                                     ▼
//	                                  parking
//
// A consumer that fails republishes the message to wait-exchange with three
// times the last expiration, read from x-death[0].original-expiration, and acks
// the original. After the last failure it rejects the message without requeue,
// which dead-letters it into parking.
//
// # How duplicates are told apart
//
// Every single publish, also the second try after a lost connection, carries a
// number of its own, the hop. A broker that repeats nothing holds each hop once
// at any time, so whatever a client does twice appears under two hops and is
// counted as the client's repeat. A hop counts as duplicated by dead-lettering
// when
//
//   - it came out of the wait queue and is delivered from primary a second time
//     without the redelivered flag, or
//   - parking, read after all faults have ended, holds it more than once, or
//   - it is in parking although it was also republished or done.
//
// A flagged redelivery is legitimate: the acknowledgement of a message may be
// lost with a node. Whether a flag hides a second copy is decided by the
// replicated counter of primary where the nodes offer it: it must have taken
// exactly as many dead letters as there are different hops seen coming out of
// the wait queue.
//
// A hop that was confirmed and never delivered, or rejected and not in parking
// at the end, is lost. That is stricter than counting jobs: a job may be
// rescued by a second hop.
package retryjob
