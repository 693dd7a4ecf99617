package fsm

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/warrenmq/warren/dlx"
	"github.com/warrenmq/warren/queue"
)

// TestSucceed begins a second life from what a replica has: nothing that refers to the queue's id stays, and everything else does.
func TestSucceed(t *testing.T) {
	g := deadRig(t, "a", "b", "c", "d")
	g.publish("e", "f")
	g.apply(Route{Items: []Routed{to(1, 7, 8), to(2, 7), to(3, 8)}}, TransferDone{Target: 7, UpTo: 1}, Withdraw{8, 1})
	g.apply(TransferIn{Source{5, 0}, 1, 0, []Transfer{transfer("t"), {Withdrawn: true}}}, TransferIn{Source{6, 0}, 1, 0, []Transfer{transfer("u")}})
	tail := g.m.Queue().Tail()
	equal(t, "letters sent again", g.m.Succeed(1), 3)
	g.want("e f t u")
	equalList(t, "dead", g.dead(), []string{"a", "b", "c", "d"})
	equalList(t, "to 7", g.pending(7), [][2]uint64{{1, 2}})
	equalList(t, "to 8", g.pending(8), [][2]uint64{{1, 1}, {2, 3}})
	done, back := g.m.Outbox().Progress(8)
	equal(t, "nothing is known to be taken by 8", done, 0)
	equal(t, "what was withdrawn still is", back, 1)
	if _, _, ok := g.m.Watermark(1); ok {
		t.Error("a node's stream goes on")
	}
	if _, ok := g.m.SourceWatermark(Source{5, 0}); ok {
		t.Error("a source's sequence goes on")
	}
	w, _ := g.m.SourceWatermark(Source{5, 1})
	equal(t, "what the former life took of 5", w, 2)
	equalList(t, "and what was withdrawn", g.m.Withdrawn(Source{5, 1}), []uint64{2})
	if g.m.Mark() < tail {
		t.Errorf("mark %d below %d: what was delivered is not redelivered", g.m.Mark(), tail)
	}
	res := g.publish("g")
	equal(t, "watermark", res.Streams[0].UpTo, 1)
	if id := res.Enqueued.First; id <= tail+1<<31 {
		t.Errorf("message id %d may be one of the former life, which had %d", id, tail)
	}
	// A third life knows of both.
	g.apply(TransferIn{Source{5, 0}, 1, 0, []Transfer{transfer("v")}})
	g.m.Succeed(2)
	for life, want := range map[uint32]uint64{1: 2, 2: 1} {
		w, _ := g.m.SourceWatermark(Source{5, life})
		equal(t, fmt.Sprintf("life %d took of 5", life), w, want)
	}
	again, err := Restore(g.m.Snapshot())
	if err != nil || again.Hash() != g.m.Hash() {
		t.Errorf("the manifest of a later life: %v", err)
	}
}

// TestTargetMoved sends what a former life of a target has not taken to the next one.
func TestTargetMoved(t *testing.T) {
	g := deadRig(t, "a", "b", "c", "d", "e")
	g.apply(Route{Items: []Routed{to(1, 7), to(2, 7, 8), to(3, 7), to(4, 7, 8)}}, Route{Items: []Routed{to(5, 9)}})
	g.apply(TargetMoved{Target: 7, Watermark: 2, Withdrawn: []uint64{2}, To: 9})
	equalList(t, "dead", g.dead(), []string{"b", "c", "d", "e"})
	equalList(t, "to 9", g.pending(9), [][2]uint64{{1, 5}, {2, 3}, {3, 4}})
	equalList(t, "to 8", g.pending(8), [][2]uint64{{1, 2}, {2, 4}})
	equal(t, "repeated", g.apply(TargetMoved{Target: 7, Watermark: 4, To: 9}).OutboxChanged, false)
	// Who does not know yet that 7 has moved names it: a decision, a transaction.
	g.publish("f")
	g.apply(g.run(Settle{Kind: Discard, Runs: []Run{{6, 1, 0}}}), Route{Items: []Routed{to(6, 7)}})
	g.apply(g.run(Tx{Parts: []TxPart{{[]uint64{7}, part(pub("g"))}, {[]uint64{7, 9}, part(pub("h"))}}}))
	equalList(t, "to 9", g.pending(9), [][2]uint64{{1, 5}, {2, 3}, {3, 4}, {4, 6}, {5, 7}, {6, 8}})
	// Parts of transactions move too, and a third life takes the letters for the first.
	g.apply(TargetMoved{Target: 9, Watermark: 4, To: 12})
	equalList(t, "to 12", g.pending(12), [][2]uint64{{1, 7}, {2, 8}})
	g.publish("i")
	g.apply(g.run(Settle{Kind: Discard, Runs: []Run{{7, 1, 0}}}), Route{Items: []Routed{to(9, 7)}})
	equalList(t, "to 12", g.pending(12), [][2]uint64{{1, 7}, {2, 8}, {3, 9}})
	m, err := Restore(g.m.Snapshot())
	if err != nil || !bytes.Equal(m.Snapshot(), g.m.Snapshot()) {
		t.Fatalf("the manifest with targets that moved: %v", err)
	}
	g.m = m
	g.apply(g.run(Tx{Parts: []TxPart{{[]uint64{9}, part(pub("j"))}}}))
	equalList(t, "to 12", g.pending(12), [][2]uint64{{1, 7}, {2, 8}, {3, 9}, {4, 10}})
}

// lived is a queue with its log, so that any earlier moment of it can be taken up again.
type lived struct {
	id     uint64
	lives  uint32
	base   []byte // manifest that the log stands on, nil for a new machine
	log    [][]byte
	m      *Machine
	ops    uint64 // of the one node's stream
	bodies map[[2]uint64]string
}

func newLived(id uint64) *lived { return &lived{id: id, m: New(), bodies: map[[2]uint64]string{}} }

func (q *lived) apply(cmds ...Command) {
	data := EncodeEntry(nil, &Entry{Session: 1, Ordinal: uint64(len(q.log)), TimeMillis: 1000, CatalogRev: 9, Commands: cmds})
	q.log = append(q.log, data)
	q.m.Apply(q.m.Index()+1, data)
	q.note(q.m.Index(), data)
}

// note keeps what refers to an entry, as the log of a new life does, in which the entry has its index still.
func (q *lived) note(index uint64, data []byte) {
	look := func(ref queue.Ref) {
		if ref.Index != index {
			return
		}
		raw := data[ref.Offset : ref.Offset+ref.Length]
		body := ""
		if op, err := DecodePart(raw); err == nil {
			raw = op.(Publish).Message
		}
		if m, err := DecodeMessage(raw); err == nil {
			body = string(m.Body)
		}
		q.bodies[[2]uint64{ref.Index, uint64(ref.Offset)}] = body
	}
	for x := range q.m.Queue().View().All {
		look(x.Ref)
	}
	q.m.Outbox().View().All(func(it dlx.Item) bool { look(it.Ref); return true })
}

func (q *lived) body(r queue.Ref) string { return q.bodies[[2]uint64{r.Index, uint64(r.Offset)}] }

// has counts the messages that the queue has, in its outbox or not.
func (q *lived) has() map[string]int {
	n := map[string]int{}
	for x := range q.m.Queue().View().All {
		n[q.body(x.Ref)]++
	}
	q.m.Outbox().View().All(func(it dlx.Item) bool { n[q.body(it.Ref)]++; return true })
	return n
}

// lose begins another life from the first keep entries of the log.
func (q *lived) lose(id uint64, keep int) (again uint64) {
	m := New()
	if q.base != nil {
		m, _ = Restore(q.base)
	}
	for _, data := range q.log[:keep] {
		m.Apply(m.Index()+1, data)
	}
	q.lives++
	again = m.Succeed(q.lives)
	q.m, q.base, q.log, q.id, q.ops = m, m.Snapshot(), nil, id, 0
	q.m, _ = Restore(q.base)
	return again
}

func (q *lived) say(ops ...Op) {
	q.apply(Stream{Origin: Origin{1, 1}, First: q.ops + 1, Ops: ops})
	q.ops += uint64(len(ops))
}

// TestLivesLoseAndDoubleNothingElse has a queue that dead-letters to another, with parts of transactions in between, while each loses its
// majority again and again and goes on from any earlier moment. A message that the kept replicas have is there in the end; when only the
// target was recovered there is one of it, and else no more than had been under way or had come back.
func TestLivesLoseAndDoubleNothingElse(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		pick := func(n int) int { return rapid.IntRange(0, n-1).Draw(t, "pick") }
		next := uint64(3)
		s, d := newLived(1), newLived(2)
		former := map[uint64]uint32{} // of d: id to number of the life
		dead := newRig(nil).m.Settings()
		deadLettering(&dead)
		s.apply(SetSettings{Revision: 1, Settings: dead, Name: "s", VHost: "/"})
		names := []uint64{2} // ids by which d is known, the present one last
		n, twice := 0, 0
		there := map[string]bool{} // messages that must be somewhere
		forget := func() {         // those that the kept replicas do not have
			have := s.has()
			for b, k := range d.has() {
				have[b] += k
			}
			for b := range maps.Clone(there) {
				if have[b] == 0 {
					delete(there, b)
				}
			}
		}
		message := func() (string, Publish) {
			n++
			b := fmt.Sprint("m", n)
			there[b] = true
			return b, pub(b)
		}
		name := func() uint64 { // mostly the present one
			if pick(4) > 0 {
				return names[len(names)-1]
			}
			return names[pick(len(names))]
		}
		route := func() {
			var r Route
			for _, it := range s.m.Outbox().Unrouted(100) {
				r.Items = append(r.Items, Routed{Item: it.ID, Targets: []uint64{name()}})
			}
			s.apply(r)
		}
		move := func(all bool) {
			for _, x := range s.m.Outbox().Targets() {
				if x.Gone || x.Pending == 0 {
					continue
				}
				if life := former[x.Queue]; life > 0 {
					w, _ := d.m.SourceWatermark(Source{s.id, life})
					s.apply(TargetMoved{Target: x.Queue, Watermark: w, To: d.id})
					continue
				}
				list := s.m.Outbox().Pending(x.Queue, 0, 100)
				if !all {
					list = list[:1+pick(len(list))]
				}
				in := TransferIn{Source: Source{s.id, 0}, First: list[0].Seq}
				for _, p := range list {
					if p.Reason == dlx.Transaction {
						in.Items = append(in.Items, Transfer{Part: part(pub(s.body(p.Ref)))})
					} else {
						in.Items = append(in.Items, transfer(s.body(p.Ref)))
					}
				}
				d.apply(in)
				if all || pick(2) == 0 {
					w, _ := d.m.SourceWatermark(Source{s.id, 0})
					s.apply(TransferDone{Target: x.Queue, UpTo: w})
				}
			}
		}
		for range rapid.IntRange(1, 40).Draw(t, "steps") {
			switch pick(9) {
			case 0, 1:
				_, p := message()
				s.say(p)
			case 2, 3:
				if x, ok := s.m.Queue().NextLive(0); ok {
					s.say(Settle{Kind: Discard, Runs: []Run{{x.ID, 1, x.Attempt}}})
				}
			case 4:
				_, p := message()
				s.say(Tx{Parts: []TxPart{{[]uint64{name()}, part(p)}}})
			case 5:
				route()
			case 6:
				move(false)
			case 7:
				former[d.id] = d.lives + 1
				d.lose(next, pick(len(d.log)+1))
				names = append(names, next)
				next++
				forget()
			case 8:
				s.lose(next, max(pick(len(s.log)+1), min(1, len(s.log))))
				next++
				forget()
				back := s.has()
				for b, k := range d.has() {
					twice += min(k, back[b])
				}
			}
		}
		for range 2 * len(names) {
			route()
			move(true)
		}
		route()
		move(true)
		if k := s.m.Outbox().Len(); k != 0 {
			t.Fatalf("%d letters never arrive", k)
		}
		have := s.has()
		for b, k := range d.has() {
			have[b] += k
		}
		extra := 0
		for b, k := range have {
			extra += k - 1
			if b == "" {
				t.Fatal("a message without a body")
			}
		}
		if extra > twice {
			t.Errorf("%d messages are there twice, %d may be: %v", extra, twice, have)
		}
		for _, b := range slices.Sorted(maps.Keys(there)) {
			if have[b] == 0 {
				t.Errorf("%s is lost, and a kept replica had it", b)
			}
		}
	})
}
