package fsm

import (
	"bytes"
	"maps"
	"reflect"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/warrenmq/warren/dlx"
	"github.com/warrenmq/warren/queue"
)

// TestMachineAgreesWithModel drives a machine and the model with the same random
// entries, sensible and senseless ones, and compares everything that shows. Beside
// it a replica is restored from manifests again and again and must stay equal.
func TestMachineAgreesWithModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := &duel{t: t, m: New(), replica: New(), o: newModel(), now: 1000, rev: 5}
		for range rapid.IntRange(1, 40).Draw(t, "entries") {
			d.step()
		}
		d.replay()
	})
}

type duel struct {
	t          *rapid.T
	m, replica *Machine
	o          *model
	now        int64
	rev        uint64
	log        [][]byte
	settles    int // settlements made in transactions
	dead       DeadCounts
	// a capture of m that is encoded later, and what it must give
	encode func() ([]byte, []IndexRange)
	want   []byte
	pins   []IndexRange
}

func (d *duel) step() {
	d.now += int64(d.n(-3, 20, "clock"))
	d.rev = uint64(max(1, int(d.rev)+d.n(-1, 1, "revision")))
	e := Entry{
		Session: d.session(), Ordinal: uint64(len(d.log)), TimeMillis: d.now, CatalogRev: d.rev,
		Mark: queue.MessageID(d.n(0, 20, "mark")), MarkSelf: d.n(0, 1, "self") == 1,
	}
	if d.n(0, 2, "plan") > 0 {
		e.Commands = append(e.Commands, d.plan())
	}
	for range d.n(0, 4, "commands") {
		e.Commands = append(e.Commands, d.command())
	}
	data := EncodeEntry(nil, &e)
	d.log = append(d.log, data)
	index := uint64(len(d.log) * 2)
	res := d.m.Apply(index, data)
	if again := d.replica.Apply(index, data); !reflect.DeepEqual(res, again) {
		d.t.Fatalf("replicas give different results:\n%+v\n%+v", res, again)
	}
	d.o.entry(&e, refsOf(index, data))
	d.compare(&res)
	d.countDead(res.Dead)
	d.snapshots()
}

// countDead adds up what the results say of dead letters: it is what the machine counts.
func (d *duel) countDead(c *DeadCounts) {
	if c != nil {
		for i, n := range c.Died {
			d.dead.Died[i] += n
		}
		d.dead.Moved += c.Moved
		d.dead.Redriven += c.Redriven
		waited := uint64(0)
		for _, n := range c.Waited {
			waited += n
		}
		if waited != c.Moved {
			d.t.Fatalf("%d moved, %d classes of time", c.Moved, waited)
		}
	}
	want := d.m.Counters()
	if d.dead.Died != want.Died || d.dead.Redriven != want.Redriven || d.dead.Moved > want.Moved || d.dead.Moved+want.Relayed < want.Moved {
		d.t.Fatalf("results count %+v, the machine %+v", d.dead, want)
	}
}

// refsOf lists where the messages of an entry lie. Every message is unlike the
// bytes between messages, so that a search in order finds it.
func refsOf(index uint64, data []byte) (refs []queue.Ref) {
	e, err := DecodeEntry(data)
	if err != nil {
		panic(err)
	}
	pos := 0
	find := func(b []byte) {
		pos += bytes.Index(data[pos:], b)
		refs = append(refs, queue.Ref{Index: index, Offset: uint32(pos), Length: uint32(len(b))})
		pos += len(b)
	}
	for _, c := range e.Commands {
		switch c := c.(type) {
		case Stream:
			for _, op := range c.Ops {
				switch op := op.(type) {
				case Publish:
					find(op.Message)
				case Tx:
					for _, x := range op.Ops {
						if p, ok := x.(Publish); ok {
							find(p.Message)
						}
					}
					for _, p := range op.Parts {
						find(p.Part)
					}
				}
			}
		case TransferIn:
			for _, x := range c.Items {
				op, _ := DecodePart(x.Part)
				if p, ok := op.(Publish); ok {
					find(p.Message)
				} else if x.Part == nil && !x.Withdrawn {
					find(x.Message)
				}
			}
		}
	}
	return refs
}

func (d *duel) compare(res *Result) {
	t, m, o := d.t, d.m, d.o
	m.check()
	live, out := slices.Collect(m.Queue().View().All), slices.Collect(m.Outbox().View().All)
	if !slices.Equal(live, o.live) {
		t.Fatalf("live messages\n%+v, want\n%+v", live, o.live)
	}
	if len(out) != len(o.out) || len(out) > 0 && !reflect.DeepEqual(out, normal(o.out)) {
		t.Fatalf("outbox\n%+v, want\n%+v", out, o.out)
	}
	if m.Counters() != o.counters {
		t.Fatalf("counters\n%+v, want\n%+v", m.Counters(), o.counters)
	}
	got := []any{m.Time(), m.Mark(), m.Closed(), m.Queue().Tail(), m.Outbox().Last(), m.SettingsRevision(), m.Settings(), m.Tenure()}
	want := []any{o.time, o.mark, o.closed, o.tail, o.lastItem, o.rev, o.settings, o.tenure}
	if !reflect.DeepEqual(got, want) {
		t.Fatalf("state %v, want %v", got, want)
	}
	for node, s := range o.streams {
		origin, seq, _ := m.Watermark(node)
		recorded := slices.SortedFunc(maps.Values(s.outcomes), func(a, b Outcome) int { return int(a.Seq) - int(b.Seq) })
		if origin.Incarnation != s.incarnation || seq != s.watermark || !slices.Equal(m.Recorded(origin, 0), recorded) {
			t.Fatalf("node %d: %+v at %d with %v, want %+v", node, origin, seq, m.Recorded(origin, 0), s)
		}
	}
	for key, s := range o.sources {
		if seq, ok := m.SourceWatermark(key); !ok || seq != s.watermark {
			t.Fatalf("source %+v at %d, want %d", key, seq, s.watermark)
		}
	}
	for _, x := range m.Outbox().Targets() {
		if x.Withdraw != o.asked(x.Queue) {
			t.Fatalf("target %d withdraws up to %d, want %d", x.Queue, x.Withdraw, o.asked(x.Queue))
		}
	}
	for target, next := range o.next {
		if got := m.Outbox().NextSeq(target); got != next {
			t.Fatalf("next sequence of %d is %d, want %d", target, got, next)
		}
	}
	if removed := expand(res.Removed); !slices.Equal(removed, o.removed) {
		t.Fatalf("removed %v, want %v", removed, o.removed)
	}
	if returned := expand(res.Returned); !slices.Equal(returned, o.returned) {
		t.Fatalf("returned %v, want %v", returned, o.returned)
	}
	for i, x := range res.Transfers {
		if !slices.Equal(x.Withdrawn, o.transfers[i]) {
			t.Fatalf("withdrawn %v, want %v", x.Withdrawn, o.transfers[i])
		}
	}
	if freed := expand(res.Freed); !slices.Equal(freed, o.freed) {
		t.Fatalf("freed %v, want %v", freed, o.freed)
	}
	if !reflect.DeepEqual(m.Redriving(), o.redriving) || !slices.Equal(m.Leaving(), slices.Sorted(maps.Values(o.allAway()))) || m.UndecidedLen() != len(o.undecided) {
		t.Fatalf("redrive %+v, want %+v", m.Redriving(), o.redriving)
	}
	for i, s := range res.Streams {
		if !slices.Equal(s.Outcomes, o.outcomes[i]) {
			t.Fatalf("outcomes %v, want %v", s.Outcomes, o.outcomes[i])
		}
	}
	d.compareReading()
}

// compareReading compares delays, lanes, due order, pins and what is reclaimable.
func (d *duel) compareReading() {
	t, q := d.t, d.m.Queue()
	delays := map[queue.MessageID]int64{}
	for _, x := range d.m.Delays().All() {
		delays[x.ID] = x.Until
	}
	if !maps.Equal(delays, d.o.delays) {
		t.Fatalf("delays %v, want %v", delays, d.o.delays)
	}
	var due []queue.MessageID
	q.Due(d.now, func(m queue.Message) bool { due = append(due, m.ID); return true })
	if want := d.o.dueOrder(d.now); !slices.Equal(due, want) {
		t.Fatalf("due at %d: %v, want %v", d.now, due, want)
	}
	var lanes, want []queue.MessageID
	for p := range q.Priorities() {
		for m, ok := q.Next(p, 0); ok; m, ok = q.Next(p, m.ID) {
			lanes = append(lanes, m.ID)
		}
	}
	for p := 255; p >= 0; p-- {
		for _, m := range d.o.live {
			if int(m.Priority) == p {
				want = append(want, m.ID)
			}
		}
	}
	if !slices.Equal(lanes, want) {
		t.Fatalf("lanes %v, want %v", lanes, want)
	}
	pinned := map[uint64]bool{}
	for _, m := range d.o.live {
		pinned[m.Ref.Index] = true
	}
	for _, it := range d.o.out {
		pinned[it.Ref.Index] = true
	}
	var pins []IndexRange
	for _, index := range slices.Sorted(maps.Keys(pinned)) {
		pins = appendIndex(pins, index)
	}
	if !slices.Equal(d.m.Pins(), pins) {
		t.Fatalf("pins %v, want %v", d.m.Pins(), pins)
	}
}

// normal gives items without legs a nil slice, as the machine has it.
func normal(items []dlx.Item) []dlx.Item {
	items = slices.Clone(items)
	for i := range items {
		if len(items[i].Legs) == 0 {
			items[i].Legs = nil
		}
	}
	return items
}

func expand(ranges []queue.IDRange) (ids []queue.MessageID) {
	for _, r := range ranges {
		for id := r.First; id <= r.Last; id++ {
			ids = append(ids, id)
		}
	}
	return ids
}

// snapshots compares manifests, puts the replica through one, and lets captures
// wait while the machine goes on.
func (d *duel) snapshots() {
	shot := d.m.Snapshot()
	if !bytes.Equal(shot, d.replica.Snapshot()) || d.m.Hash() != d.replica.Hash() {
		d.t.Fatalf("replicas give different manifests")
	}
	if d.n(0, 3, "restore") == 0 {
		r, err := Restore(shot)
		if err != nil {
			d.t.Fatal(err)
		}
		r.check()
		if !bytes.Equal(r.Snapshot(), shot) {
			d.t.Fatalf("the manifest of the restored machine differs")
		}
		d.replica = r
	}
	switch {
	case d.encode == nil:
		d.want, d.pins, d.encode = shot, d.m.Pins(), d.m.Capture()
	case d.n(0, 2, "encode") == 0:
		got, pins := d.encode()
		if !bytes.Equal(got, d.want) || !slices.Equal(pins, d.pins) {
			d.t.Fatalf("a capture encoded later differs")
		}
		d.encode = nil
	}
}

// replay applies the whole log once more.
func (d *duel) replay() {
	m := New()
	for i, data := range d.log {
		m.Apply(uint64(i+1)*2, data)
	}
	if !bytes.Equal(m.Snapshot(), d.m.Snapshot()) {
		d.t.Fatalf("replay gives another state")
	}
}
