package fsm

import (
	"testing"

	"github.com/warrenmq/warren/queue"
)

func TestStreamRepeatsGapsAndStaleIncarnations(t *testing.T) {
	g := newRig(t)
	full := pub("full")
	full.Verdict = RefuseFull
	run := func(incarnation, first, answered uint64, ops ...Op) StreamResult {
		t.Helper()
		return g.apply(Stream{Origin{4, incarnation}, first, answered, ops}).Streams[0]
	}
	r := run(2, 1, 0, pub("a"), full, pub("b"))
	equal(t, "watermark", r.UpTo, 3)
	equalList(t, "outcomes", r.Outcomes, []Outcome{{2, RefusedFull, 0}})

	r = run(2, 2, 0, pub("again"), pub("again"), pub("c"), full)
	equal(t, "watermark after a repeat", r.UpTo, 5)
	equalList(t, "outcomes of a repeat", r.Outcomes, []Outcome{{2, RefusedFull, 0}, {5, RefusedFull, 0}})
	g.want("a b c")

	r = run(2, 7, 0, pub("gap"))
	equal(t, "gap", r.Gap && r.UpTo == 5 && len(r.Outcomes) == 0, true)
	r = run(1, 1, 0, pub("stale"))
	equal(t, "stale", r.Stale && r.UpTo == 0, true)
	r = run(2, 0, 0, pub("zero"))
	equal(t, "sequence 0", r.Gap, true)
	r = run(2, 5, 2, full)
	equalList(t, "outcome in the run", r.Outcomes, []Outcome{{5, RefusedFull, 0}})
	equalList(t, "recorded", g.m.Recorded(Origin{4, 2}, 0), []Outcome{{5, RefusedFull, 0}})
	equalList(t, "recorded above", g.m.Recorded(Origin{4, 2}, 5), nil)
	equalList(t, "recorded of another", g.m.Recorded(Origin{4, 1}, 0), nil)

	r = run(3, 1, 0, pub("d"))
	equal(t, "newer incarnation", r.UpTo, 1)
	equalList(t, "its record is new", g.m.Recorded(Origin{4, 3}, 0), nil)
	r = run(2, 6, 0, pub("late"))
	equal(t, "older incarnation", r.Stale, true)
	o, seq, ok := g.m.Watermark(4)
	equal(t, "origin", o, Origin{4, 3})
	equal(t, "watermark", seq, 1)
	equal(t, "known", ok, true)
	if _, _, ok = g.m.Watermark(5); ok {
		t.Fatal("unknown node has a watermark")
	}
	g.want("a b c d")
}

// What an origin claims to have seen beyond the watermark is not believed.
func TestAnsweredIsBoundedByTheWatermark(t *testing.T) {
	g := newRig(t)
	full := pub("full")
	full.Verdict = RefuseFull
	g.apply(Stream{Origin{1, 1}, 1, 1 << 60, []Op{full, full}})
	equal(t, "recorded", len(g.m.Recorded(Origin{1, 1}, 0)), 2)
	g.apply(Stream{Origin{1, 1}, 3, 1 << 60, nil})
	equal(t, "recorded", len(g.m.Recorded(Origin{1, 1}, 0)), 0)
	g.apply(Stream{Origin{1, 1}, 3, 0, []Op{full}})
	equal(t, "recorded", len(g.m.Recorded(Origin{1, 1}, 0)), 1)
}

func TestTransfersAreTakenOnce(t *testing.T) {
	g := newRig(t)
	g.settings(func(s *queue.Settings) { s.MessageTTLMillis, s.MaxLength, s.Overflow = 50, 0, queue.RejectPublish })
	s := Source{9, 1}
	in := func(first uint64, items ...Transfer) TransferResult {
		t.Helper()
		return g.apply(TransferIn{Source: s, First: first, Items: items}).Transfers[0]
	}
	g.time = 1000
	equal(t, "watermark", in(1, transfer("a"), transfer("b")).UpTo, 2)
	equal(t, "repeat", in(1, transfer("a"), transfer("b"), transfer("c")).UpTo, 3)
	r := in(5, transfer("e"))
	equal(t, "gap", r.Gap && r.UpTo == 3, true)
	g.want("a b c")
	m, _ := g.m.Queue().Get(1)
	equal(t, "the queue's time to live applies afresh", m.ExpiresAt, 1050)
	seq, ok := g.m.SourceWatermark(s)
	equal(t, "watermark", seq, 3)
	equal(t, "known", ok, true)
	equal(t, "another epoch is another source", g.apply(TransferIn{Source: Source{9, 2}, First: 1, Items: []Transfer{transfer("x")}}).Transfers[0].UpTo, 1)
}

func TestWithdrawals(t *testing.T) {
	g := newRig(t)
	s := Source{9, 1}
	in := func(first, answered uint64, items ...Transfer) TransferResult {
		t.Helper()
		return g.apply(TransferIn{s, first, answered, items}).Transfers[0]
	}
	w := Transfer{Withdrawn: true}
	in(1, 0, transfer("a"), transfer("b"))
	r := in(2, 0, w, w, w)
	equal(t, "watermark", r.UpTo, 4)
	equalList(t, "withdrawn", r.Withdrawn, []uint64{3, 4})
	r = in(3, 0, w, w, transfer("e"))
	equalList(t, "withdrawn stays withdrawn", r.Withdrawn, []uint64{3, 4})
	r = in(3, 0, transfer("late"), transfer("later"))
	equalList(t, "a repeat says so", r.Withdrawn, []uint64{3, 4})
	g.want("a b e")
	equalList(t, "after forgetting", in(6, 3, w).Withdrawn, []uint64{4, 6})
	equalList(t, "behind a gap", in(9, 3, w).Withdrawn, []uint64{4, 6})
	g.apply(Close{})
	equalList(t, "after the end", in(7, 0, w).Withdrawn, []uint64{4, 6})
}

func TestUnknownSourceNeedsANewCatalog(t *testing.T) {
	g := newRig(t)
	g.rev = 10
	s, keep := Source{9, 1}, Source{8, 1}
	in := func(s Source, rev uint64) TransferResult {
		t.Helper()
		seq := uint64(1)
		if w, ok := g.m.SourceWatermark(s); ok {
			seq = w + 1
		}
		return g.entry(Entry{CatalogRev: rev, Commands: []Command{TransferIn{Source: s, First: seq, Items: []Transfer{transfer("m")}}}}).Transfers[0]
	}
	in(s, 10)
	in(keep, 10)
	g.entry(Entry{CatalogRev: 12, Commands: []Command{ForgetSources{[]Source{s}}}})
	r := in(s, 11)
	equal(t, "late transfer of a forgotten source", r.Unknown && r.UpTo == 0, true)
	equal(t, "known source, old catalog", in(keep, 11).UpTo, 2)
	equal(t, "new catalog", in(s, 12).UpTo, 1)
	var list []Source
	for s := range g.m.Sources() {
		list = append(list, s)
	}
	equalList(t, "sources", list, []Source{keep, s})
}

// What a deposed leader got into the log behind its successor's first entry does nothing:
// it decided on consumers that it did not know any more.
func TestEntriesOfDeposedLeadersDoNothing(t *testing.T) {
	m := New()
	entry := func(session uint64, c Command) []byte {
		return EncodeEntry(nil, &Entry{Session: session, Ordinal: 1, TimeMillis: int64(session), Commands: []Command{c}})
	}
	o := Origin{1, 1}
	m.Apply(1, entry(2, Stream{Origin: o, First: 1, Ops: []Op{pub("a")}}))
	m.Apply(2, entry(3, Consumed{}))
	before := m.Time()
	for index, c := range []Command{
		Stream{Origin: o, First: 2, Ops: []Op{pub("b")}}, DropHeads{ids(1)}, TransferIn{Source: Source{9, 0}, First: 1, Items: []Transfer{transfer("t")}},
	} {
		res := m.Apply(uint64(3+index), entry(2, c))
		if m.Queue().Len() != 1 || len(res.Streams)+len(res.Transfers)+len(res.Removed) > 0 || res.Session != 2 {
			t.Fatalf("%T: %d messages, result %+v", c, m.Queue().Len(), res)
		}
	}
	if _, seq, _ := m.Watermark(1); seq != 1 || m.Time() != before || m.Index() != 5 {
		t.Errorf("watermark %d, time %d, index %d", seq, m.Time(), m.Index())
	}
	restored, err := Restore(m.Snapshot())
	if err != nil {
		t.Fatal(err)
	}
	if restored.Apply(6, entry(2, DropHeads{ids(1)})); restored.Queue().Len() != 1 {
		t.Error("a restored replica forgets the session")
	}
	if restored.Apply(7, entry(3, DropHeads{ids(1)})); restored.Queue().Len() != 0 {
		t.Error("the leader's own entry does nothing")
	}
}
