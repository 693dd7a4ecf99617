package leader

import (
	"testing"
	"time"

	"github.com/warrenmq/warren/fsm"
	"github.com/warrenmq/warren/queue/wire"
)

// An auto-delete queue goes when its last consumer went with the node that led the
// queue: the next leader finds in the log that there was one. A queue that never had a
// consumer stays.
func TestNextLeaderMissesTheLastConsumer(t *testing.T) {
	for name, consumed := range map[string]bool{"with a consumer": true, "without": false} {
		t.Run(name, func(t *testing.T) {
			a, b := node(1), node(2)
			r := newRig(t, plain(), a, b)
			r.l.Stop()
			unused := make(chan struct{}, 4)
			lead := func(nodes ...Node) {
				r.l.Stop()
				r.session++
				cfg := r.l.cfg
				cfg.Session, cfg.AutoDelete, cfg.Unused = r.session, true, func() { unused <- struct{}{} }
				cfg.LiveNodes = func() []Node { return nodes }
				r.l = Lead(r.replica, cfg)
				for _, n := range nodes {
					r.answerRoll(n)
				}
			}
			lead(a, b)
			if consumed {
				r.l.Receive(a.ID, &wire.Attach{Queue: 7, Origin: a.Origin, Consumer: wire.Consumer{No: 1}})
				await[*wire.Attached](r, a.ID, nil)
			}
			r.publish(b, "kept") // behind the record
			select {
			case <-unused:
				t.Fatal("called unused too early")
			default:
			}
			lead(b) // a is dead
			patience := 200 * time.Millisecond
			if consumed {
				patience = 30 * time.Second
			}
			select {
			case <-unused:
				if !consumed {
					t.Error("a queue without consumers is called unused")
				}
			case <-time.After(patience):
				if consumed {
					t.Error("nobody misses the consumer")
				}
			}
		})
	}
}

// A node that did not answer the roll call in time may have the last consumer: the queue
// waits until it has answered or is gone. That its former process is gone says nothing.
func TestUnusedWaitsForMissingNodes(t *testing.T) {
	a, b := node(1), node(2)
	for name, tc := range map[string]struct {
		then func(r *rig)
		want bool
	}{
		"former process gone": {func(r *rig) { r.l.NodeGone(a.Origin.Node, a.Origin.Incarnation-1) }, false},
		"gone":                {func(r *rig) { r.l.NodeGone(a.Origin.Node, a.Origin.Incarnation) }, true},
		"has none": {func(r *rig) {
			r.l.Receive(a.ID, &wire.Resync{Queue: 7, Session: r.session, No: 1, Origin: a.Origin})
		}, true},
		"has one": {func(r *rig) {
			r.l.Receive(a.ID, &wire.Resync{Queue: 7, Session: r.session, No: 1, Origin: a.Origin, Consumers: []wire.Consumer{{No: 1}}})
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, late := range []bool{false, true} {
				r := newRig(t, plain(), a, b)
				r.l.Stop()
				r.session++
				unused := make(chan struct{}, 4)
				cfg := r.l.cfg
				cfg.Session, cfg.AutoDelete, cfg.Unused = r.session, true, func() { unused <- struct{}{} }
				r.l = Lead(r.replica, cfg)
				r.answerRoll(a)
				r.l.Propose(fsm.Consumed{}, false, nil)
				r.publish(a, "behind it")
				r.l.Stop()
				r.session++
				cfg.Session = r.session
				r.l = Lead(r.replica, cfg)
				r.answerRoll(b)
				if late {
					time.Sleep(rollCallTimeout + 100*time.Millisecond)
				}
				tc.then(r)
				patience := 300 * time.Millisecond
				if tc.want {
					patience = 30 * time.Second
				}
				select {
				case <-unused:
					if !tc.want {
						t.Error("called unused")
					}
				case <-time.After(patience):
					if tc.want {
						t.Error("not called unused")
					}
				}
			}
		})
	}
}
