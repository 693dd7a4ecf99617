package dlx

import "github.com/warrenmq/warren/queue"

// ItemID is the dense number of an outbox item of one queue, from 1.
type ItemID uint64

// State is what an outbox item waits for.
type State uint8

// The states of an item.
const (
	Unrouted       State = iota // for the leader to name its targets
	Routed                      // for its legs
	ParkedUnrouted              // for a release, normally when the catalog changes
	ParkedCycle                 // for a release by an operator
)

// String names the state for logs and pages.
func (s State) String() string {
	switch s {
	case Unrouted:
		return "unrouted"
	case Routed:
		return "routed"
	case ParkedUnrouted:
		return "parked-unrouted"
	case ParkedCycle:
		return "parked-cycle"
	}
	return "unknown"
}

// Leg is one target that has not taken the item yet. Seq is dense for each pair
// of source and target, from 1.
type Leg struct{ Target, Seq uint64 }

// Item is a dead message on its way out, or a part of a transaction, which is
// routed from the beginning and leaves with its last target, gone or not.
type Item struct {
	ID         ItemID
	Ref        queue.Ref
	BodyBytes  uint32
	TimeMillis int64 // machine time of the death
	Reason     Reason
	State      State
	// Detail is what the client said that rejected it, "" for nothing.
	Detail string
	// Taken names the targets that have committed the item since it died, of one that
	// was routed to several.
	Taken []uint64
	// Anew: it was withdrawn from a target since it was routed, and is decided on again
	// when its last leg is done. Only if Routed.
	Anew bool
	// Legs are the targets still to come, not empty if Routed. The slice is
	// never changed in place.
	Legs []Leg
}

// Pending is an item as seen from one of its targets.
type Pending struct {
	Seq        uint64
	Item       ItemID
	Ref        queue.Ref
	BodyBytes  uint32
	TimeMillis int64
	Reason     Reason
	Detail     string
	// Alone: this is its only target, and none has taken it.
	Alone bool
}

// Target is what an outbox knows of one target.
type Target struct {
	Queue uint64
	// Next is the sequence the next routed item gets; all below Next-Pending
	// are done.
	Next    uint64
	Pending int
	// Gone: the target was closed and takes nothing more.
	Gone bool
	// Withdraw is the sequence up to which pending letters are to be withdrawn, 0 if none.
	Withdraw uint64
	// Parts is how many of the pending items are parts of transactions.
	Parts int
	// To is the queue that goes on in place of one that is gone, 0 if it was closed.
	To uint64
}

// NoRoute says what becomes of an item that has no target.
type NoRoute uint8

// What becomes of an item without targets.
const (
	HasTargets   NoRoute = iota
	DropDisabled         // no dead-letter exchange (any more), or it is missing
	DropUnrouted
	DropCycle
	ParkUnrouted // kept, routed again when the catalog changes
	ParkCycle    // kept until released
	// Stay: an expired message that is at its place yet loses its time to live and lives on
	// there. One that has left it is kept like ParkCycle.
	Stay
)

// State is the state that a decision to park leads to; ok is false for others.
func (n NoRoute) State() (s State, ok bool) {
	switch n {
	case ParkUnrouted:
		return ParkedUnrouted, true
	case ParkCycle:
		return ParkedCycle, true
	}
	return 0, false
}
