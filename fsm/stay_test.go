package fsm

import (
	"slices"
	"testing"

	"github.com/warrenmq/warren/dlx"
	"github.com/warrenmq/warren/queue"
)

// stayRig has two expired messages that may stay, "a" and "b", as items 1 and 2, and a third one.
func stayRig(t *testing.T) *rig {
	g := newRig(t)
	g.settings(func(s *queue.Settings) { deadLettering(s); s.MessageTTLMillis, s.StopTTL = 10, true })
	g.publish("a", "b")
	g.apply(Return{RequeueFailed, []Run{{2, 1, 0}}})
	g.time += 10
	g.publish("c")
	res := g.apply(Expire{[]queue.IDRange{{First: 1, Last: 3}}})
	if len(res.Removed) > 0 || !res.OutboxChanged || res.Dead != nil || g.m.UndecidedLen() != 2 || !g.m.MayStay(2) || g.m.MayStay(3) {
		t.Fatalf("%+v, %d undecided", res, g.m.UndecidedLen())
	}
	return g
}

// A message that stays is at its place with its counts, and never expires again.
func TestStay(t *testing.T) {
	g := stayRig(t)
	g.apply(g.run(Purge{UpTo: 2}, Settle{Kind: Ack, Runs: []Run{{1, 2, 0}}}), DropHeads{[]queue.IDRange{{First: 1, Last: 2}}})
	g.want("a b c")
	restored, err := Restore(g.m.Snapshot())
	if err != nil || !slices.Equal(restored.Leaving(), []queue.MessageID{1, 2}) || restored.Hash() != g.m.Hash() {
		t.Fatalf("restored %v: %v", restored.Leaving(), err)
	}
	g.m = restored
	res := g.apply(Route{Items: []Routed{{Item: 2, NoRoute: Stay}, {Item: 1, NoRoute: Stay}}})
	equalList(t, "freed", res.Freed, []queue.IDRange{{First: 2, Last: 2}, {First: 1, Last: 1}})
	equal(t, "deaths", g.m.Counters().Died[dlx.Expired], 0)
	equal(t, "stayed", g.m.Counters().Stayed, 2)
	equal(t, "outbox", g.m.Outbox().Len(), 0)
	if m, _ := g.m.Queue().Get(2); m.Attempt != 1 || m.Failed != 1 || m.ExpiresAt != 0 {
		t.Fatalf("%+v", m)
	}
	if restored, err = Restore(g.m.Snapshot()); err != nil || restored.Hash() != g.m.Hash() {
		t.Fatal(err)
	}
	g.m = restored
	g.time += 1000
	g.apply(Expire{[]queue.IDRange{{First: 1, Last: 2}}})
	equal(t, "undecided", g.m.UndecidedLen(), 0)
	g.apply(g.run(Settle{Kind: Discard, Runs: []Run{{1, 1, 0}}}))
	g.want("b c")
	equalList(t, "reasons", g.reasons(), []dlx.Reason{dlx.Rejected})
}

// A message that goes after all leaves its place, and counts as dead, only then.
func TestExpiredMessagesThatDoNotStay(t *testing.T) {
	for name, c := range map[string]struct {
		route   Routed
		outbox  int
		dropped uint64
	}{
		"routed":   {to(1, 7), 2, 0},
		"dropped":  {Routed{Item: 1, NoRoute: DropUnrouted}, 1, 1},
		"unrouted": {Routed{Item: 1, NoRoute: ParkUnrouted}, 2, 0},
		"cycle":    {Routed{Item: 1, NoRoute: ParkCycle}, 2, 0},
	} {
		t.Run(name, func(t *testing.T) {
			g := stayRig(t)
			res := g.apply(Route{Items: []Routed{c.route}})
			equalList(t, "removed", res.Removed, ids(1))
			g.want("b c")
			equal(t, "deaths", g.m.Counters().Died[dlx.Expired], 1)
			equal(t, "of the result", res.Dead.Died[dlx.Expired], 1)
			equal(t, "outbox", g.m.Outbox().Len(), c.outbox)
			counters := g.m.Counters()
			equal(t, "dropped", counters.DroppedTotal(), c.dropped)
			equal(t, "undecided", g.m.UndecidedLen(), 1)
		})
	}
	t.Run("target gone", func(t *testing.T) {
		g := stayRig(t)
		g.apply(TargetGone{Target: 7}, Route{Items: []Routed{to(1, 7)}})
		equal(t, "undecided", g.m.UndecidedLen(), 2)
		g.want("a b c")
	})
	t.Run("left its place before", func(t *testing.T) {
		g := stayRig(t)
		g.apply(Route{Items: []Routed{to(1, 7)}}, TargetGone{Target: 7}, Route{Items: []Routed{{Item: 1, NoRoute: Stay}}})
		equal(t, "parked", g.m.Outbox().Parked(ParkCycle), 1)
		g.want("b c")
	})
	t.Run("closed", func(t *testing.T) {
		g := stayRig(t)
		g.apply(Close{})
		equal(t, "deaths", g.m.Counters().Died[dlx.Expired], 2)
		equal(t, "closed", g.m.Counters().Closed, 1)
		equal(t, "outbox", g.m.Outbox().Len(), 2)
		g.apply(Route{Items: []Routed{{Item: 1, NoRoute: Stay}, to(2, 7)}})
		equal(t, "parked", g.m.Outbox().Parked(ParkCycle), 1)
	})
}

// Of a queue whose time to live is not for dead letters only these are spared.
func TestDeadLettersKeep(t *testing.T) {
	g := newRig(t)
	g.settings(func(s *queue.Settings) { s.MessageTTLMillis, s.DeadLettersKeep = 10, true })
	dead, other, own := transfer("dead"), transfer("redriven"), transfer("own")
	dead.Dead, own.Dead, own.HasTTL, own.TTLMillis = true, true, true, 700
	g.apply(g.run(pub("published"), Tx{Ops: []Op{pub("tx")}}), TransferIn{Source: Source{5, 1}, First: 1, Items: []Transfer{dead, other, {Part: part(pub("part"))}, own}})
	var got []int64
	for m := range g.m.Queue().View().All {
		at := m.ExpiresAt
		if at > 0 {
			at -= g.m.Time()
		}
		got = append(got, at)
	}
	equalList(t, "times to live", got, []int64{10, 10, 0, 10, 10, 700})
}
