//go:build failpoints

package store

import "time"

// unpin lets go of what a snapshot that is not published yet does not pin, and leaves the keeper time
// to free it: failpoint.UnpinEarly.
func (g *Group) unpin(p *published) {
	g.mu.Lock()
	if g.snap != nil {
		old := *g.snap
		old.pins = p.pins
		g.snap = &old
	}
	g.dropBelow(0, g.meta.first)
	g.mu.Unlock()
	for range 10 {
		g.s.nudge()
		time.Sleep(time.Millisecond)
	}
}
