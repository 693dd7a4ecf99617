package leader

import (
	"testing"

	"github.com/warrenmq/warren/fsm"
)

// What a queue that is gone for good has taken is forgotten with it: a source may have new targets all the time.
func TestTakenIsForgotten(t *testing.T) {
	a := node(1)
	const gone, there = 90, 91
	r := newRigWith(t, plain(), func(c *Config) {
		c.CatalogRevision = func() uint64 { return 100 }
		c.SourceExists = func(id uint64) bool { return id == there }
	}, a)
	applied := make(chan struct{})
	r.l.Propose(fsm.TransferDone{Target: gone, UpTo: 1}, false, nil)
	r.l.Propose(fsm.TransferDone{Target: there, UpTo: 1}, false, nil)
	r.l.Propose(fsm.TargetGone{Target: gone, Watermark: 1}, false, func() { close(applied) })
	<-applied
	r.answerRoll(a)
	eventually(t, "the target to be forgotten", func() (forgotten bool) {
		r.replica.View(func(m *fsm.Machine) { forgotten = len(m.Outbox().Targets()) == 0 })
		return forgotten
	})
	r.l.Stop()
	if _, ok := r.l.taken[gone]; ok || r.l.taken[there] != 1 {
		t.Errorf("taken: %v", r.l.taken)
	}
}
