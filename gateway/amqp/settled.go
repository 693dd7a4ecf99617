package amqp

import "time"

// writtenPatience is how long the end of a channel waits for a write that is under way.
const writtenPatience = time.Second

// awaitWritten waits until the writer has told the consumers what it has written. A client
// that has read a delivery may close before: what needs no ack must not come back then. A
// client that does not read is waited for a moment only. With queued it waits for what is to be
// written, too: the client takes all that comes before the close it is told of.
func (c *conn) awaitWritten(queued bool) {
	done := c.writesNothing
	if queued {
		goal := c.out.goal()
		done = func() bool { return c.out.hasWritten(goal) }
	}
	for end := time.Now().Add(writtenPatience); !done(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			return
		}
	}
}

// writesNothing tells whether no write is under way.
func (c *conn) writesNothing() bool {
	if !c.sending.TryLock() {
		return false
	}
	c.sending.Unlock()
	return true
}
