package leader

import (
	"slices"
	"testing"

	"github.com/warrenmq/warren/fsm"
)

func (c *catalogSettings) pause(paused bool, revision uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.set.Paused, c.revision = paused, revision
}

// TestPaused: a queue that is paused gives consumers and gets nothing, takes everything else, and stays so under the next leader, also one
// whose catalog is behind; resumed, it gives at once.
func TestPaused(t *testing.T) {
	r, _, c := newSettingsRig(t)
	n := node(1)
	held := r.get(n, 1)
	if !held.Found {
		t.Fatal("a queue that nobody has paused gives nothing")
	}
	turn := func(paused bool, revision uint64) {
		t.Helper()
		c.pause(paused, revision)
		r.l.CatalogChanged()
		eventually(t, "the settings", func() bool { return !r.l.SettingsPending() })
		r.l.Describe()
	}
	turn(true, 5)
	r.attach(n, 3, 10)
	if got := r.publish(n, "three"); len(got) > 0 {
		t.Errorf("published while it is paused: %+v", got)
	}
	if got := r.get(n, 2); got.Found {
		t.Errorf("got %+v", got.Item)
	}
	r.nothing(n)
	r.settle(n, fsm.RequeueFailed, held.Item)
	if st := r.status(n, 2); st.Ready != 3 || st.Unacked != 0 {
		t.Errorf("%d ready, %d unacked", st.Ready, st.Unacked)
	}
	if got := r.refusals(n, now("at once")); len(got) != 1 {
		t.Error("a consumer of a paused queue counts as one that takes it at once")
	}
	c.pause(false, 1) // what a copy of the catalog says that is behind
	r.lead()
	r.answerRoll(n)
	r.attach(n, 3, 10)
	if got := r.get(n, 3); got.Found {
		t.Error("the next leader gives what is paused")
	}
	r.nothing(n)
	turn(false, 6)
	if got := r.bodies(r.items(n, 3)); !slices.Equal(slices.Sorted(slices.Values(got)), []string{"one", "three", "two"}) {
		t.Errorf("resumed, it gives %q", got)
	}
}
