package steward

import (
	"testing"
	"time"

	"github.com/warrenmq/warren/catalog"
)

// TestWatch: the time for which a node is down counts while the catalog has a leader and this process looks, from the death on if it has seen that.
func TestWatch(t *testing.T) {
	r := newRig(t, "a", "b")
	const second = time.Second
	var w watch
	now := time.Now()
	down := func(at int64) {
		r.propose(&catalog.NodeDown{ID: r.ids["b"], Incarnation: r.node("b").Incarnation, AtMillis: at})
	}
	look := func(passed time.Duration, led bool, want time.Duration) {
		t.Helper()
		now = now.Add(passed)
		w.look(now, now.UnixMilli(), r.cat.View(), led, 2*second)
		if got := w.down(r.ids["b"]); got != want {
			t.Errorf("down for %v, want %v", got, want)
		}
	}
	down(now.Add(-time.Hour).UnixMilli())
	look(0, true, 1) // the process is new: it cannot know
	look(second, true, second)
	look(second, false, second)
	look(second, true, 2*second)
	look(time.Hour, true, 4*second) // it stood still
	down(0)
	look(second, true, 0)
	look(second, true, 0)
	down(now.Add(-second).UnixMilli())
	look(0, true, second) // it has seen the death
	look(second, true, 2*second)
	// Another death is another absence.
	down(0)
	down(now.UnixMilli())
	look(second/2, true, second/2)
	// A registration ends it.
	r.propose(&catalog.RegisterNode{ID: r.ids["b"]})
	look(second, true, 0)
}

// TestWatchByAnotherClock: a death is no older because this node's clock is ahead of that by which it was noted, however long this process has been there.
func TestWatchByAnotherClock(t *testing.T) {
	r := newRig(t, "a", "b")
	w, now := watch{led: 24 * time.Hour}, time.Now()
	r.propose(&catalog.NodeDown{ID: r.ids["b"], Incarnation: r.node("b").Incarnation, AtMillis: now.Add(-10 * time.Second).UnixMilli()})
	w.look(now, now.Add(time.Hour).UnixMilli(), r.cat.View(), true, 2*time.Second)
	if got := w.down(r.ids["b"]); got > 15*time.Second {
		t.Errorf("down for %v, and it was ten seconds", got)
	}
}
