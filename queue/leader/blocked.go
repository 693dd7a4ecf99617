package leader

import (
	"sync"
	"time"
)

// blocking measures for how long there were consumers and none could take a message: all had as many as they may hold, or their nodes
// no room for more. An empty queue whose consumers could take a message is not blocked.
type blocking struct {
	on bool // the leader's goroutine's

	mu    sync.Mutex
	total time.Duration // of the times that have ended
	since time.Time     // zero: not blocked now
}

// showBlocked notes a change; called after each step.
func (l *Leader) showBlocked() {
	b := &l.blocking
	on := l.consumers.len() > 0 && !l.consumers.anyCredit()
	if on == b.on {
		return
	}
	b.on = on
	now := time.Now()
	b.mu.Lock()
	defer b.mu.Unlock()
	if on {
		b.since = now
		return
	}
	b.total += now.Sub(b.since)
	b.since = time.Time{}
}

// Blocked tells for how long in this session there were consumers and none could take a message.
func (l *Leader) Blocked() time.Duration {
	b := &l.blocking
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.since.IsZero() {
		return b.total
	}
	return b.total + time.Since(b.since)
}
