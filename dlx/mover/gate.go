package mover

import (
	"fmt"
	"sync"
	"time"
)

// Gate is where everything passes that one queue tells another about their transfers: what is sent, and what is concluded from an
// answer. All movers and leaders of a node share one. While it is held, nothing passes: movers wait, answers wait or are given
// again. Publishes, deliveries and what is decided within a queue go on. The zero value is open; a nil gate always is.
type Gate struct {
	mu     sync.RWMutex
	holder string
	until  time.Time
	opens  chan struct{} // closed when the hold ends; nil: never held
	timer  *time.Timer
}

// Hold closes the gate for holder until then, at the latest. What is passing has passed when it returns. It fails while
// another holder has it.
func (g *Gate) Hold(holder string, until time.Time) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.held() && g.holder != holder {
		return fmt.Errorf("moves of dead letters are held by %s", g.holder)
	}
	g.open()
	g.holder, g.until, g.opens = holder, until, make(chan struct{})
	opens := g.opens
	g.timer = time.AfterFunc(time.Until(until), func() { // ends with the hold
		g.mu.Lock()
		defer g.mu.Unlock()
		if g.opens == opens {
			g.open()
		}
	})
	return nil
}

// Release opens the gate. unbroken tells that holder had it all the time since its Hold.
func (g *Gate) Release(holder string) (unbroken bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.holder != holder {
		return false
	}
	unbroken = g.held()
	g.open()
	return unbroken
}

// HeldBy tells whether holder has the gate.
func (g *Gate) HeldBy(holder string) bool {
	g.mu.RLock()
	defer g.mu.RUnlock()
	return g.held() && g.holder == holder
}

func (g *Gate) held() bool { return g.opens != nil && time.Now().Before(g.until) }

// open is called with mu held.
func (g *Gate) open() {
	if g.opens != nil {
		close(g.opens)
		g.timer.Stop()
	}
	g.holder, g.until, g.opens, g.timer = "", time.Time{}, nil, nil
}

// Pass runs f, which is quick, unless the gate is held.
func (g *Gate) Pass(f func()) bool {
	if g == nil {
		f()
		return true
	}
	g.mu.RLock()
	defer g.mu.RUnlock()
	if g.held() {
		return false
	}
	f()
	return true
}

// Opens returns nil if the gate is open, else a channel that is closed when it opens.
func (g *Gate) Opens() <-chan struct{} {
	if g == nil {
		return nil
	}
	g.mu.RLock()
	defer g.mu.RUnlock()
	if !g.held() {
		return nil
	}
	return g.opens
}
