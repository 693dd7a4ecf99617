package amqp

import (
	"cmp"
	"context"
	"slices"
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

// Quiesce reads nothing more from connections that have published and are to end in the first wave of Expel, and waits until what was
// read of them has its answers, written to their sockets: confirms, returns, replies to methods. So a
// client that is told to go afterwards knows the fate of all that the node has taken. Such a connection's
// consumers get nothing meanwhile that they have to settle: that would not be heard, and what they have done would be done
// again elsewhere. Quiesce ends with ctx at the latest and returns how many connections still had something open then.
// Consumers on connections that do not publish are read and served on, and publishers of later waves until Expel comes to theirs. It lasts until
// Resume or the end of the connections.
func (s *Server) Quiesce(ctx context.Context, o ShutdownOptions) (unanswered int) {
	all := s.connections()
	if !s.silence(all, o.wave(len(all))) {
		return restless(all) // somebody else waits
	}
	return hushAll(ctx, all)
}

// silence makes the server quiet for all publishers but those beyond the first wave; false if it is so already.
func (s *Server) silence(all []*conn, wave int) bool {
	s.quietMu.Lock()
	defer s.quietMu.Unlock()
	if s.quiet.Load() != nil {
		return false
	}
	publishers := 0
	for _, c := range all {
		publishes := c.publishes()
		c.spared.Store(publishes && publishers >= wave)
		if publishes {
			publishers++
		}
	}
	q := make(chan struct{})
	s.quiet.Store(&q)
	return true
}

// hushAll has the readers of connections note that the server is quiet, and waits until nothing of theirs is open.
func hushAll(ctx context.Context, all []*conn) (unanswered int) {
	for _, c := range all {
		c.hush()
	}
	tick := time.NewTicker(quietTick)
	defer tick.Stop()
	for {
		if unanswered = restless(all); unanswered == 0 {
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
	s.quietMu.Lock()
	q := s.quiet.Swap(nil)
	s.quietMu.Unlock()
	if q == nil {
		return
	}
	close(*q)
	for _, c := range s.connections() {
		c.heard()
	}
}

// restless counts the publishers that are not read and have something without an answer.
func restless(all []*conn) (n int) {
	for _, c := range all {
		if c.unheard() && !c.atRest.Load() && !c.over() {
			n++
		}
	}
	return n
}

// over tells whether the connection has ended.
func (c *conn) over() bool {
	select {
	case <-c.done:
		return true
	default:
		return false
	}
}

// publishes tells on any goroutine whether the connection has published.
func (c *conn) publishes() bool {
	c.blockMu.Lock()
	defer c.blockMu.Unlock()
	return c.publisher
}

// hush wakes the reader of a publishing connection, so that it notes that the server is quiet.
func (c *conn) hush() {
	c.blockMu.Lock()
	defer c.blockMu.Unlock()
	if c.publisher && c.quieted() {
		c.freeReader() // of an alarm
		c.wake()
	}
}

// quieted tells whether the server is quiet for the connection if it has published.
func (c *conn) quieted() bool { return c.srv.quiet.Load() != nil && !c.spared.Load() }

// hushed tells whether the socket is not to be read now.
func (c *conn) hushed() bool { return c.isPublisher && c.quieted() }

// unheard tells whether what the client settles is not read. Unlike hushed it may be asked on any goroutine.
func (c *conn) unheard() bool { return c.quieted() && c.publishes() }

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

// ShutdownOptions tell how Quiesce, Expel and Shutdown spread the end of many connections. They are to be the same for all.
type ShutdownOptions struct {
	// Waves is about how many parts the connections are ended in, of 50 at least; 0: one.
	Waves int
	// Every is the time between two waves.
	Every time.Duration
	// Quiet bounds how long the later waves wait, all together, for the answers to what was read of their publishers. One that comes after that waits
	// for Every at most.
	Quiet time.Duration
}

// wave is how many of so many connections end at a time.
func (o ShutdownOptions) wave(all int) int {
	waves := max(1, o.Waves)
	return max(waveMin, (all+waves-1)/waves)
}

// Expel tells every client, in waves, that its connection is closed by force (320), and waits until all
// have ended. After Quiesce, publishers come first that are not read any more, and the others are read until it is their turn: then they get the
// answers to what was read, as far as these come in time; unanswered are those that did not. When ctx ends first it cuts the clients off, also from a broker that is
// slow to take back what they had, and returns ctx's error. New connections are served as before; see CloseListeners.
func (s *Server) Expel(ctx context.Context, o ShutdownOptions) (unanswered int, err error) {
	all := s.connections()
	slices.SortStableFunc(all, func(a, b *conn) int { return cmp.Compare(rankOf(a), rankOf(b)) })
	spent := time.Duration(0)
	for i, part := range slices.Collect(slices.Chunk(all, o.wave(len(all)))) {
		if i > 0 {
			if !pause(ctx, o.Every) {
				break
			}
			begun := time.Now()
			unanswered += s.spareNoMore(ctx, part, max(o.Every, o.Quiet-spent))
			spent += time.Since(begun)
		}
		for _, c := range part {
			c.kick(broker.Errorf(broker.ConnectionForced, "broker forced connection closure with reason 'shutdown'"))
		}
	}
	for i, c := range all {
		select {
		case <-c.done:
		case <-ctx.Done():
			rush(all[i:])
			return unanswered, ctx.Err()
		}
	}
	return unanswered, nil
}

// rankOf is 0 for a publisher that is not read, 1 for other clients.
func rankOf(c *conn) int {
	if c.unheard() {
		return 0
	}
	return 1
}

// spareNoMore makes the server quiet for connections whose turn has come, if it is quiet at all.
func (s *Server) spareNoMore(ctx context.Context, part []*conn, limit time.Duration) (unanswered int) {
	spared := slices.DeleteFunc(slices.Clone(part), func(c *conn) bool { return !c.spared.Swap(false) })
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	return hushAll(ctx, spared)
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
func (s *Server) Shutdown(ctx context.Context, o ShutdownOptions) (unanswered int, err error) {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.CloseListeners()
	unanswered, err = s.Expel(ctx, o)
	s.wg.Wait()
	return unanswered, err
}
