package fsm

import (
	"math/bits"

	"github.com/warrenmq/warren/dlx"
	"github.com/warrenmq/warren/queue"
)

// Result is what applying one entry did: replies and effects as data. The
// leader acts on it, followers drop it.
type Result struct {
	Index            uint64
	Session, Ordinal uint64
	Streams          []StreamResult
	Transfers        []TransferResult
	// Enqueued are the new messages, at most one range; First > Last if none.
	Enqueued queue.IDRange
	// Removed left the queue for good: acked, purged, dropped or moved out.
	Removed []queue.IDRange
	// Returned are ready again, under a new attempt number.
	Returned []queue.IDRange
	// OutboxChanged: items were added, routed, parked, released or dropped.
	OutboxChanged bool
	Dropped       []Dropped
	// Dead counts deaths and ends of moves, for metrics; nil if there were none.
	Dead *DeadCounts
	// Freed were named by a redrive and are not on their way, or came back from it: they
	// are ready as before.
	Freed []queue.IDRange
	// RedriveChanged: the state of the queue's redrive is another.
	RedriveChanged bool
	SettingsSet    bool
	Closed         bool
}

// StreamResult answers one Stream of the entry.
type StreamResult struct {
	Origin Origin
	// UpTo is the watermark after the entry.
	UpTo uint64
	// Gap: the run began above watermark+1 and nothing of it was applied.
	Gap bool
	// Stale: a newer incarnation of the node is known; nothing was applied.
	Stale bool
	// Outcomes of sequences of this run, repeats included, that are not plain
	// success, in sequence order.
	Outcomes []Outcome
}

// OutcomeKind says how an operation ended if not by plain success.
type OutcomeKind uint8

// The outcomes.
const (
	Done OutcomeKind = iota
	RefusedFull
	RefusedOutbox
	RefusedConsumers
	Gone   // the queue is closed
	Purged // Count messages were removed
	// Relayed: a transaction is done, and parts of it are on their way to other queues.
	// Count is the newest of their outbox items, which follow each other.
	Relayed
	// RefusedCatalog: a transaction names a queue that is not known here, by a catalog
	// that may be too old to know that it is gone; again with a newer one.
	RefusedCatalog
	Kept      // the message is here, and Count is its id: to a publish that asked for it
	Cancelled // the message was taken back
)

// Outcome is the recorded end of one operation.
type Outcome struct {
	Seq   uint64
	Kind  OutcomeKind
	Count uint64
}

// TransferResult answers one TransferIn of the entry.
type TransferResult struct {
	Source Source
	UpTo   uint64
	Gap    bool
	// Unknown: the source is not known and the entry's catalog revision is
	// too old to admit it; ask again with a newer catalog.
	Unknown bool
	// Gone: this queue is closed, UpTo is its final watermark for the source.
	Gone bool
	// Withdrawn are the sequences up to UpTo that were withdrawn and not taken, ascending:
	// all above the AnsweredUpTo that the source has sent.
	Withdrawn []uint64
}

// Dropped counts messages that ended in a drop. Those that were live when the
// queue was closed have reason 0 and cause HasTargets.
type Dropped struct {
	Reason dlx.Reason
	Cause  NoRoute
	Count  uint64
}

// DeadCounts are what one entry did to dead letters. Messages of a delayed exchange that
// come due are counted like them.
type DeadCounts struct {
	// Died counts by reason what left the queue into the outbox, or was dropped for want
	// of a dead-letter exchange.
	Died [dlx.LastDeath + 1]uint64
	// Moved counts what every target has taken, parts of transactions left out.
	Moved uint64
	// Redriven counts what redrives have sent and every target has taken.
	Redriven uint64
	// Waited counts these by the time between death and end, by machine time: Waited[i]
	// took less than 1<<i ms and not less than half of it, the last also more.
	Waited [WaitedBuckets]uint64
	// WaitedMillis is the sum of these times.
	WaitedMillis uint64
}

// WaitedBuckets is the number of classes of times in an outbox; the last begins at 2^20 ms,
// some 17 minutes.
const WaitedBuckets = 22

func (d *DeadCounts) moved(millis int64) {
	millis = max(0, millis)
	d.Moved++
	d.Waited[min(bits.Len64(uint64(millis)), WaitedBuckets-1)]++
	d.WaitedMillis += uint64(millis)
}
