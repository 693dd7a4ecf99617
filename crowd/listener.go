package crowd

import (
	"container/list"
	"net"
	"sync"
	"time"
)

// Bounds are what a listener keeps to.
type Bounds struct {
	Most   int            // connections that may be open and count
	Min    time.Duration  // how long each has at least before it may go for another one
	Closed func(net.Addr) // told of each that had to go; nil: nobody is
}

// Listener is a listener that lets so many connections be open. Where there are as many, the one that has been idle for the longest goes for another one;
// without one that is idle, and has had its time, the other waits.
type Listener struct {
	net.Listener

	bounds Bounds
	done   chan struct{} // closed when the listener is
	once   sync.Once

	mu    sync.Mutex
	open  int           // connections that count
	idle  list.List     // of *Conn: those that may go, that which has been idle for the longest first
	freed chan struct{} // closed when there may be room, nil while nobody waits
}

// Conn is a connection of such a listener. A new one is idle.
type Conn struct {
	net.Conn

	of   *Listener
	came time.Time
	// Guarded by of.mu.
	at   *list.Element // in of.idle, nil when it is not there
	gone bool          // it does not count any more
}

// New bounds the connections of a listener, which it closes when it is closed itself.
func New(ln net.Listener, b Bounds) *Listener {
	return &Listener{Listener: ln, bounds: b, done: make(chan struct{})}
}

// Accept implements net.Listener. What it returns is a *Conn.
func (l *Listener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	c := &Conn{Conn: conn, of: l}
	for {
		old, freed, wait := l.enter(c, time.Now())
		if old != nil {
			_ = old.Conn.Close() // who serves it sees that
			if l.bounds.Closed != nil {
				l.bounds.Closed(old.RemoteAddr())
			}
		}
		if freed == nil {
			return c, nil
		}
		if !l.await(freed, wait) {
			_ = conn.Close() // nothing was exchanged
			return nil, net.ErrClosed
		}
	}
}

// await waits until freed is closed, for so long at most unless that is 0. It is false when the listener is closed.
func (l *Listener) await(freed <-chan struct{}, wait time.Duration) bool {
	var late <-chan time.Time
	if wait > 0 {
		timer := time.NewTimer(wait)
		defer timer.Stop()
		late = timer.C
	}
	select {
	case <-freed:
	case <-late:
	case <-l.done:
		return false
	}
	return true
}

// enter counts a connection, and returns the one that goes for it, if any. If there is no room, freed is closed when there may be, and after wait, unless that
// is 0, one may go.
func (l *Listener) enter(c *Conn, now time.Time) (old *Conn, freed <-chan struct{}, wait time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.open >= l.bounds.Most {
		if front := l.idle.Front(); front != nil {
			old = front.Value.(*Conn) //nolint:forcetypeassert // the list has no others
			wait = max(0, l.bounds.Min-now.Sub(old.came))
		}
		if old == nil || wait > 0 {
			if l.freed == nil {
				l.freed = make(chan struct{})
			}
			return nil, l.freed, wait
		}
		l.leaveLocked(old)
	}
	l.open++
	c.came, c.at = now, l.idle.PushBack(c)
	return old, nil, 0
}

// leaveLocked takes a connection out of those that count, once.
func (l *Listener) leaveLocked(c *Conn) {
	if c.gone {
		return
	}
	c.gone = true
	l.open--
	c.staysLocked()
	l.tellLocked()
}

// tellLocked wakes those that wait: one more may be open, or may go.
func (l *Listener) tellLocked() {
	if l.freed != nil {
		close(l.freed)
		l.freed = nil
	}
}

// Close implements net.Listener.
func (l *Listener) Close() error {
	l.once.Do(func() { close(l.done) })
	return l.Listener.Close()
}

// Close implements net.Conn.
func (c *Conn) Close() error {
	c.Leave()
	return c.Conn.Close()
}

// Leave takes the connection, which stays open, out of those that count and may go.
func (c *Conn) Leave() {
	c.of.mu.Lock()
	defer c.of.mu.Unlock()
	c.of.leaveLocked(c)
}

// Busy keeps the connection from going for another one.
func (c *Conn) Busy() {
	c.of.mu.Lock()
	defer c.of.mu.Unlock()
	c.staysLocked()
}

// Idle lets the connection go for another one, after all that may already.
func (c *Conn) Idle() {
	c.of.mu.Lock()
	defer c.of.mu.Unlock()
	if c.at == nil && !c.gone {
		c.at = c.of.idle.PushBack(c)
		c.of.tellLocked()
	}
}

func (c *Conn) staysLocked() {
	if c.at != nil {
		c.of.idle.Remove(c.at)
		c.at = nil
	}
}
