package steward

import (
	"time"

	"github.com/warrenmq/warren/catalog"
)

// watch counts for how long nodes have been down, of the time in which that could be known.
type watch struct {
	last  time.Time
	led   time.Duration // for which this process has seen a leader of the catalog
	nodes map[catalog.NodeID]absence
}

// notedWithin is how long before it is noted a death counts at most: the catalog notes it after ten seconds, by the clock of who leads it then. If this node's clock is ahead of
// that, the death seems older than it is, and a node that is only being restarted would lose its replicas.
const notedWithin = 15 * time.Second

// absence is a node that the catalog says is down.
type absence struct {
	since   int64 // Node.Down
	counted time.Duration
}

// look counts the time since the last look. wall is the time in milliseconds since 1970 by which the catalog notes who is down; gap is the longest
// time between two looks that counts: more means that this process stood still.
func (w *watch) look(now time.Time, wall int64, view *catalog.View, led bool, gap time.Duration) {
	passed := min(now.Sub(w.last), gap)
	if w.last.IsZero() || !led {
		passed = 0
	}
	w.last = now
	before := w.led
	w.led += passed
	nodes := make(map[catalog.NodeID]absence)
	for n := range view.Nodes() {
		if n.Down == 0 || n.Superseded {
			continue
		}
		a, known := w.nodes[n.ID]
		if known && a.since == n.Down {
			a.counted += passed
		} else {
			// It was noted some seconds after the death, which this process may have seen.
			a = absence{since: n.Down, counted: min(max(0, time.Duration(wall-n.Down)*time.Millisecond), before, notedWithin)}
		}
		nodes[n.ID] = a
	}
	w.nodes = nodes
}

// down is for how long a node has been down, at least; 0: it is not.
func (w *watch) down(id catalog.NodeID) time.Duration {
	a, ok := w.nodes[id]
	if !ok {
		return 0
	}
	return max(a.counted, 1)
}
