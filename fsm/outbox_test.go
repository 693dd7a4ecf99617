package fsm

import (
	"testing"

	"github.com/warrenmq/warren/dlx"
	"github.com/warrenmq/warren/queue"
)

// deadRig has the named messages in its outbox, as items 1, 2, ….
func deadRig(t testing.TB, bodies ...string) *rig {
	g := newRig(t)
	g.settings(deadLettering)
	g.publish(bodies...)
	g.apply(g.run(Settle{Kind: Discard, Runs: []Run{{1, uint32(len(bodies)), 0}}}))
	return g
}

func to(item OutboxID, targets ...uint64) Routed { return Routed{Item: item, Targets: targets} }

// pending lists the sequences and items under way to a target.
func (g *rig) pending(target uint64) (list [][2]uint64) {
	for _, p := range g.m.Outbox().Pending(target, 0, 100) {
		list = append(list, [2]uint64{p.Seq, uint64(p.Item)})
	}
	return list
}

func TestRoutesFreezeDenseSequences(t *testing.T) {
	g := deadRig(t, "a", "b", "c")
	g.apply(Route{Items: []Routed{to(2, 7, 8), to(1, 8, 8, 7), to(9, 7)}})
	equalList(t, "to 7", g.pending(7), [][2]uint64{{1, 2}, {2, 1}})
	equalList(t, "to 8", g.pending(8), [][2]uint64{{1, 2}, {2, 1}})
	g.apply(Route{Items: []Routed{to(2, 5), to(1, 5), to(3, 7)}})
	equalList(t, "routed items keep their routes", g.pending(5), nil)
	equalList(t, "to 7", g.pending(7), [][2]uint64{{1, 2}, {2, 1}, {3, 3}})
	equal(t, "next", g.m.Outbox().NextSeq(7), 4)
	equal(t, "next of nobody", g.m.Outbox().NextSeq(99), 1)
	p := g.m.Outbox().Pending(7, 1, 1)
	equal(t, "window", len(p) == 1 && p[0].Seq == 2 && p[0].Reason == dlx.Rejected && string(g.message(p[0].Ref).Body) == "a", true)
	equal(t, "unrouted", len(g.m.Outbox().Unrouted(10)), 0)
}

func TestTransferDoneDropsItemsWithoutAnotherTarget(t *testing.T) {
	g := deadRig(t, "a", "b", "c")
	g.apply(Route{Items: []Routed{to(1, 7, 8), to(2, 7), to(3, 7, 8)}})
	g.apply(TransferDone{Target: 7, UpTo: 2}, TransferDone{Target: 4, UpTo: 9})
	equalList(t, "dead", g.dead(), []string{"a", "c"})
	g.apply(TransferDone{Target: 7, UpTo: 1}, TransferDone{Target: 8, UpTo: 1})
	equalList(t, "dead", g.dead(), []string{"c"})
	g.apply(TransferDone{Target: 7, UpTo: 1 << 50}, TransferDone{Target: 8, UpTo: 2})
	equalList(t, "dead", g.dead(), nil)
	equal(t, "moved", g.m.Counters().Moved, 3)
	equal(t, "sequences live on", g.m.Outbox().NextSeq(7), 4)
	equalList(t, "pins", g.m.Pins(), nil)
}

func TestTargetGone(t *testing.T) {
	g := deadRig(t, "taken", "alone", "other", "both")
	g.apply(Route{Items: []Routed{to(1, 7), to(2, 7), to(3, 7, 8), to(4, 7, 8)}}, TransferDone{Target: 8, UpTo: 1})
	g.apply(TargetGone{Target: 7, Watermark: 1})
	// Item 3 has been taken by 8 and is done; item 4 still waits for 8.
	equalList(t, "dead", g.dead(), []string{"alone", "both"})
	u := g.m.Outbox().Unrouted(10)
	equal(t, "unrouted", len(u) == 1 && u[0].ID == 2, true)
	equalList(t, "to 8", g.pending(8), [][2]uint64{{2, 4}})
	// A leader with an old catalog names the target once more.
	g.apply(Route{Items: []Routed{to(2, 7)}})
	equal(t, "still unrouted", len(g.m.Outbox().Unrouted(10)), 1)
	g.apply(Route{Items: []Routed{to(2, 7, 9)}}, TransferDone{Target: 8, UpTo: 2}, TransferDone{Target: 9, UpTo: 1})
	equal(t, "outbox", g.m.Outbox().Len(), 0)
	equal(t, "moved", g.m.Counters().Moved, 4)
	// Forgetting the target needs routes of a catalog that no longer has it.
	g.rev = 20
	g.apply(ForgetSources{[]Source{{Queue: 7}}})
	g.publish("more")
	g.apply(g.run(Settle{Kind: Discard, Runs: []Run{{5, 1, 0}}}))
	g.entry(Entry{CatalogRev: 19, Commands: []Command{Route{Items: []Routed{to(5, 7)}}}})
	equal(t, "route of an old catalog", len(g.m.Outbox().Unrouted(10)), 1)
	g.entry(Entry{CatalogRev: 19, Commands: []Command{Route{Items: []Routed{to(5, 8)}}}})
	equalList(t, "known target, old catalog", g.pending(8), [][2]uint64{{3, 5}})
}

// An epoch of a living queue is forgotten as a source; as a target its sequence
// goes on.
func TestForgetSourcesKeepsSequencesOfLivingTargets(t *testing.T) {
	g := deadRig(t, "a", "b")
	g.apply(Route{Items: []Routed{to(1, 7)}}, TransferDone{Target: 7, UpTo: 1}, ForgetSources{[]Source{{Queue: 7, Epoch: 1}}}, Route{Items: []Routed{to(2, 7)}})
	equalList(t, "to 7", g.pending(7), [][2]uint64{{2, 2}})
}

// Sequences up to the final watermark count as taken only if they were given.
func TestTargetGoneBeyondItsSequences(t *testing.T) {
	g := deadRig(t, "a")
	g.apply(TargetGone{Target: 7, Watermark: 100})
	g.apply(Route{Items: []Routed{to(1, 7)}})
	equal(t, "unrouted", len(g.m.Outbox().Unrouted(10)), 1)
}

func TestNowhereToGo(t *testing.T) {
	g := deadRig(t, "a", "b", "c", "d", "e", "f")
	no := func(item OutboxID, n NoRoute) Routed { return Routed{Item: item, NoRoute: n} }
	res := g.apply(Route{Items: []Routed{no(6, HasTargets)}}, TransferDone{Target: 7, UpTo: 9})
	equal(t, "changed by nothing", res.OutboxChanged, false)
	res = g.apply(Route{Items: []Routed{no(1, DropDisabled), no(2, DropUnrouted), no(3, DropCycle), no(4, ParkUnrouted), no(5, ParkCycle), no(6, HasTargets), no(1, DropCycle)}})
	equalList(t, "dropped", res.Dropped, []Dropped{{dlx.Rejected, DropDisabled, 1}, {dlx.Rejected, DropUnrouted, 1}, {dlx.Rejected, DropCycle, 1}})
	equal(t, "parked", g.m.Outbox().Parked(ParkUnrouted), 1)
	equal(t, "parked cycles", g.m.Outbox().Parked(ParkCycle), 1)
	equal(t, "undecided", len(g.m.Outbox().Unrouted(9)), 1)
	g.apply(Route{Items: []Routed{to(4, 7), no(5, DropCycle)}})
	equalList(t, "parked items are not routed", g.pending(7), nil)
	res = g.apply(Release{DropCycle})
	equal(t, "nothing released", res.OutboxChanged, false)
	g.apply(Release{ParkUnrouted})
	equal(t, "released", len(g.m.Outbox().Unrouted(9)), 2)
	g.apply(Release{ParkCycle}, Route{Items: []Routed{to(4, 7), to(5, 7), to(6, 7)}})
	equalList(t, "to 7", g.pending(7), [][2]uint64{{1, 4}, {2, 5}, {3, 6}})
}

func TestRoutedItemsSurviveWhateverHappensToTheQueue(t *testing.T) {
	g := deadRig(t, "a")
	g.publish("b")
	g.apply(Route{Items: []Routed{to(1, 7)}})
	g.settings(func(s *queue.Settings) { s.DeadLetter = false })
	g.apply(g.run(Purge{UpTo: 100}), Close{})
	equalList(t, "to 7", g.pending(7), [][2]uint64{{1, 1}})
	equalList(t, "pins", g.m.Pins(), []IndexRange{{2, 2}})
}

func TestReclaimable(t *testing.T) {
	g := newRig(t)
	g.settings(deadLettering)
	big := string(make([]byte, 1000))
	g.publish(big, big, big)
	if r := g.m.Reclaimable(); r <= 0 || r > 200 {
		t.Fatalf("%d bytes reclaimable with everything live", r)
	}
	encode := g.m.Capture()
	equal(t, "after the capture", g.m.Reclaimable(), 0)
	g.apply(g.run(Settle{Kind: Ack, Runs: []Run{{1, 1, 0}}}), Return{Discard, []Run{{2, 2, 0}}})
	if r := g.m.Reclaimable(); r < 1000 || r > 1200 {
		t.Fatalf("%d bytes reclaimable with one of three gone", r)
	}
	g.apply(Route{Items: []Routed{to(1, 7), {Item: 2, NoRoute: DropCycle}}}, TransferDone{Target: 7, UpTo: 1})
	if r := g.m.Reclaimable(); r < 3000 || r > 3300 {
		t.Fatalf("%d bytes reclaimable with all gone", r)
	}
	_, pins := encode()
	equalList(t, "pins of the capture", pins, []IndexRange{{2, 2}})
}
