package leader

import "sync/atomic"

// Counts are what the leader knows beside the machine.
type Counts struct {
	Unacked      int   // messages that clients hold
	UnackedBytes int64 // of their bodies
	Consumers    int
}

// counts is Counts as of the last step, for readers on other goroutines: nobody has to
// wake an idle leader to learn it.
type counts struct{ unacked, unackedBytes, consumers atomic.Int64 }

// Counts returns the newest figures without waiting.
func (l *Leader) Counts() Counts {
	return Counts{Unacked: int(l.counts.unacked.Load()), UnackedBytes: l.counts.unackedBytes.Load(), Consumers: int(l.counts.consumers.Load())}
}

func (l *Leader) showCounts() {
	l.counts.unacked.Store(int64(len(l.held) - l.named))
	l.counts.unackedBytes.Store(l.limits.heldBytes)
	l.counts.consumers.Store(int64(l.consumers.len()))
}
