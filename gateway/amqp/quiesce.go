package amqp

import (
	"context"
	"time"

	"github.com/warrenmq/warren/broker"
)

// How a server ends its connections.
const (
	// quietTick is how often the end of what a quiet connection waits for is looked at.
	quietTick = 5 * time.Millisecond
	// waveMin is how many connections one wave has at least: waves are there for nodes with
	// thousands of clients, which would all come to the other nodes in one moment.
	waveMin = 50
)

// CloseListeners stops accepting connections; those that are open stay. Serve may be called
// again, with another listener.
func (s *Server) CloseListeners() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for ln := range s.listeners {
		delete(s.listeners, ln)
		_ = ln.Close() // Serve sees the error and ends
	}
}

// Quiesce reads nothing more from connections that have published, and waits until what was
// read of them has its answers, written to their sockets: confirms, returns, replies to methods. So a
// client that is told to go afterwards knows the fate of all that the node has taken. Such a connection's
// consumers get nothing meanwhile that they have to settle: that would not be heard, and what they have done would be done
// again elsewhere. Quiesce ends with ctx at the latest and returns how many connections still had something open then.
// Consumers on connections that do not publish are read and served on. It lasts until Resume or the end of the connections.
func (s *Server) Quiesce(ctx context.Context) (unanswered int) {
	if q := make(chan struct{}); !s.quiet.CompareAndSwap(nil, &q) {
		return s.restless() // somebody else waits
	}
	for _, c := range s.connections() {
		c.hush()
	}
	tick := time.NewTicker(quietTick)
	defer tick.Stop()
	for {
		if unanswered = s.restless(); unanswered == 0 {
			return 0
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return unanswered
		}
	}
}

// Resume ends Quiesce.
func (s *Server) Resume() {
	q := s.quiet.Swap(nil)
	if q == nil {
		return
	}
	close(*q)
	for _, c := range s.connections() {
		c.heard()
	}
}

// restless counts the publishing connections that have something without an answer.
func (s *Server) restless() (n int) {
	for _, c := range s.connections() {
		c.blockMu.Lock()
		publisher := c.publisher
		c.blockMu.Unlock()
		if publisher && !c.atRest.Load() {
			n++
		}
	}
	return n
}

// hush wakes the reader of a publishing connection, so that it notes that the server is quiet.
func (c *conn) hush() {
	c.blockMu.Lock()
	defer c.blockMu.Unlock()
	if c.publisher {
		c.freeReader() // of an alarm
		c.wake()
	}
}

// hushed tells whether the socket is not to be read now.
func (c *conn) hushed() bool { return c.isPublisher && c.srv.quiet.Load() != nil }

// unheard tells whether what the client settles is not read. Unlike hushed it may be asked on any goroutine.
func (c *conn) unheard() bool {
	if c.srv.quiet.Load() == nil {
		return false
	}
	c.blockMu.Lock()
	defer c.blockMu.Unlock()
	return c.publisher
}

// heard sends what has come for consumers while settlements were not heard. It may be called on any goroutine.
func (c *conn) heard() {
	for _, ch := range c.openChannels() {
		ch.mu.Lock()
		ch.openGate()
		ch.mu.Unlock()
	}
}

// whileQuiet keeps the reader from the socket while the server is quiet and the connection has
// published, and notes when all that was read is answered.
func (c *conn) whileQuiet() error {
	quiet := c.srv.quiet.Load()
	if quiet == nil {
		return nil
	}
	defer c.atRest.Store(false)
	tick := time.NewTicker(quietTick)
	defer tick.Stop()
	var written uint64 // what the writer must have done when no answer is missing
	wait := tick.C
	for {
		switch {
		case written > 0 && c.out.hasWritten(written):
			c.atRest.Store(true)
			wait = nil
		case written == 0 && c.answered():
			written = c.out.goal()
			continue
		}
		select {
		case <-wait:
		case <-c.failures:
			c.shutFailed()
		case <-c.ctx.Done():
			if c.kicked.Load() != nil {
				return errKicked
			}
			return c.ctx.Err()
		case <-*quiet:
			// Quiesce has moved the socket's deadline. A kick that comes now is seen before the next read.
			c.in.deadline = time.Time{}
			_ = c.nc.SetReadDeadline(time.Time{})
			c.blockMu.Lock()
			if c.told != "" && c.unblocked == nil {
				c.unblocked = make(chan struct{}) // the alarm goes on
			}
			c.blockMu.Unlock()
			return c.whileBlocked()
		}
	}
}

// answered tells whether no publish of the connection waits for its confirm, or its confirm for the writer.
func (c *conn) answered() bool {
	for _, ch := range c.channels {
		ch.mu.Lock()
		f := &ch.confirms
		open := !ch.silent && f.pending.Len()+len(f.acked)+len(f.nacked)+len(ch.immediate) > 0
		ch.mu.Unlock()
		if open {
			return false
		}
	}
	return true
}

// ShutdownOptions tell how Expel and Shutdown spread the end of many connections.
type ShutdownOptions struct {
	// Waves is about how many parts the connections are ended in, of 50 at least; 0: one.
	Waves int
	// Every is the time between two waves.
	Every time.Duration
}

// Expel tells every client, in waves, that its connection is closed by force (320), and waits until all
// have ended. When ctx ends first it cuts them off, also from a broker that is slow to take back what they had, and
// returns ctx's error. New connections are served as before; see CloseListeners.
func (s *Server) Expel(ctx context.Context, o ShutdownOptions) error {
	all := s.connections()
	wave := max(waveMin, (len(all)+max(1, o.Waves)-1)/max(1, o.Waves))
	for i, c := range all {
		if i > 0 && i%wave == 0 && !pause(ctx, o.Every) {
			break
		}
		c.kick(broker.Errorf(broker.ConnectionForced, "broker forced connection closure with reason 'shutdown'"))
	}
	for i, c := range all {
		select {
		case <-c.done:
		case <-ctx.Done():
			rush(all[i:])
			return ctx.Err()
		}
	}
	return nil
}

// rush cuts connections off and waits until they have ended. None of them waits for the broker any more.
func rush(all []*conn) {
	for _, c := range all {
		c.rush()
	}
	for _, c := range all {
		<-c.done
	}
}

// pause waits; false means that ctx ended first.
func pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// Shutdown stops accepting and ends all connections as Expel does.
func (s *Server) Shutdown(ctx context.Context, o ShutdownOptions) error {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.CloseListeners()
	err := s.Expel(ctx, o)
	s.wg.Wait()
	return err
}
