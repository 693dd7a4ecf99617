package leader

import (
	"sync/atomic"
	"unsafe"

	"github.com/warrenmq/warren/queue"
)

// Counts are what the leader knows beside the machine.
type Counts struct {
	Unacked      int   // messages that clients hold
	UnackedBytes int64 // of their bodies
	Consumers    int
	Held         bool // publishers are held to what goes out, because consumers are faster then
}

// counts is Counts as of the last step, for readers on other goroutines: nobody has to
// wake an idle leader to learn it.
type counts struct {
	unacked, unackedBytes, consumers atomic.Int64
	held                             atomic.Bool
}

// Counts returns the newest figures without waiting.
func (l *Leader) Counts() Counts {
	return Counts{Unacked: int(l.counts.unacked.Load()), UnackedBytes: l.counts.unackedBytes.Load(), Consumers: int(l.counts.consumers.Load()), Held: l.counts.held.Load()}
}

// Memory is about how many bytes the session takes for what clients hold and for consumers.
func (l *Leader) Memory() int64 {
	c := l.Counts()
	held := float64(unsafe.Sizeof(hold{})+unsafe.Sizeof(queue.MessageID(0))) * queue.MapShare
	return int64(unsafe.Sizeof(*l)) + int64(c.Unacked)*int64(held) + int64(c.Consumers)*int64(unsafe.Sizeof(consumer{}))
}

func (l *Leader) showCounts() {
	l.counts.unacked.Store(int64(len(l.held) - l.named))
	l.counts.unackedBytes.Store(l.limits.heldBytes)
	l.counts.consumers.Store(int64(l.consumers.len()))
	l.counts.held.Store(l.flow.rate > 0)
	l.showBlocked()
}
