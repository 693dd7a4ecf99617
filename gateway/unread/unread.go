// Package unread counts what clients of every protocol leave unread.
package unread

import (
	"sync"
	"sync/atomic"
)

// Gauge counts the bytes of messages that wait to be written to clients, of all
// connections. While there are more than max the broker grants little room to consumers;
// the rest of the way is theirs who read.
type Gauge struct {
	max    int64
	narrow func(bool)
	n      atomic.Int64
	over   atomic.Bool
	turn   sync.Mutex // for over and narrow
}

// New makes a gauge. narrow is told when more than max bytes are unread, and when clearly less are again; it must not block.
func New(maxBytes int64, narrow func(bool)) *Gauge { return &Gauge{max: maxBytes, narrow: narrow} }

// Bytes are what is unread.
func (u *Gauge) Bytes() int64 { return u.n.Load() }

// Add counts n bytes, negative when they were written or dropped. It does not block.
func (u *Gauge) Add(n int) {
	total := u.n.Add(int64(n))
	if over := u.over.Load(); u.crossed(total, over) {
		u.turn.Lock()
		defer u.turn.Unlock()
		if over = u.over.Load(); u.crossed(u.n.Load(), over) {
			u.over.Store(!over)
			u.narrow(!over)
		}
	}
}

// crossed tells whether there is news: too much is unread, or clearly less again.
func (u *Gauge) crossed(total int64, over bool) bool {
	return !over && total > u.max || over && total < u.max*3/4
}
