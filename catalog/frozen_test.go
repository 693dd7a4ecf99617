package catalog_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/warrenmq/warren/catalog"
	"github.com/warrenmq/warren/transport"
)

// TestFrozenReplicaTakesNoPart freezes one of three: the two others go on until one of them is stopped, and then nobody leads, though two processes run. A start of
// the frozen one changes nothing in that, and its copy can be read all the time, committed or not.
func TestFrozenReplicaTakesNoPart(t *testing.T) {
	c := newNodes(t, 3)
	c.ready()
	frozen := c.follower()
	propose(t, c.leader(), &catalog.PutVhost{Vhost: catalog.Vhost{Name: "before"}})
	until(t, "the follower has it", func() bool { return frozen.catalog.View().Vhost("before") != nil })
	if err := frozen.catalog.Freeze(); err != nil {
		t.Fatal(err)
	}
	propose(t, c.leader(), &catalog.PutVhost{Vhost: catalog.Vhost{Name: "after"}})
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if _, err := frozen.catalog.Propose(ctx, &catalog.PutVhost{Vhost: catalog.Vhost{Name: "never"}}); !errors.Is(err, catalog.ErrUnknownOutcome) {
		t.Errorf("a proposal through a frozen replica: %v", err)
	}
	before, err := frozen.catalog.Salvage()
	if err != nil || before.View.Vhost("before") == nil || before.View.Vhost("after") != nil || !frozen.catalog.Frozen() {
		t.Fatalf("%+v, %v", before, err)
	}
	id, dir := frozen.id, frozen.dir
	frozen.stop(t)
	c.program = func(_ *transport.Config, cfg *catalog.Config) { cfg.Frozen = cfg.Local == id }
	again := c.start(id, dir, true)
	leader := c.leader()
	var other *node
	for _, n := range c.all {
		if n != again && n != leader {
			other = n
		}
	}
	c.kill(leader.id)
	for deadline := time.Now().Add(2 * time.Second); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		if other.catalog.Leading() || again.catalog.Leading() {
			t.Fatal("a frozen replica has voted")
		}
	}
	after, err := again.catalog.Salvage()
	if err != nil || after.Last != before.Last || after.LastTerm != before.LastTerm {
		t.Errorf("%d/%d after a start, %d/%d before: %v", after.LastTerm, after.Last, before.LastTerm, before.Last, err)
	}
}
