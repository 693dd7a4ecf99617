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
	// MovePlanProposed: an entry whose deaths have their targets at once was handed to the log.
	MovePlanProposed Point = "move.plan-proposed"
	// MoveRouted: the targets are in the log, the transfer is about to be sent.
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

// The steps of a withdrawal (docs/adr/0009-withdrawals.md), in their order. Taken is passed by
// the target's leader and carries its id, the others by the source's with the source's.
const (
	// WithdrawApplied: letters under way are marked, a withdrawal is about to be sent.
	WithdrawApplied Point = "withdraw.applied"
	// WithdrawSent: a withdrawal was sent.
	WithdrawSent Point = "withdraw.sent"
	// WithdrawTaken: the target has applied withdrawals and not answered.
	WithdrawTaken Point = "withdraw.taken"
	// WithdrawAnswered: the source's mover has the answer, nothing is proposed.
	WithdrawAnswered Point = "withdraw.answered"
	// WithdrawDone: the source's log has what was withdrawn, and nothing is routed again.
	WithdrawDone Point = "withdraw.done"
)

// A step of a redrive.
const (
	// RedriveProposed: a redrive's next messages and their targets were handed to the log of the
	// queue they leave. What follows are the steps from MoveRouted on.
	RedriveProposed Point = "redrive.proposed"
)

// Planned lists the points of a dead letter whose way does not depend on the message
// (docs/adr/0010-route-plan.md), in their order.
func Planned() []Point { return append([]Point{MovePlanProposed}, Steps()[2:]...) }

// AllSteps lists the points of both.
func AllSteps() []Point { return append(Steps()[:2:2], Planned()...) }

// Steps lists the points of any other dead letter, in their order.
func Steps() []Point {
	return []Point{
		MoveUnrouted, MoveRouteProposed, MoveRouted, MoveSent, MoveReceived, MoveTakeProposed, MoveTaken,
		MoveAnswered, MoveDoneProposed, MoveDone,
	}
}

// Withdrawal lists the points of a withdrawal, in their order.
func Withdrawal() []Point {
	return []Point{WithdrawApplied, WithdrawSent, WithdrawTaken, WithdrawAnswered, WithdrawDone}
}

// Points lists all points.
func Points() []Point {
	return append(append(Steps(), Withdrawal()...), RedriveProposed, MovePlanProposed)
}
