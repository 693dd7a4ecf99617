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
	Delayed      int   // messages that wait out a retry delay now: a delay ends by time, without an entry
	// Away are messages that are in the machine yet and in nobody's reach: they expire or make room, or a redrive has them under way.
	Away      int
	AwayBytes int64 // of their bodies
	Consumers int
	Held      bool // publishers are held to what goes out, because consumers are faster then
}

// counts is Counts as of the last step, for readers on other goroutines: nobody has to
// wake an idle leader to learn it.
type counts struct {
	unacked, unackedBytes, consumers atomic.Int64
	delayed, away, awayBytes         atomic.Int64
	held                             atomic.Bool
}

// Counts returns the newest figures without waiting.
func (l *Leader) Counts() Counts {
	c := &l.counts
	return Counts{
		Unacked: int(c.unacked.Load()), UnackedBytes: c.unackedBytes.Load(), Delayed: int(c.delayed.Load()),
		Away: int(c.away.Load()), AwayBytes: c.awayBytes.Load(), Consumers: int(c.consumers.Load()), Held: c.held.Load(),
	}
}

// Memory is about how many bytes the session takes for what clients hold and for consumers.
func (l *Leader) Memory() int64 {
	c := l.Counts()
	held := float64(unsafe.Sizeof(hold{})+unsafe.Sizeof(queue.MessageID(0))) * queue.MapShare
	return int64(unsafe.Sizeof(*l)) + int64(c.Unacked)*int64(held) + int64(c.Consumers)*int64(unsafe.Sizeof(consumer{}))
}

func (l *Leader) showCounts() {
	l.counts.unacked.Store(int64(len(l.held) - l.named))
	l.counts.unackedBytes.Store(l.limits.heldBytes - l.limits.condemnedBytes - l.namedSize)
	if l.phase != phaseOpen { // else those of the machine
		l.counts.delayed.Store(int64(l.delays.Len()))
	}
	l.counts.away.Store(int64(len(l.limits.condemned)))
	l.counts.awayBytes.Store(l.limits.condemnedBytes)
	l.counts.consumers.Store(int64(l.consumers.len()))
	l.counts.held.Store(l.flow.rate > 0)
	l.showBlocked()
}
