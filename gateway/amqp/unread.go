package amqp

import (
	"sync"
	"sync/atomic"

	"github.com/warrenmq/warren/broker"
)

// unread counts the bytes of messages that wait to be written to clients, of all
// connections. While there are more than max the broker grants little room to consumers;
// the rest of the way is theirs who read.
type unread struct {
	max    int64
	narrow func(bool)
	n      atomic.Int64
	over   atomic.Bool
	turn   sync.Mutex // for over and narrow
}

// add counts n bytes, negative when they were written or dropped. It does not block.
func (u *unread) add(n int) {
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
func (u *unread) crossed(total int64, over bool) bool {
	return !over && total > u.max || over && total < u.max*3/4
}

// unreadSize is what a delivery counts.
func unreadSize(d *broker.Delivery) int {
	return len(d.Body) + len(d.Properties) + contentOverhead
}
