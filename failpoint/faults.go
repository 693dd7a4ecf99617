package failpoint

// Fault is the name of a bug that a test sows, to see that the harnesses find it.
type Fault string

// The faults. Each breaks one promise at one place of the source.
const (
	// ConfirmEarly: a queue's leader answers publishes before they are in its log.
	ConfirmEarly Fault = "confirm-early"
	// SkipMark: a new leader takes no note of what an earlier one may have delivered.
	SkipMark Fault = "skip-mark"
	// MoveEarly: the target of dead letters answers when it has them in memory, so that the source drops
	// them before the target's commit.
	MoveEarly Fault = "move-early"
	// ForgetSync: the log store does not sync what it has written.
	ForgetSync Fault = "forget-sync"
	// LocalClock: a replica applies entries with the time of its own clock.
	LocalClock Fault = "local-clock"
	// BareAck: a new leader answers repeated publishes without their outcomes, as if all were enqueued.
	BareAck Fault = "bare-ack"
	// DeliverBeyond: a leader delivers messages beyond the delivered mark that is committed.
	DeliverBeyond Fault = "deliver-beyond"
	// UnpinEarly: a snapshot lets go of the entries it does not pin before it is durable.
	UnpinEarly Fault = "unpin-early"
	// ForgetWatermark: a snapshot has no streams of nodes, and so not how far each was applied.
	ForgetWatermark Fault = "forget-watermark"
	// OldPlan: apply takes plans of routes that were made from an older catalog than an entry before had.
	OldPlan Fault = "old-plan"
	// KeepPlan: a leader goes on with its plan of routes when its copy of the catalog has changed.
	KeepPlan Fault = "keep-plan"
	// TakeStale: the checksum of a record of the log store does not cover the number of its segment.
	TakeStale Fault = "take-stale"
	// AnswerEarly: appends are answered, and answers counted, before their entries are durable.
	AnswerEarly Fault = "answer-early"
)

// PanicForClient makes the work for a client panic: for one of AMQP at channel.flow, for one of gRPC that purges a queue or cancels a consumer, and for one of the
// management API that purges a queue or asks who it is. It breaks no promise, so that no harness looks for it.
const PanicForClient Fault = "panic-for-client"

// PanicsForClient panics if this process has the fault PanicForClient.
func PanicsForClient() {
	if Sown(PanicForClient) {
		panic(PanicForClient)
	}
}

// Faults lists all faults that break a promise.
func Faults() []Fault {
	return []Fault{ConfirmEarly, SkipMark, MoveEarly, ForgetSync, LocalClock, BareAck, DeliverBeyond, UnpinEarly, ForgetWatermark, OldPlan, KeepPlan, TakeStale, AnswerEarly}
}
