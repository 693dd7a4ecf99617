package mover

import (
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/warrenmq/warren/dlx"
	"github.com/warrenmq/warren/fsm"
	"github.com/warrenmq/warren/queue"
	"github.com/warrenmq/warren/queue/wire"
)

// send publishes messages and redrives all that there are, each to the targets.
func (r *rig) send(targets []uint64, bodies ...string) {
	var after queue.MessageID
	r.m.cfg.View(func(m *fsm.Machine) { after = m.Queue().Tail() })
	c := fsm.TakeRedrive{Number: 1, Through: after + queue.MessageID(len(bodies))}
	for i, b := range bodies {
		r.enter(fsm.Publish{TTLMillis: -1}, fsm.Message{RoutingKeys: []string{"k"}, Properties: []byte{0, 0}, Body: []byte(b)})
		c.Items = append(c.Items, fsm.RedriveItem{ID: after + queue.MessageID(i) + 1, Targets: targets})
	}
	r.propose(fsm.StartRedrive{Spec: dlx.RedriveSpec{To: dlx.ToNamedQueue}})
	r.propose(c)
	r.m.Wake()
}

func (r *rig) redriving() (job dlx.Redriving) {
	r.m.cfg.View(func(m *fsm.Machine) { job = m.Redriving() })
	return job
}

// full has the target say that it has taken what is up to a sequence, and has room for no more.
func (r *rig) full(target, upTo uint64) {
	r.answer(wire.TransferAnswer{Target: target, UpTo: upTo, Full: true})
}

// A redrive whose target is full ends when it is stopped.
func TestStoppedRedriveIsCalledBack(t *testing.T) {
	run(t, "full target", func(t *testing.T) {
		r := newRig(t, false, Target{5, "a"})
		defer r.m.Stop()
		r.send([]uint64{5}, "1", "2", "3")
		want(t, r.take(5), "1:1", "2:2", "3:3")
		r.full(5, 1)
		want(t, r.take(5))
		r.propose(fsm.StopRedrive{Number: 1})
		r.m.Wake()
		want(t, r.take(5), "2:-", "3:-")
		r.answer(wire.TransferAnswer{Target: 5, UpTo: 3, Withdrawn: []uint64{2, 3}})
		if job := r.redriving(); job.EndedMillis == 0 || job.Moved != 1 || job.Returned != 2 || r.len() != 0 {
			t.Errorf("%+v, %d in the outbox", job, r.len())
		}
	})
	run(t, "full target and much under way", func(t *testing.T) {
		r := newRig(t, false, Target{5, "a"})
		defer r.m.Stop()
		r.send([]uint64{5}, slices.Repeat([]string{"m"}, 2*transferItems)...)
		if n := len(r.take(5)); n != 2*transferItems {
			t.Fatalf("sent %d", n)
		}
		r.full(5, 0) // of the first transfer
		r.answer(wire.TransferAnswer{Target: 5, Gap: true, Full: true})
		synctest.Wait()
		r.propose(fsm.StopRedrive{Number: 1})
		r.m.Wake()
		list := r.take(5)
		if len(list) != 2*transferItems || slices.ContainsFunc(list, func(s string) bool { return !strings.HasSuffix(s, ":-") }) {
			t.Errorf("%d sent, the first as %v", len(list), list[:min(1, len(list))])
		}
	})
	run(t, "target with room", func(t *testing.T) {
		r := newRig(t, false, Target{5, "a"})
		defer r.m.Stop()
		r.send([]uint64{5}, "1", "2")
		want(t, r.take(5), "1:1", "2:2")
		r.propose(fsm.StopRedrive{Number: 1})
		r.m.Wake()
		want(t, r.take(5))
		r.answer(wire.TransferAnswer{Target: 5, UpTo: 2})
		if job := r.redriving(); job.EndedMillis == 0 || job.Moved != 2 {
			t.Errorf("%+v", job)
		}
	})
	// Each number has its turn: what stands in front and waits for room is called back too.
	run(t, "behind letters", func(t *testing.T) {
		r := newRig(t, false, Target{5, "a"})
		defer r.m.Stop()
		r.die("1")
		r.send([]uint64{5}, "2")
		r.die("3")
		want(t, r.take(5), "1:1", "2:2", "3:3")
		r.full(5, 0)
		r.propose(fsm.StopRedrive{Number: 1})
		r.m.Wake()
		want(t, r.take(5), "1:-", "2:-", "3:-")
		r.answer(wire.TransferAnswer{Target: 5, UpTo: 3, Withdrawn: []uint64{1, 2, 3}})
		if job := r.redriving(); job.EndedMillis == 0 || job.Returned != 1 {
			t.Errorf("%+v", job)
		}
		time.Sleep(2 * backoffMin)
		want(t, r.take(5), "4:1", "5:3")
		r.full(5, 3)
		time.Sleep(10 * time.Second)
		if n := r.entries(); n > 20 {
			t.Errorf("%d entries", n)
		}
	})
	// It is half done, and goes on: the other target gets it when there is room.
	run(t, "taken by another target", func(t *testing.T) {
		r := newRig(t, false, Target{5, "a"}, Target{6, "b"})
		defer r.m.Stop()
		r.send([]uint64{5, 6}, "1")
		r.take(5)
		r.take(6)
		r.answer(wire.TransferAnswer{Target: 5, UpTo: 1})
		r.full(6, 0)
		r.propose(fsm.StopRedrive{Number: 1})
		r.m.Wake()
		time.Sleep(10 * time.Second)
		for _, sent := range r.take(6) {
			if sent != "1:1" {
				t.Errorf("sent %s", sent)
			}
		}
		r.answer(wire.TransferAnswer{Target: 6, UpTo: 1})
		if job := r.redriving(); job.EndedMillis == 0 || job.Moved != 1 {
			t.Errorf("%+v", job)
		}
	})
	// A new leader learns that the target is full when it sends, and only then calls back.
	run(t, "after a failover", func(t *testing.T) {
		r := newRig(t, false, Target{5, "a"})
		r.send([]uint64{5}, "1")
		r.propose(fsm.StopRedrive{Number: 1})
		r.m.Stop()
		r.m = Start(r.m.cfg)
		defer r.m.Stop()
		if list := r.take(5); list[len(list)-1] != "1:1" {
			t.Errorf("sent %v", list)
		}
		r.full(5, 0)
		want(t, r.take(5), "1:-")
	})
}

// Letters that take another way do not wait behind what a redrive sends to a full target: that goes on
// behind what is under way.
func TestRedriveLetsWithdrawnLettersPass(t *testing.T) {
	run(t, "full target", func(t *testing.T) {
		r := newRig(t, false, Target{5, "a"})
		defer r.m.Stop()
		r.send([]uint64{5}, "1")
		r.die("2")
		want(t, r.take(5), "1:1", "2:2")
		r.full(5, 0)
		r.routes(Target{6, "b"})
		r.propose(settings(2, "y", false))
		r.m.Wake()
		want(t, r.take(5), "1:-", "2:-")
		r.answer(wire.TransferAnswer{Target: 5, UpTo: 2, Withdrawn: []uint64{1, 2}})
		want(t, r.take(6), "1:2")
		time.Sleep(2 * backoffMin)
		want(t, r.take(5), "3:1")
		r.full(5, 2)
		time.Sleep(time.Minute)
		r.take(5)
		r.answer(wire.TransferAnswer{Target: 5, UpTo: 3})
		if job := r.redriving(); job.Moved != 1 || job.Returned != 0 {
			t.Errorf("%+v", job)
		}
	})
}
