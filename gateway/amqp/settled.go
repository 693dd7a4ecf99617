package amqp

import "time"

// writtenPatience is how long the end of a channel waits for a write that is under way.
const writtenPatience = time.Second

// awaitWritten waits until the writer has told the consumers what it has written. A client
// that has read a delivery may close before: what needs no ack must not come back then. A
// client that does not read is waited for a moment only.
func (c *conn) awaitWritten() {
	for end := time.Now().Add(writtenPatience); !c.sending.TryLock(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			return
		}
	}
	c.sending.Unlock()
}

// ownsNoAck tells whether written deliveries of the channel settle themselves.
func (ch *channel) ownsNoAck() bool {
	ch.mu.Lock()
	defer ch.mu.Unlock()
	for _, cons := range ch.consumers {
		if cons.noAck {
			return true
		}
	}
	return false
}
