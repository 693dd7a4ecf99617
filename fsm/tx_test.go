package fsm

import (
	"reflect"
	"slices"
	"testing"

	"github.com/warrenmq/warren/dlx"
)

func (g *rig) items() (list []dlx.Item) {
	g.m.Outbox().View().All(func(it dlx.Item) bool { list = append(list, it); return true })
	return list
}

func (g *rig) part(it dlx.Item) Op {
	g.t.Helper()
	op, err := DecodePart(g.log[it.Ref.Index][it.Ref.Offset : it.Ref.Offset+it.Ref.Length])
	if err != nil {
		g.t.Fatal(err)
	}
	return op
}

func TestTxIsAppliedWhole(t *testing.T) {
	g := newRig(t)
	g.publish("a", "b", "c")
	far, ack := pub("far"), Settle{Kind: Ack, Runs: []Run{{4, 2, 1}}}
	res := g.apply(g.run(Tx{
		Ops:   []Op{pub("d"), Settle{Kind: Ack, Runs: []Run{{1, 1, 0}}}, Settle{Kind: RequeueCounted, Runs: []Run{{2, 1, 0}}}},
		Parts: []TxPart{{[]uint64{7, 8}, part(far)}, {[]uint64{8}, part(ack)}},
	}))
	g.want("b c d")
	equalList(t, "outcome", res.Streams[0].Outcomes, []Outcome{{4, Relayed, 2}})
	equalList(t, "removed", res.Removed, ids(1))
	equalList(t, "returned", res.Returned, ids(2))
	items := g.items()
	equal(t, "items", len(items), 2)
	equalList(t, "legs", items[0].Legs, []dlx.Leg{{Target: 7, Seq: 1}, {Target: 8, Seq: 1}})
	equalList(t, "legs", items[1].Legs, []dlx.Leg{{Target: 8, Seq: 2}})
	if got := []Op{g.part(items[0]), g.part(items[1])}; !reflect.DeepEqual(got, []Op{far, ack}) {
		t.Fatalf("parts %+v", got)
	}
	again := g.apply(Stream{Origin: Origin{1, 1}, First: 4, Ops: []Op{Tx{Ops: []Op{pub("e")}}}})
	equalList(t, "outcome of the repeat", again.Streams[0].Outcomes, []Outcome{{4, Relayed, 2}})
	g.want("b c d")
	g.apply(TransferDone{Target: 7, UpTo: 1}, TransferDone{Target: 8, UpTo: 2})
	equal(t, "items left", g.m.Outbox().Len(), 0)
}

func TestRefusedTxDoesNothing(t *testing.T) {
	for _, c := range []struct {
		verdict Verdict
		want    OutcomeKind
	}{{RefuseFull, RefusedFull}, {RefuseOutbox, RefusedOutbox}} {
		g := newRig(t)
		g.publish("a")
		res := g.apply(g.run(Tx{
			Verdict: c.verdict, Ops: []Op{pub("b"), Settle{Kind: Ack, Runs: []Run{{1, 1, 0}}}}, Parts: []TxPart{{[]uint64{7}, part(pub("far"))}},
		}))
		g.want("a")
		equalList(t, "outcome", res.Streams[0].Outcomes, []Outcome{{2, c.want, 0}})
		equal(t, "items", g.m.Outbox().Len(), 0)
	}
	g := newRig(t)
	g.apply(Close{})
	res := g.apply(g.run(Tx{Parts: []TxPart{{[]uint64{7}, part(pub("far"))}}}))
	equalList(t, "outcome of a closed queue", res.Streams[0].Outcomes, []Outcome{{1, Gone, 0}})
	equal(t, "items", g.m.Outbox().Len(), 0)
}

// A clean-up may have forgotten that a target is gone: an older catalog is not believed.
func TestTxByAnOldCatalog(t *testing.T) {
	g := newRig(t)
	g.rev = 9
	g.apply(ForgetSources{})
	g.rev = 8
	res := g.apply(g.run(Tx{Ops: []Op{pub("a")}, Parts: []TxPart{{[]uint64{7}, part(pub("far"))}}}))
	g.want("")
	equalList(t, "outcome", res.Streams[0].Outcomes, []Outcome{{1, RefusedCatalog, 0}})
}

func TestPartsIntoATarget(t *testing.T) {
	g := newRig(t)
	g.publish("a", "b", "c", "d")
	g.apply(Return{RequeueCounted, []Run{{1, 1, 0}, {3, 1, 0}, {4, 1, 0}}})
	p := pub("far")
	p.TTLMillis = 50
	in := TransferIn{Source{Queue: 5}, 1, 0, []Transfer{
		{Part: part(p)},
		{Part: part(Settle{Kind: Ack, Runs: []Run{{1, 2, 0}}})}, // 1 came back meanwhile
		{Part: part(Settle{Kind: Discard, Runs: []Run{{3, 1, 0}}})},
		{Part: part(Settle{Kind: RequeueCounted, Runs: []Run{{4, 1, 0}}})}, // has come back already
	}}
	res := g.apply(in)
	g.want("d far")
	equal(t, "watermark", res.Transfers[0].UpTo, 4)
	equal(t, "returned", len(res.Returned), 0)
	m, _ := g.m.Queue().Get(5)
	equal(t, "expiry", m.ExpiresAt, g.m.Time()+50)
	equal(t, "body", string(g.message(m.Ref).Body), "far")
	g.apply(in)
	g.want("d far")
}

// A part ends with the last of its targets, even if none has taken it.
func TestPartsOfClosedTargets(t *testing.T) {
	g := newRig(t)
	two := []TxPart{{[]uint64{7, 8}, part(pub("both"))}, {[]uint64{7}, part(pub("one"))}}
	g.apply(g.run(Tx{Parts: two}))
	g.apply(TargetGone{Target: 7, Watermark: 0})
	equal(t, "items left", g.m.Outbox().Len(), 1)
	g.apply(TargetGone{Target: 8, Watermark: 0})
	equal(t, "items left", g.m.Outbox().Len(), 0)
	res := g.apply(g.run(Tx{Ops: []Op{pub("a")}, Parts: two}))
	equal(t, "outcomes", len(res.Streams[0].Outcomes), 0)
	g.want("a")
	equal(t, "items", g.m.Outbox().Len(), 0)
	equal(t, "moved", g.m.Counters().Moved, 2)
}

func TestPartsSurviveAManifest(t *testing.T) {
	g := newRig(t)
	g.apply(g.run(Tx{Parts: []TxPart{{[]uint64{7}, part(pub("far"))}, {[]uint64{7}, part(Settle{Kind: Ack, Runs: []Run{{4, 2, 1}}})}}}))
	m, err := Restore(g.m.Snapshot())
	if err != nil {
		t.Fatal(err)
	}
	if got, want := slices.Collect(m.Outbox().View().All), g.items(); !reflect.DeepEqual(got, want) {
		t.Fatalf("restored %+v, want %+v", got, want)
	}
	equalList(t, "pins", m.Pins(), []IndexRange{{g.index, g.index}})
	equalList(t, "outcomes", m.Recorded(Origin{1, 1}, 0), []Outcome{{1, Relayed, 2}})
}

func TestPartsAreChecked(t *testing.T) {
	refused := pub("a")
	refused.Verdict = RefuseFull
	for name, b := range map[string][]byte{
		"nothing": nil, "purge": part(Purge{}), "refused publish": part(refused),
		"transaction": part(Tx{}), "more": append(part(Settle{}), 0), "less": part(pub("a"))[:5],
	} {
		if _, err := DecodePart(b); err == nil {
			t.Errorf("%s: accepted", name)
		}
		e := Entry{Commands: []Command{TransferIn{First: 1, Items: []Transfer{{Part: append([]byte{}, b...)}}}}}
		if _, err := DecodeEntry(EncodeEntry(nil, &e)); err == nil {
			t.Errorf("%s: accepted in an entry", name)
		}
	}
}
