package fsm

import (
	"errors"
	"testing"

	"github.com/warrenmq/warren/dlx"
	"github.com/warrenmq/warren/queue"
)

// planRig has the named messages, none dead.
func planRig(t *testing.T, bodies ...string) *rig {
	g := newRig(t)
	g.settings(func(s *queue.Settings) { deadLettering(s); s.DeliveryLimit = 0 })
	g.publish(bodies...)
	return g
}

// plan is one for the present settings.
func (g *rig) plan(targets ...uint64) Plan {
	return Plan{Settings: g.m.SettingsRevision(), Automatic: true, Targets: targets}
}

func discard(id queue.MessageID) Return { return Return{Discard, []Run{{id, 1, 0}}} }

// routed lists the items that have targets.
func (g *rig) routed() (list []OutboxID) {
	for it := range g.m.Outbox().View().All {
		if it.State == dlx.Routed {
			list = append(list, it.ID)
		}
	}
	return list
}

func TestPlanGivesTargetsAtOnce(t *testing.T) {
	g := planRig(t, "a", "b", "c", "d")
	res := g.apply(g.plan(7, 8), discard(2), discard(1))
	equal(t, "changed", res.OutboxChanged, true)
	equalList(t, "to 7, in the order of the deaths", g.pending(7), [][2]uint64{{1, 1}, {2, 2}})
	equalList(t, "to 8", g.pending(8), [][2]uint64{{1, 1}, {2, 2}})
	g.apply(discard(3))
	equal(t, "it is its entry's alone", len(g.m.Outbox().Unrouted(9)), 1)
	g.apply(Route{Items: []Routed{to(3, 7)}}, TransferDone{Target: 7, UpTo: 3}, TransferDone{Target: 8, UpTo: 2})
	equal(t, "moved", g.m.Counters().Moved, 3)
	g.apply(discard(4), g.plan(7))
	equalList(t, "before the plan, and given targets by it", g.pending(7), [][2]uint64{{4, 4}})
	r, err := Restore(g.m.Snapshot())
	if err != nil {
		t.Fatal(err)
	}
	g.m = r
	g.publish("e")
	g.apply(g.plan(7), discard(5))
	equalList(t, "after a restart", g.pending(7), [][2]uint64{{4, 4}, {5, 5}})
}

// Every kind of death: planned ones need no look at the message.
func TestPlanIsForDeathsWithoutACycle(t *testing.T) {
	g := planRig(t, "a", "b", "c", "d", "e", "f", "g", "h")
	die := func(p Plan, c Command) bool {
		t.Helper()
		before, item := len(g.routed()), g.m.Outbox().Last()+1
		g.apply(p, c)
		equal(t, "died", g.m.Outbox().Last(), item)
		g.apply(Route{Items: []Routed{to(item, 9)}})
		planned := len(g.pending(9)) == 0
		g.apply(TransferDone{Target: 9, UpTo: 99}, TransferDone{Target: 7, UpTo: 99})
		equal(t, "left", len(g.routed()), before)
		return planned
	}
	failed := func(id queue.MessageID) Return { return Return{RequeueFailed, []Run{{id, 1, 0}}} }
	back := g.plan(7)
	back.Automatic = false
	equal(t, "delivery limit", die(g.plan(7), failed(1)), true)
	equal(t, "maxlen", die(g.plan(7), DropHeads{ids(2)}), true)
	equal(t, "rejected, one target is the queue", die(back, discard(3)), true)
	equal(t, "maxlen, one target is the queue", die(back, DropHeads{ids(4)}), false)
	// What came from another queue may have been anywhere.
	g.apply(TransferIn{Source{5, 1}, 1, 0, []Transfer{transfer("t")}})
	equal(t, "maxlen of what may have died before", die(g.plan(7), DropHeads{ids(5)}), false)
	equal(t, "delivery limit of such", die(g.plan(7), failed(6)), false)
	equal(t, "rejected", die(g.plan(7), discard(7)), true)
	g.settings(func(s *queue.Settings) { s.DeadLetterOnRemoval = true })
	g.apply(Close{})
	equal(t, "queue removed", die(g.plan(7), Bury{8}), false)
}

// Expired messages that might stay where they are go by a plan too: it is for such as have
// not died before.
func TestPlanForMessagesThatMayStay(t *testing.T) {
	g := newRig(t)
	g.settings(func(s *queue.Settings) { deadLettering(s); s.StopTTL, s.MessageTTLMillis = true, 0 })
	g.publish("a", "b", "c")
	g.time = 5
	g.apply(Expire{ids(1)})
	g.want("a b c") // one is not decided on
	g.apply(g.plan(7), Expire{ids(2)})
	g.want("c")
	equalList(t, "to 7", g.pending(7), [][2]uint64{{1, 1}, {2, 2}})
	equal(t, "died", g.m.Counters().Died[dlx.Expired], 2)
	back := g.plan(7)
	back.Automatic = false
	g.apply(back, Expire{ids(3)})
	g.want("c")
}

// A plan that is not right any more is passed over, and the letter waits for a Route.
func TestStalePlans(t *testing.T) {
	t.Run("settings", func(t *testing.T) {
		g := planRig(t, "a", "b")
		p := g.plan(7)
		g.settings(func(s *queue.Settings) { s.DeadLetterRoutingKey, s.DeadLetterKeySet = "k", true })
		g.apply(p, discard(1))
		equalList(t, "made under other settings", g.routed(), nil)
		s := g.m.Settings()
		s.DeadLetterRoutingKey = "other"
		g.apply(Route{Items: []Routed{to(1, 7)}})
		g.apply(TransferDone{Target: 7, UpTo: 1})
		g.apply(g.plan(7), SetSettings{Revision: g.m.SettingsRevision() + 1, Settings: s, Name: "q", VHost: "/"}, discard(2))
		equalList(t, "which change in the same entry", g.routed(), nil)
	})
	t.Run("settings behind it", func(t *testing.T) {
		g := planRig(t, "a", "b", "c")
		s := g.m.Settings()
		s.DeadLetterRoutingKey, s.DeadLetterKeySet = "k", true
		g.apply(discard(1))
		g.apply(g.plan(7), discard(2), SetSettings{Revision: g.m.SettingsRevision() + 1, Settings: s, Name: "q", VHost: "/"}, discard(3))
		equalList(t, "the older ones go by the plan", g.pending(7), [][2]uint64{{1, 1}, {2, 2}})
		_, upTo := g.m.Outbox().Progress(7)
		equal(t, "called back up to", upTo, 2)
		equal(t, "wait", len(g.m.Outbox().Unrouted(9)), 1)
		g.apply(g.plan(8))
		equalList(t, "in order", g.pending(8), nil)
		g.apply(TransferDone{7, 2, []uint64{1, 2}})
		g.apply(g.plan(8))
		equalList(t, "all go the new way", g.pending(8), [][2]uint64{{1, 1}, {2, 2}, {3, 3}})
	})
	t.Run("no dead-lettering", func(t *testing.T) {
		g := planRig(t, "a")
		g.settings(func(s *queue.Settings) { s.DeadLetter = false })
		g.apply(g.plan(7), discard(1))
		equal(t, "outbox", g.m.Outbox().Len(), 0)
		equal(t, "dropped", g.m.Counters().Dropped[dlx.Rejected][DropDisabled], 1)
	})
	t.Run("catalog", func(t *testing.T) {
		g := planRig(t, "a", "b")
		g.rev = 20
		g.apply()
		g.entry(Entry{CatalogRev: 19, Commands: []Command{g.plan(7), discard(1)}})
		equalList(t, "a catalog older than a former leader's", g.routed(), nil)
		g.apply(g.plan(7), discard(2))
		equalList(t, "the newest, also for the one before", g.pending(7), [][2]uint64{{1, 1}, {2, 2}})
	})
	t.Run("clean-up", func(t *testing.T) {
		g := planRig(t, "a")
		g.apply(TargetGone{Target: 7, Watermark: 4})
		g.rev = 20
		g.apply(ForgetSources{[]Source{{Queue: 7}}})
		g.entry(Entry{CatalogRev: 19, Commands: []Command{g.plan(7), discard(1)}})
		equalList(t, "a target that was forgotten", g.routed(), nil)
	})
	t.Run("closed target", func(t *testing.T) {
		g := planRig(t, "a", "b")
		g.apply(g.plan(7, 8), discard(1))
		g.apply(TargetGone{Target: 7}, TargetGone{Target: 8})
		equal(t, "decided on again", len(g.m.Outbox().Unrouted(9)), 1)
		g.apply(g.plan(7, 9), discard(2))
		equal(t, "both wait", len(g.m.Outbox().Unrouted(9)), 2)
		g.apply(g.plan(9))
		equalList(t, "in order", g.pending(9), [][2]uint64{{1, 1}, {2, 2}})
	})
	t.Run("closed queue", func(t *testing.T) {
		g := planRig(t, "a")
		g.settings(func(s *queue.Settings) { s.DeadLetterOnRemoval = true })
		g.apply(Close{})
		g.apply(g.plan(7), discard(1))
		equalList(t, "routed", g.routed(), nil)
	})
}

// Letters stay in the order of their deaths: a plan gives no targets to one behind others
// that have to wait.
func TestPlanKeepsTheOrder(t *testing.T) {
	waits := func(t *testing.T, g *rig, id queue.MessageID) {
		t.Helper()
		item := g.m.Outbox().Last() + 1
		g.apply(g.plan(7), discard(id))
		it, _ := g.m.Outbox().Item(item)
		equal(t, "state of the younger", it.State, dlx.Unrouted)
	}
	t.Run("behind one that has to be looked at", func(t *testing.T) {
		g := planRig(t, "a", "b", "c", "d")
		back := g.plan(7)
		back.Automatic = false
		g.apply(back, DropHeads{ids(1)}, discard(2))
		equalList(t, "routed", g.routed(), nil)
		g.apply(Route{Items: []Routed{to(1, 7)}})
		g.apply(back, discard(3))
		equalList(t, "to 7", g.pending(7), [][2]uint64{{1, 1}, {2, 2}, {3, 3}})
	})
	t.Run("behind one without a way", func(t *testing.T) {
		g := planRig(t, "a", "b", "c")
		g.apply(discard(1))
		g.apply(Route{Items: []Routed{{Item: 1, NoRoute: ParkUnrouted}}})
		waits(t, g, 2)
		g.apply(Release{ParkUnrouted})
		g.apply(g.plan(7), discard(3))
		equalList(t, "to 7", g.pending(7), [][2]uint64{{1, 1}, {2, 2}, {3, 3}})
	})
	t.Run("a cycle holds up nobody", func(t *testing.T) {
		g := planRig(t, "a", "b")
		g.apply(discard(1))
		g.apply(Route{Items: []Routed{{Item: 1, NoRoute: ParkCycle}}})
		g.apply(g.plan(7), discard(2))
		equalList(t, "to 7", g.pending(7), [][2]uint64{{1, 2}})
	})
	t.Run("behind one that is called back", func(t *testing.T) {
		g := planRig(t, "a", "b", "c")
		g.apply(g.plan(6), discard(1))
		g.apply(Withdraw{6, 9})
		waits(t, g, 2)
		g.apply(TransferDone{6, 1, []uint64{1}})
		g.apply(g.plan(7), discard(3))
		equalList(t, "to 7", g.pending(7), [][2]uint64{{1, 1}, {2, 2}, {3, 3}})
	})
	t.Run("behind one that is called back, after a restart", func(t *testing.T) {
		g := planRig(t, "a", "b")
		g.apply(g.plan(6), discard(1))
		g.apply(Withdraw{6, 9})
		r, err := Restore(g.m.Snapshot())
		if err != nil {
			t.Fatal(err)
		}
		g.m = r
		waits(t, g, 2)
		g.apply(TargetGone{6, 1, []uint64{1}})
		equal(t, "both wait", len(g.m.Outbox().Unrouted(9)), 2)
	})
	t.Run("behind one that a target has", func(t *testing.T) {
		g := planRig(t, "a", "b")
		g.apply(g.plan(6, 7), discard(1))
		g.apply(Withdraw{6, 9}, TransferDone{Target: 7, UpTo: 1}, TransferDone{6, 1, []uint64{1}})
		equal(t, "waits", len(g.m.Outbox().Unrouted(9)), 1)
		waits(t, g, 2) // somebody has to look what is left of it
	})
}

func TestPlanDecodes(t *testing.T) {
	for name, p := range map[string]Plan{
		"no settings": {Targets: []uint64{1}},
		"no targets":  {Settings: 1},
		"many":        {Settings: 1, Targets: make([]uint64, PlanTargetsMax+1)},
		"repeated":    {Settings: 1, Targets: []uint64{3, 3}},
	} {
		for i := range p.Targets {
			if name == "many" {
				p.Targets[i] = uint64(i + 1)
			}
		}
		if _, err := DecodeEntry(EncodeEntry(nil, &Entry{Commands: []Command{p}})); !errors.Is(err, ErrMalformed) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
