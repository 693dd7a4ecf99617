// Package dlx holds the pure half of dead lettering: why messages die, what
// their death records say, when a move would close a cycle, and the outbox in
// which dead messages wait until every target has committed them.
//
// An item of the outbox is in one of four states. Unrouted: just arrived, or its
// targets went away. Routed: it has legs, each a target and the item's dense
// sequence for that target. Parked, in two kinds: without a target, kept. It
// leaves when its last leg is done, or by a drop that the log names. Parts of
// transactions for other queues travel the same way; they are routed from the beginning.
//
// Letters under way to a target may be withdrawn: they keep their legs until the target
// says whether it took them (docs/adr/0009-withdrawals.md).
//
// The package is pure: no clock, goroutine, randomness or I/O. An Outbox has one
// owner, the replicated machine (package fsm). Planner and mover, which read it
// and propose what happens next, live in sub-packages.
package dlx
