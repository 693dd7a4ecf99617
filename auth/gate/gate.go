// Package gate lets few of many through at a time, and those who wait take turns by where they come from. It knows neither passwords nor servers.
package gate

import (
	"context"
	"sync"
)

// Gate lets few through at a time. Who has to wait stands in the line of where they come from, and the lines take turns: a
// source that sends very many keeps itself waiting, and nobody else. When all places are taken, the newest of the longest
// line goes.
type Gate struct {
	mu      sync.Mutex
	free    int // ways through
	places  int // that are left to wait
	lines   map[string]*line
	turns   []*line // those with somebody in them, the next one first
	refused uint64
}

// line is not empty while it is in turns.
type line struct {
	source  string
	waiting []*waiter
}

type waiter struct {
	// done is closed, under the gate's mutex, when the waiter has its turn or has none any more.
	done chan struct{}
	turn bool
}

// New returns a gate with so many ways through, and places to wait.
func New(ways, places int) *Gate {
	return &Gate{free: ways, places: places, lines: map[string]*line{}}
}

// Enter waits for a turn, which Leave ends. False: there is none, within ctx or with so many who wait.
func (g *Gate) Enter(ctx context.Context, source string) bool {
	w := g.join(source)
	if w == nil {
		return true
	}
	select {
	case <-w.done:
		return w.turn // closed after it was set
	case <-ctx.Done():
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	select {
	case <-w.done: // in the meantime; the turn is used all the same
		return w.turn
	default:
	}
	g.drop(g.lines[source], w)
	return false
}

// join returns nil if there is a way through at once.
func (g *Gate) join(source string) *waiter {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.free > 0 { // nobody waits then
		g.free--
		return nil
	}
	w := &waiter{done: make(chan struct{})}
	l := g.lines[source]
	if l == nil {
		l = &line{source: source}
		g.lines[source] = l
		g.turns = append(g.turns, l)
	}
	l.waiting = append(l.waiting, w)
	if g.places--; g.places < 0 {
		longest := l
		for _, other := range g.turns {
			if len(other.waiting) > len(longest.waiting) {
				longest = other
			}
		}
		g.drop(longest, longest.waiting[len(longest.waiting)-1])
	}
	return w
}

// drop takes somebody out of a line without a turn; mu is held.
func (g *Gate) drop(l *line, w *waiter) {
	for i := range l.waiting {
		if l.waiting[i] == w {
			l.waiting = append(l.waiting[:i], l.waiting[i+1:]...)
			break
		}
	}
	g.places++
	g.refused++
	close(w.done)
	if len(l.waiting) == 0 {
		g.forget(l)
	}
}

// forget takes an empty line away; mu is held.
func (g *Gate) forget(l *line) {
	delete(g.lines, l.source)
	for i := range g.turns {
		if g.turns[i] == l {
			g.turns = append(g.turns[:i], g.turns[i+1:]...)
			return
		}
	}
}

// Leave gives the way to whoever is next.
func (g *Gate) Leave() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.turns) == 0 {
		g.free++
		return
	}
	l := g.turns[0]
	w := l.waiting[0]
	l.waiting = l.waiting[1:]
	g.turns = g.turns[1:]
	if len(l.waiting) > 0 {
		g.turns = append(g.turns, l)
	} else {
		delete(g.lines, l.source)
	}
	g.places++
	w.turn = true
	close(w.done)
}

// Refused is how many had no turn so far.
func (g *Gate) Refused() uint64 {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.refused
}
