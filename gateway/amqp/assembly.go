package amqp

import (
	"slices"
	"sync"
	"time"

	wire "github.com/warrenmq/warren/amqp"
	"github.com/warrenmq/warren/broker"
)

// assembly is the room that a node has for messages which are still arriving, of all its connections. A connection reserves room for the whole message before it
// keeps the first part of it, and is not read while there is none: otherwise such messages could fill the memory up to an alarm, which would then keep them from
// being completed. Of connections that wait and have other messages half-way, the first goes on without room when all that hold any are waiting; so does, after
// a while, whoever still waits.
type assembly struct {
	max int64 // bytes; a message that is alone may exceed it

	mu      sync.Mutex
	used    int64
	holders map[*conn]struct{}
	more    []*assemblyWait // of holders, in the order of their coming
	first   []*assemblyWait // of others
	came    uint64          // how many have waited
}

type assemblyWait struct {
	c    *conn
	n    int64
	came uint64        // its number: who comes first is served first
	err  error         // set before room is closed
	room chan struct{} // closed when it has been reserved or will not be
}

func newAssembly(bytesMax int) *assembly {
	return &assembly{max: int64(bytesMax), holders: map[*conn]struct{}{}}
}

// reserve takes room for n bytes of c, or returns the wait for it.
func (a *assembly) reserve(c *conn, n int64) *assemblyWait {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.more)+len(a.first) == 0 && a.fits(n) {
		a.take(c, n)
		return nil
	}
	a.came++
	w := &assemblyWait{c: c, n: n, came: a.came, room: make(chan struct{})}
	if _, holds := a.holders[c]; holds {
		a.more = append(a.more, w)
	} else {
		a.first = append(a.first, w)
	}
	a.serve()
	return w
}

// free gives n bytes of c back; last tells that c holds nothing now.
func (a *assembly) free(c *conn, n int64, last bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.used -= n
	if last {
		delete(a.holders, c)
	}
	a.serve()
}

// leave ends a wait; ok tells that nothing was reserved.
func (a *assembly) leave(w *assemblyWait) (ok bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	waits := a.remove(w)
	a.serve() // the next may fit
	return waits || w.err != nil
}

// insist has a wait that has been long enough end without room, if there is twice the usual: others may always be there to use what is freed.
func (a *assembly) insist(w *assemblyWait) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.used+w.n <= 2*a.max && a.remove(w) {
		a.give(w)
	}
}

func (a *assembly) remove(w *assemblyWait) (waits bool) {
	for _, list := range []*[]*assemblyWait{&a.more, &a.first} {
		if i := slices.Index(*list, w); i >= 0 {
			*list = slices.Delete(*list, i, i+1)
			return true
		}
	}
	return false
}

// next is who has waited longest, or nil.
func (a *assembly) next() *assemblyWait {
	switch {
	case len(a.more) > 0 && (len(a.first) == 0 || a.more[0].came < a.first[0].came):
		return a.more[0]
	case len(a.first) > 0:
		return a.first[0]
	}
	return nil
}

// serve ends the waits that can end; called with mu held.
func (a *assembly) serve() {
	for w := a.next(); w != nil && a.fits(w.n); w = a.next() {
		a.remove(w)
		a.give(w)
	}
	if len(a.more) == 0 || len(a.more) < len(a.holders) {
		return
	}
	w := a.more[0]
	a.remove(w)
	if a.used+w.n > 2*a.max {
		w.err = wire.Errorf(wire.ResourceError, wire.MethodBasicPublish, "unfinished messages of all connections to the node exceed %d bytes", 2*a.max)
		close(w.room)
		return
	}
	a.give(w)
}

func (a *assembly) give(w *assemblyWait) {
	w.c.grown.Store(time.Now().UnixNano()) // it has not stalled: it could not go on
	a.take(w.c, w.n)
	close(w.room)
}

func (a *assembly) fits(n int64) bool { return a.used == 0 || a.used+n <= a.max }

func (a *assembly) take(c *conn, n int64) {
	a.used += n
	a.holders[c] = struct{}{}
}

// stalled are the connections that hold room, do not wait for more and have not used it since t.
func (a *assembly) stalled(t time.Time) (all []*conn) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for c := range a.holders {
		waits := slices.ContainsFunc(a.more, func(w *assemblyWait) bool { return w.c == c })
		if !waits && c.grown.Load() < t.UnixNano() {
			all = append(all, c)
		}
	}
	return all
}

// reserve takes room for the message that has begun, and waits for it. An error ends the connection.
func (c *conn) reserve(p *publish) error {
	a := c.srv.assembly
	n := int64(len(p.props) + p.size)
	c.grown.Store(time.Now().UnixNano())
	if w := a.reserve(c, n); w != nil {
		c.endBurst()
		if err := c.awaitAssembly(w); err != nil {
			return err
		}
	}
	p.reserved = n
	c.reserved += n
	return nil
}

// awaitAssembly waits for room, while there is no alarm at the cost of those that hold room and do nothing with it.
func (c *conn) awaitAssembly(w *assemblyWait) error {
	a := c.srv.assembly
	patience := c.srv.cfg.AssemblyPatience
	look := time.NewTicker(max(patience/16, time.Millisecond))
	defer look.Stop()
	since := time.Now()
	for {
		select {
		case <-w.room:
			return w.err
		case now := <-look.C:
			if *c.srv.blocked.Load() != "" {
				since = now // nobody who publishes is read
			}
			if now.Sub(since) < patience {
				continue
			}
			stalled := a.stalled(now.Add(-patience))
			for _, idle := range stalled {
				idle.kick(broker.Errorf(broker.ConnectionForced, "a message was not continued for %v while others waited for the memory", patience))
			}
			if len(stalled) == 0 {
				a.insist(w)
			}
		case <-c.ctx.Done():
			if !a.leave(w) {
				a.free(c, w.n, c.reserved == 0)
			}
			if c.kicked.Load() != nil {
				return errKicked
			}
			return c.ctx.Err()
		}
	}
}

// unreserve gives the room of a message back, which was completed or will not be.
func (c *conn) unreserve(p *publish) {
	if p.reserved == 0 {
		return
	}
	c.reserved -= p.reserved
	c.srv.assembly.free(c, p.reserved, c.reserved == 0)
	p.reserved = 0
}
