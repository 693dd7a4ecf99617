package leader

import (
	"time"

	"github.com/warrenmq/warren/fsm"
)

// A queue's snapshot is one record, which the store takes up to half of store.RecordBytesMax. A queue that outgrows that takes no snapshot any more: its log
// stays as it is, and fills the disk. Before, at manifestMost, it takes nothing new: publishes are refused as by a full queue, and what comes
// from other queues waits there. What its manifest will be is told by the newest one and by what has come since: how much a message takes depends on
// how much it is like the one before, from less than a byte to some ten, and rarely more. There is another one for each 256 MiB of log (group.HostConfig).
const (
	manifestMost = 448 << 20
	messageMost  = 32
)

// tooLargeEvery is how often it is logged that a queue is too large.
const tooLargeEvery = time.Minute

// made is the newest manifest of a replica: its size, and what it has of messages and dead letters.
type made struct{ bytes, messages int64 }

// messagesOf counts what takes room in a manifest.
func messagesOf(m *fsm.Machine) int64 { return int64(m.Queue().Len() + m.Outbox().Len()) }

// sized has the size of a manifest noted when it is made.
func (r *Replica) sized(messages int64, encode func() ([]byte, []fsm.IndexRange)) func() ([]byte, []fsm.IndexRange) {
	return func() ([]byte, []fsm.IndexRange) {
		manifest, pins := encode()
		r.made.Store(&made{int64(len(manifest)), messages})
		return manifest, pins
	}
}

// tooLarge tells whether the manifest of so many messages would be too large.
func (r *Replica) tooLarge(messages int64) bool {
	m := r.made.Load()
	switch {
	case m == nil:
		return false
	case messages < m.messages:
		return float64(m.bytes)*float64(messages) >= manifestMost*float64(m.messages)
	}
	return m.bytes+messageMost*(messages-m.messages) >= manifestMost
}

// tooLarge tells whether the queue may have no more messages, and logs it.
func (l *Leader) tooLarge() bool {
	messages := l.seen.n + l.seen.outboxN
	if !l.replica.tooLarge(messages) {
		return false
	}
	if now := time.Now(); now.Sub(l.limits.largeAt) >= tooLargeEvery {
		l.limits.largeAt = now
		l.cfg.Logger.Warn("a queue takes no more messages: a snapshot of it would be too large", "queue", l.cfg.Queue, "messages", messages)
	}
	return true
}
