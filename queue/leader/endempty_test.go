package leader

import (
	"testing"

	"github.com/warrenmq/warren/fsm"
	"github.com/warrenmq/warren/queue/wire"
)

// end asks the queue to end if it is empty.
func (r *rig) end(n Node, req uint64, when wire.EndWhen) {
	r.l.Receive(n.ID, &wire.Query{Queue: 7, Origin: n.Origin, Req: req, After: r.seq[n.Origin.Node], End: when})
}

func (r *rig) answered(n Node, req uint64) *wire.Status {
	r.t.Helper()
	return await(r, n.ID, func(s *wire.Status) bool { return s.Req == req })
}

// A queue that is to end if it is empty is kept by whatever is a message, or may become one.
func TestEndIfEmpty(t *testing.T) {
	a, b := node(1), node(2)
	set := plain()
	set.DeadLetter, set.DeadLetterExchange = true, "dead"
	dies := func(r *rig) {
		r.publish(a, "m")
		r.attach(a, 1, 0)
		r.settle(a, fsm.Discard, r.items(a, 1)...)
	}
	for name, tc := range map[string]struct {
		// before what the log takes, while what is under way when it is asked.
		before, while func(r *rig)
		when          wire.EndWhen
		ended         bool
	}{
		"empty": {when: wire.EndResolved, ended: true},
		"a dead letter on its way": {
			before: dies, ended: true,
		},
		"a dead letter on its way that is to arrive": {
			before: dies, when: wire.EndResolved,
		},
		"a message": {
			before: func(r *rig) { r.publish(a, "m") },
		},
		"a message with a consumer": {
			before: func(r *rig) { r.publish(a, "m"); r.attach(b, 1, 0); r.items(b, 1) },
		},
		"all acked": {
			before: func(r *rig) { r.publish(a, "m"); r.attach(a, 1, 0); r.settle(a, fsm.Ack, r.items(a, 1)...) },
			ended:  true,
		},
		"a message under way": {
			while: func(r *rig) { r.batch(b, pub("m")) },
		},
		"two, one behind the other": {
			while: func(r *rig) { r.batch(b, pub("m")); r.batch(b, pub("n")) },
		},
		"a dead letter under way": {
			while: func(r *rig) {
				r.l.Receive(b.ID, &wire.Transfer{Target: 7, In: fsm.TransferIn{Source: fsm.Source{Queue: 5}, First: 1, Items: []fsm.Transfer{{Message: pub("m").Message, BodyBytes: 1}}}})
			},
		},
		"what goes back to the queue under way": {
			before: func(r *rig) { r.publish(b, "m"); r.attach(b, 1, 1) },
			while:  func(r *rig) { r.settle(b, fsm.RequeueCounted, r.items(b, 1)...) },
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, log, told := unusedRig(t, set, func(*Config) {}, a, b)
			if tc.before != nil {
				tc.before(r)
			}
			log.set(true)
			if tc.while != nil {
				tc.while(r)
			}
			r.end(a, 2, max(tc.when, wire.EndEmpty))
			for range 2 { // it has been looked at when the second one is answered
				r.l.Describe()
			}
			log.set(false)
			got := r.answered(a, 2)
			keep := got.Ready + got.Unacked
			if tc.when == wire.EndResolved {
				keep += got.Outbox
			}
			if got.Ended != tc.ended || keep == 0 != tc.ended {
				t.Errorf("ended: %+v, want %v", got, tc.ended)
			}
			if out := r.publish(b, "later"); (len(out) == 1 && out[0].Kind == fsm.Gone) != tc.ended {
				t.Errorf("a later message: %v", out)
			}
			if tc.ended {
				<-told
			}
		})
	}
}
