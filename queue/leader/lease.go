package leader

import "time"

// lease is the queue's own time to live (x-expires, or by policy): it counts while nobody
// uses the queue. Consumers, declarations and gets are use, and with HeldIsUse what clients hold; publishing is not. A
// new leader begins to count anew, when every node has told it of its consumers or is gone.
type lease struct {
	used time.Time
	ttl  time.Duration // as last seen; another one begins anew
}

func (l *Leader) use() { l.lease.used = time.Now() }

// checkLease ends a queue that nobody has used for its time.
func (l *Leader) checkLease() {
	if l.cfg.Expires == nil || l.phase != phaseActive || l.closing.begun() {
		return
	}
	ttl := l.cfg.Expires()
	if ttl != l.lease.ttl {
		l.lease.ttl = ttl
		l.use()
	}
	if ttl <= 0 {
		return
	}
	mayBeUsed := l.consumers.len() > 0 || len(l.missing) > 0 || l.cfg.HeldIsUse && len(l.held) > 0
	if mayBeUsed || l.lease.used.IsZero() {
		l.use()
	}
	if left := ttl - time.Since(l.lease.used); left > 0 {
		if !mayBeUsed {
			l.wake(left)
		}
		return
	}
	if !l.cfg.Expired() {
		l.wake(expireAgain)
		return
	}
	l.endItself()
}

// expireAgain is the pause between two looks at a queue that could not go.
const expireAgain = time.Second
