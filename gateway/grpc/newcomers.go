package grpc

import (
	"container/list"
	"net"
	"sync"
	"time"
)

// newcomerMin is how long a connection has at least for its first call that needs a login.
const newcomerMin = time.Second

// newcomers is a listener that lets so many connections be open. Where there are as many the oldest on which nobody has logged in makes room for another, so
// that who says nothing keeps no client out; without one the other waits.
type newcomers struct {
	net.Listener

	most int
	done chan struct{} // closed when the listener is
	once sync.Once

	mu    sync.Mutex
	open  int
	list  list.List     // of *newcomer: those on which nobody has logged in, the oldest first
	freed chan struct{} // closed when one more may be open, nil while nobody waits
}

// newcomer is a connection of such a listener.
type newcomer struct {
	net.Conn

	of   *newcomers
	came time.Time
	// Guarded by of.mu.
	at   *list.Element // in of.list, nil when it is not there
	gone bool          // it does not count any more
}

func newNewcomers(ln net.Listener, most int) *newcomers {
	return &newcomers{Listener: ln, most: most, done: make(chan struct{})}
}

// Accept implements net.Listener.
func (l *newcomers) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	c := &newcomer{Conn: conn, of: l}
	for {
		old, freed, wait := l.enter(c, time.Now())
		if old != nil {
			_ = old.Conn.Close() // the library sees that
		}
		if freed == nil {
			return c, nil
		}
		late := time.NewTimer(wait)
		select {
		case <-freed:
		case <-late.C:
		case <-l.done:
			late.Stop()
			_ = conn.Close() // nothing was exchanged
			return nil, net.ErrClosed
		}
		late.Stop()
	}
}

// enter counts a connection, and returns the one that makes room for it, if any. If there is no room, freed is closed when there may be, and after wait
// there may be one that makes room.
func (l *newcomers) enter(c *newcomer, now time.Time) (old *newcomer, freed <-chan struct{}, wait time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.open >= l.most {
		wait = newcomerMin
		if front := l.list.Front(); front != nil {
			old = front.Value.(*newcomer) //nolint:forcetypeassert // the list has no others
			wait -= now.Sub(old.came)
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
	c.came, c.at = now, l.list.PushBack(c)
	return old, nil, 0
}

// leaveLocked takes a connection out of those that count, once.
func (l *newcomers) leaveLocked(c *newcomer) {
	if c.gone {
		return
	}
	c.gone = true
	l.open--
	c.staysLocked()
	if l.freed != nil {
		close(l.freed)
		l.freed = nil
	}
}

// Close implements net.Listener.
func (l *newcomers) Close() error {
	l.once.Do(func() { close(l.done) })
	return l.Listener.Close()
}

// Close implements net.Conn.
func (c *newcomer) Close() error {
	c.of.mu.Lock()
	c.of.leaveLocked(c)
	c.of.mu.Unlock()
	return c.Conn.Close()
}

// logsIn keeps the connection: a login on it is being looked at, or was accepted. Where many log in at a time newcomers would drive out those that are about
// to be done.
func (c *newcomer) logsIn() {
	c.of.mu.Lock()
	defer c.of.mu.Unlock()
	c.staysLocked()
}

func (c *newcomer) staysLocked() {
	if c.at != nil {
		c.of.list.Remove(c.at)
		c.at = nil
	}
}

// refused takes it back: the login was refused.
func (c *newcomer) refused() {
	c.of.mu.Lock()
	defer c.of.mu.Unlock()
	if c.at == nil && !c.gone {
		c.at = c.of.list.PushBack(c)
	}
}

// newcomer is the connection from an address, nil if it has ended.
func (s *Server) newcomer(from net.Addr) *newcomer {
	if c, ok := s.conns.Load(from.String()); ok {
		n, _ := c.(*counted).Conn.(*newcomer) //nolint:forcetypeassert // there are no others
		return n
	}
	return nil
}
