package catalog

import (
	"fmt"
	"io"
	"sync"
	"testing"
)

// A snapshot is written while commands are applied and views are read. The race
// detector finds a writer that touches what it writes.
func TestSnapshotLeavesTheViewAlone(t *testing.T) {
	s := newScript(t)
	for i := range 20 {
		s.ok(declare(fmt.Sprint("q", i)))
	}
	snap := &snapshot{view: s.view(), requests: s.m.requests.save()}
	var wg sync.WaitGroup
	wg.Go(func() {
		for range 5 {
			if err := snap.write(io.Discard); err != nil {
				t.Error(err)
			}
		}
	})
	for i := range 20 {
		s.ok(&RegisterNode{ID: NodeID(fmt.Sprintf("n%d/u", i))})
		for q := range snap.view.AllQueues() {
			if !q.Durable && q.Kind == Replicated && q.State == Closing {
				t.Error("no such queue was declared")
			}
		}
	}
	wg.Wait()
}
