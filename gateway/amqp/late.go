package amqp

import (
	"slices"
	"time"

	wire "github.com/warrenmq/warren/amqp"
)

// A client may have sent something on a channel before it knows that the channel is closed: libraries close one while
// other threads of the program settle and publish on it. RabbitMQ ignores what comes until its channel has ended, a
// moment later, and ends the connection for the rest.
const (
	lateFor         = 5 * time.Second // how long such frames may be on their way
	lateChannelsMax = 64              // that are remembered, the newest
)

// lateChannel is a channel that was closed lately.
type lateChannel struct {
	num uint16
	at  time.Time
}

// closedLately notes that a channel was closed.
func (c *conn) closedLately(num uint16) {
	if len(c.late) == lateChannelsMax {
		c.late = slices.Delete(c.late, 0, 1)
	}
	c.late = append(c.late, lateChannel{num, time.Now()})
}

// opened ends the time in which frames for the channel's number are late ones.
func (c *conn) opened(num uint16) {
	c.late = slices.DeleteFunc(c.late, func(l lateChannel) bool { return l.num == num })
}

// isLate tells whether frames on a channel that is not open may be for one that was closed a moment ago.
func (c *conn) isLate(num uint16) bool {
	i := slices.IndexFunc(c.late, func(l lateChannel) bool { return l.num == num })
	return i >= 0 && time.Since(c.late[i].at) < lateFor
}

// harmlessWhenLate are the methods that have no answer: what they were for was requeued, or is not confirmed.
func harmlessWhenLate(id wire.MethodID) bool {
	switch id {
	case wire.MethodBasicAck, wire.MethodBasicNack, wire.MethodBasicReject, wire.MethodBasicPublish:
		return true
	}
	return false
}
