package fsm

import (
	"testing"

	"github.com/warrenmq/warren/queue"
)

// TestCancel: of a message of a delayed exchange that comes due and is cancelled at the same time, the order of the log tells which; who asks
// again gets the same answer, also from a machine that was restored; a queue of clients has nothing to cancel.
func TestCancel(t *testing.T) {
	g := newRig(t)
	g.time = 1000
	g.settings(func(s *queue.Settings) { deadLettering(s); s.Delayed = true })
	held := func(body string) Publish {
		p := pub(body)
		p.Tell, p.TTLMillis = true, 50
		return p
	}
	outcome := func(want OutcomeKind, ops ...Op) {
		t.Helper()
		res := g.apply(g.run(ops...))
		last := Outcome{Kind: Done}
		if n := len(res.Streams[0].Outcomes); n > 0 {
			last = res.Streams[0].Outcomes[n-1]
		}
		if last.Kind != want {
			t.Errorf("%v: %+v, want %d", ops, last, want)
		}
	}
	res := g.apply(g.run(held("a"), pub("b"), held("c"), held("d")))
	equalList(t, "outcomes", res.Streams[0].Outcomes, []Outcome{{1, Kept, 1}, {3, Kept, 3}, {4, Kept, 4}})
	outcome(Cancelled, Cancel{1})
	outcome(Cancelled, Cancel{1})
	outcome(Done, Cancel{9})
	g.time += 50
	g.apply(g.run(Cancel{3}), Expire{[]queue.IDRange{{First: 3, Last: 4}}})
	outcome(Cancelled, Cancel{3})
	outcome(Done, Cancel{4})
	if n := g.m.Outbox().Len(); n != 1 {
		t.Errorf("%d messages go on, want 1", n)
	}
	equal(t, "purged", g.m.Counters().Purged, 2)
	m, err := Restore(g.m.Snapshot())
	if err != nil {
		t.Fatal(err)
	}
	g.m = m
	outcome(Cancelled, Cancel{1})
	// The newest are remembered.
	var ops []Op
	for range cancelledMax {
		ops = append(ops, held("x"))
	}
	g.apply(g.run(ops...))
	for i := range ops {
		ops[i] = Cancel{queue.MessageID(5 + i)}
	}
	outcome(Cancelled, ops...)
	outcome(Done, Cancel{1})
	outcome(Cancelled, Cancel{5})
	g.m.check()
	g.settings(func(s *queue.Settings) { s.Delayed = false })
	g.publish("of a client")
	outcome(Done, Cancel{g.m.Queue().Tail()})
	g.apply(Close{})
	outcome(Gone, Cancel{5})
	g.m.check()
}
