package amqp

import "time"

// attend makes the reader shut the channels that the broker has ended, wherever it waits for the client: their
// consumers must not stay until the client has answered. It does not block and may be called from any goroutine.
func (c *conn) attend() {
	c.blockMu.Lock() // attended sees both or none
	defer c.blockMu.Unlock()
	select {
	case c.failures <- struct{}{}:
	default: // the reader will look anyhow
	}
	c.wake()
}

// attended does what attend asked for, if it did; ok tells that. The socket's deadline is the reader's again then.
func (c *conn) attended() (ok bool) {
	select {
	case <-c.failures:
	default:
		return false
	}
	c.shutFailed()
	return true
}

func (c *conn) shutFailed() {
	c.blockMu.Lock()
	c.in.deadline = time.Time{}
	_ = c.nc.SetReadDeadline(time.Time{}) // a kick that comes now is seen before the next read
	c.blockMu.Unlock()
	for _, ch := range c.channels {
		ch.shutFailed()
	}
}

// shutFailed shuts a channel that the broker has ended.
func (ch *channel) shutFailed() {
	if ch.failed.Load() && !ch.closing {
		ch.closing = true
		ch.shut()
	}
}
