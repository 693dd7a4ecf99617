package failpoint

// Point is the name of a step.
type Point string

// The steps of the move of dead letters, in their order. Those before Received and
// after Answering are passed by the source's leader or mover and carry the source's id;
// the others are passed by the target's leader and carry the target's.
const (
	// MoveUnrouted: items are in the outbox, their targets are chosen, and nothing of
	// that is proposed.
	MoveUnrouted Point = "move.unrouted"
	// MoveRouteProposed: the Route command was handed to the log.
	MoveRouteProposed Point = "move.route-proposed"
	// MoveRouted: the Route is applied, the transfer is about to be sent.
	MoveRouted Point = "move.routed"
	// MoveSent: the transfer was sent.
	MoveSent Point = "move.sent"
	// MoveReceived: the target's leader has the transfer in memory.
	MoveReceived Point = "move.received"
	// MoveTakeProposed: the TransferIn command was handed to the target's log.
	MoveTakeProposed Point = "move.take-proposed"
	// MoveTaken: the target has applied the transfer and not answered it.
	MoveTaken Point = "move.taken"
	// MoveAnswered: the source's mover has the answer, nothing is proposed.
	MoveAnswered Point = "move.answered"
	// MoveDoneProposed: the TransferDone command was handed to the source's log.
	MoveDoneProposed Point = "move.done-proposed"
	// MoveDone: TransferDone is applied.
	MoveDone Point = "move.done"
)

// Steps lists the points that every dead letter passes, in their order.
func Steps() []Point {
	return []Point{
		MoveUnrouted, MoveRouteProposed, MoveRouted, MoveSent, MoveReceived, MoveTakeProposed, MoveTaken,
		MoveAnswered, MoveDoneProposed, MoveDone,
	}
}

// Points lists all points.
func Points() []Point { return Steps() }
