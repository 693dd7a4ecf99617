package fsm

import (
	"encoding/binary"
	"fmt"
	"slices"
	"testing"

	"github.com/warrenmq/warren/dlx"
	"github.com/warrenmq/warren/queue"
)

// once is a publish under an id.
func once(body string, id byte) Publish {
	p := pub(body)
	p.Dedup = queue.DedupID{id}
	return p
}

func newDedupRig(t *testing.T, size int64) *rig {
	g := newRig(t)
	g.time = 1000
	g.settings(func(s *queue.Settings) { deadLettering(s); s.Dedup = queue.Dedup{WindowMillis: 100, Size: size} })
	return g
}

func (g *rig) duplicates(n, forgotten uint64) {
	g.t.Helper()
	if c := g.m.Counters(); c.Duplicates != n || c.Forgotten != forgotten {
		g.t.Fatalf("%d duplicates, %d forgotten, want %d and %d", c.Duplicates, c.Forgotten, n, forgotten)
	}
}

func TestDeduplicationU12(t *testing.T) {
	const full = queue.DedupSizeDefault
	t.Run("within the window, by anybody, in plain success", func(t *testing.T) {
		g := newDedupRig(t, full)
		res := g.apply(g.run(once("a", 1), once("a'", 1), pub("b"), pub("b"), once("c", 2)))
		if len(res.Streams[0].Outcomes) > 0 {
			t.Fatalf("outcomes %v", res.Streams[0].Outcomes)
		}
		g.want("a b b c")
		res = g.apply(Stream{Origin: Origin{9, 9}, First: 1, Ops: []Op{once("a''", 1)}})
		if s := res.Streams[0]; s.UpTo != 1 || len(s.Outcomes) > 0 || res.Enqueued.First <= res.Enqueued.Last {
			t.Fatalf("result %+v", res)
		}
		g.duplicates(2, 0)
		g.time += 99
		g.apply(g.run(once("a", 1)))
		g.duplicates(3, 0)
		g.time++
		g.apply(g.run(once("again", 1), once("again", 1)))
		g.want("a b b c again")
		g.duplicates(4, 0)
	})
	t.Run("whatever became of the first", func(t *testing.T) {
		g := newDedupRig(t, full)
		expiring := once("expired", 3)
		expiring.TTLMillis = 0
		g.apply(g.run(once("acked", 1), once("rejected", 2), expiring, once("purged", 4)))
		g.apply(Return{Ack, []Run{{1, 1, 0}}}, Return{Discard, []Run{{2, 1, 0}}}, Expire{ids(3)}, g.run(Purge{UpTo: 4}))
		g.apply(g.run(once("1", 1), once("2", 2), once("3", 3), once("4", 4), once("5", 5)))
		g.want("5")
		g.duplicates(4, 0)
	})
	t.Run("a refusal does not take the id", func(t *testing.T) {
		g := newDedupRig(t, full)
		for v := RefuseFull; v <= RefuseConsumers; v++ {
			p := once("refused", 1)
			p.Verdict = v
			if res := g.apply(g.run(p)); len(res.Streams[0].Outcomes) != 1 {
				t.Fatalf("verdict %d: %+v", v, res.Streams[0])
			}
		}
		g.apply(g.run(once("taken", 1)))
		g.want("taken")
	})
	t.Run("a copy of what is stored is not refused", func(t *testing.T) {
		g := newDedupRig(t, full)
		g.apply(g.run(once("first", 1)))
		for v := RefuseFull; v <= RefuseConsumers; v++ {
			p := once("copy", 1)
			p.Verdict = v
			if res := g.apply(g.run(p)); len(res.Streams[0].Outcomes) != 0 {
				t.Fatalf("verdict %d: %+v", v, res.Streams[0])
			}
		}
		g.want("first")
		if c := g.m.Counters(); c.Refused != 0 || g.m.Outbox().Len() != 0 {
			t.Fatalf("counters %+v", c)
		}
	})
	t.Run("dead letters bring no id, delayed messages do", func(t *testing.T) {
		g := newDedupRig(t, full)
		late := transfer("late")
		late.Dedup = queue.DedupID{1}
		res := g.apply(g.run(once("first", 1)), TransferIn{Source{5, 0}, 1, 0, []Transfer{transfer("dead"), late, transfer("dead")}})
		if res.Transfers[0].UpTo != 3 {
			t.Fatalf("transfers %+v", res.Transfers)
		}
		g.want("first dead dead")
		g.duplicates(1, 0)
		late.Dedup = queue.DedupID{2}
		g.apply(TransferIn{Source{5, 0}, 4, 0, []Transfer{late, late}}, g.run(once("copy", 2)))
		g.want("first dead dead late")
		g.duplicates(3, 0)
	})
	t.Run("transactions", func(t *testing.T) {
		g := newDedupRig(t, full)
		refused := Tx{Verdict: RefuseFull, Ops: []Op{once("no", 1)}}
		g.apply(g.run(refused, Tx{Ops: []Op{once("a", 1), once("a", 1), pub("b")}}, once("a", 1)))
		g.apply(TransferIn{Source{5, 0}, 1, 0, []Transfer{{Part: part(once("a", 1))}, {Part: part(once("c", 2))}}}, g.run(once("c", 2)))
		g.want("a b c")
		g.duplicates(4, 0)
	})
	t.Run("the oldest goes when the window is full", func(t *testing.T) {
		g := newDedupRig(t, 2)
		g.apply(g.run(once("1", 1), once("2", 2), once("2", 2), once("3", 3), once("2", 2), once("1 again", 1)))
		g.want("1 2 3 1 again")
		g.duplicates(2, 2)
		g.time += 100
		g.apply(g.run(once("4", 4), once("5", 5)))
		g.duplicates(2, 2) // room was made by those whose time was over
	})
	t.Run("settings", func(t *testing.T) {
		g := newDedupRig(t, full)
		g.apply(g.run(once("1", 1), once("2", 2)))
		g.settings(func(s *queue.Settings) { s.Dedup = queue.Dedup{WindowMillis: 10, Size: 1} })
		g.apply(g.run(once("2", 2), once("1 again", 1)))
		g.want("1 2 1 again")
		g.duplicates(1, 2)
		g.settings(func(s *queue.Settings) { s.Dedup = queue.Dedup{} })
		g.apply(g.run(once("3", 1), once("3", 1)))
		g.want("1 2 1 again 3 3")
		if g.m.Dedup().Len() != 0 {
			t.Fatal("ids are remembered without a window")
		}
	})
	t.Run("close", func(t *testing.T) {
		g := newDedupRig(t, full)
		g.apply(g.run(once("1", 1)), Close{})
		if res := g.apply(g.run(once("1", 1))); res.Streams[0].Outcomes[0].Kind != Gone || g.m.Dedup().Len() != 0 {
			t.Fatalf("result %+v", res)
		}
	})
}

// TestDeduplicationLetsGo fills a window, lets its time pass and checks that entries of
// other work clear it, at once or in portions.
func TestDeduplicationLetsGo(t *testing.T) {
	g := newDedupRig(t, queue.DedupSizeMax)
	const n = 5000
	fill := func(from int) {
		var ops []Op
		for i := range n {
			p := pub("x")
			binary.BigEndian.PutUint32(p.Dedup[:], uint32(from+i+1))
			ops = append(ops, p)
		}
		g.apply(g.run(ops...))
	}
	fill(0)
	g.time += 60
	fill(n)
	g.time += 50
	for want := 2*n - dedupPerEntry; want > n; want -= dedupPerEntry {
		g.apply()
		if got := g.m.Dedup().Len(); got != want {
			t.Fatalf("%d ids, want %d", got, want)
		}
	}
	g.time += 60
	g.apply()
	if got := g.m.Dedup().Len(); got != 0 {
		t.Fatalf("%d ids when all are over", got)
	}
	if !slices.Equal(g.reasons(), []dlx.Reason(nil)) {
		t.Fatal("something died")
	}
}

// BenchmarkApplyDedup is BenchmarkApplyPublishAndAck with ids, all of them new, and the
// window full.
func BenchmarkApplyDedup(b *testing.B) {
	const n = 256
	for _, size := range []int64{1000, queue.DedupSizeDefault} {
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			m, index, id := New(), uint64(1), uint64(0)
			set := m.settings
			set.Dedup = queue.Dedup{WindowMillis: queue.DedupWindowMax, Size: size}
			m.Apply(1, EncodeEntry(nil, &Entry{Commands: []Command{SetSettings{Revision: 1, Settings: set}}}))
			b.ReportAllocs()
			for seq := uint64(1); b.Loop(); seq += n {
				b.StopTimer()
				s := Stream{Origin: Origin{1, 1}, First: seq, AnsweredUpTo: seq - 1}
				for range n {
					p := pub("body")
					id++
					binary.BigEndian.PutUint64(p.Dedup[:], id*0x9e3779b97f4a7c15)
					s.Ops = append(s.Ops, p)
				}
				data := EncodeEntry(nil, &Entry{Session: 1, Commands: []Command{s}})
				b.StartTimer()
				index += 2
				res := m.Apply(index-1, data)
				m.Apply(index, settleEntry(res.Enqueued.First, n))
			}
		})
	}
}
