package amqp

import wire "github.com/warrenmq/warren/amqp"

// markPublisher notes the first publish: from now on alarms stop this connection.
func (c *conn) markPublisher() {
	c.blockMu.Lock()
	c.publisher = true
	c.blockMu.Unlock()
	c.updateBlocked()
}

// updateBlocked tells the client that it is or is no longer blocked. It may be
// called from any goroutine.
func (c *conn) updateBlocked() {
	c.blockMu.Lock()
	defer c.blockMu.Unlock()
	if !c.open {
		return
	}
	reason := *c.srv.blocked.Load()
	switch {
	case reason != "" && c.publisher && c.told == "":
		c.told = reason
		c.unblocked = make(chan struct{})
		if c.blockedNotify {
			c.out.method(0, &wire.ConnectionBlocked{Reason: reason})
		}
	case reason == "" && c.told != "":
		c.told = ""
		if c.blockedNotify {
			c.out.method(0, &wire.ConnectionUnblocked{})
		}
		c.freeReader()
	}
}

// freeReader ends whileBlocked; called with blockMu held.
func (c *conn) freeReader() {
	if c.unblocked != nil {
		close(c.unblocked)
		c.unblocked = nil
	}
}

// whileBlocked keeps the reader from the socket while an alarm holds and the
// connection has published.
func (c *conn) whileBlocked() error {
	c.blockMu.Lock()
	wait := c.unblocked
	c.blockMu.Unlock()
	if wait == nil {
		return nil
	}
	for open := true; open; {
		select {
		case <-c.failures:
			c.shutFailed()
			continue
		case <-wait:
		case <-c.ctx.Done():
		}
		open = false
	}
	if c.kicked.Load() != nil {
		return errKicked
	}
	return c.ctx.Err()
}
