package crowd

import (
	"errors"
	"net"
	"testing"
	"testing/synctest"
	"time"
)

// TestBusyStays: a busy connection does not go for another one; one that is idle again does, after the others, and one that has gone does not come back.
func TestBusyStays(t *testing.T) {
	const least = time.Second
	l := New(nil, Bounds{Most: 2, Min: least})
	now := time.Now()
	enter := func(want *Conn, wantRoom bool) *Conn {
		t.Helper()
		c := &Conn{of: l}
		old, freed, _ := l.enter(c, now)
		if old != want || (freed == nil) != wantRoom {
			t.Fatalf("%p goes, want %p; there is room %t, want %t", old, want, freed == nil, wantRoom)
		}
		return c
	}
	first, second := enter(nil, true), enter(nil, true)
	enter(nil, false) // nobody has had a second yet
	first.Busy()
	now = now.Add(least)
	third := enter(second, true)
	third.Busy()
	now = now.Add(least)
	enter(nil, false)
	first.Idle()
	enter(first, true)
	second.Idle() // it has gone, and does not come back
	if l.open != 2 || l.idle.Len() != 1 {
		t.Errorf("%d are open, of which %d are idle", l.open, l.idle.Len())
	}
}

// TestWhoLeavesDoesNotCount: a connection that has left makes room, and does not go for another one.
func TestWhoLeavesDoesNotCount(t *testing.T) {
	l := New(nil, Bounds{Most: 1})
	known := &Conn{of: l}
	for i, c := range []*Conn{known, {of: l}} {
		if old, freed, _ := l.enter(c, time.Time{}); old != nil || freed != nil {
			t.Fatalf("connection %d found no room (%v goes)", i, old)
		}
		known.Leave()
	}
	if l.open != 1 || l.idle.Len() != 1 {
		t.Errorf("%d are open, of which %d are idle", l.open, l.idle.Len())
	}
}

// ends is a listener of pipes, whose other ends its test keeps.
type ends chan net.Conn

func (e ends) Accept() (net.Conn, error) {
	c, ok := <-e
	if !ok {
		return nil, net.ErrClosed
	}
	return c, nil
}
func (e ends) Close() error   { close(e); return nil }
func (e ends) Addr() net.Addr { return &net.UnixAddr{} }

// TestNextWaits: with no room the next connection waits, until one is closed, is idle, or has had its time, and no longer than the listener is open.
func TestNextWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		come, closed := make(ends, 8), 0
		l := New(come, Bounds{Most: 1, Min: time.Second, Closed: func(net.Addr) { closed++ }})
		accepted, failed := make(chan *Conn), make(chan error, 1)
		go func() {
			for {
				c, err := l.Accept()
				if err != nil {
					failed <- err
					return
				}
				accepted <- c.(*Conn)
			}
		}()
		next := func(after time.Duration) *Conn {
			t.Helper()
			began := time.Now()
			c := <-accepted
			if took := time.Since(began); took != after {
				t.Fatalf("it came in after %v, want %v", took, after)
			}
			return c
		}
		for range 5 {
			here, there := net.Pipe()
			defer there.Close()
			come <- here
		}
		first := next(0)
		first.Busy()
		time.AfterFunc(5*time.Second, func() { _ = first.Close() })
		second := next(5 * time.Second)
		second.Busy()
		time.AfterFunc(5*time.Second, second.Idle)
		_ = next(5 * time.Second)
		last := next(time.Second)
		last.Busy()
		if synctest.Wait(); closed != 2 {
			t.Errorf("%d had to go, want 2", closed)
		}
		_ = l.Close() // of pipes, which have no error
		if err := <-failed; !errors.Is(err, net.ErrClosed) {
			t.Errorf("who waits is told %v", err)
		}
	})
}
