package queue

import (
	"maps"
	"math/rand/v2"
	"runtime"
	"slices"
	"testing"
)

// TestThinChunks removes messages in any order, one by one and by ranges, until few are left in each chunk: they stay what they were, in the queue and in a
// frozen view, and take no more than their own memory.
func TestThinChunks(t *testing.T) {
	for seed := range uint64(2) {
		r := rand.New(rand.NewPCG(seed, 1))
		var q Queue
		want := map[MessageID]Message{}
		index, offset := uint64(1), uint32(0)
		for range 5*blockSize + r.IntN(blockSize) {
			if r.IntN(40) == 0 {
				index, offset = index+1+r.Uint64N(3), r.Uint32N(50)
			}
			m := Message{Ref: Ref{index, offset, 50 + r.Uint32N(200)}, BodyBytes: r.Uint32N(50), Priority: uint8(r.IntN(2) * r.IntN(4))}
			if r.IntN(3) == 0 {
				m.ExpiresAt = r.Int64N(1 << 30)
			}
			offset += m.Ref.Length + r.Uint32N(9)
			m.ID = q.Append(m)
			want[m.ID] = m
		}
		agree := func(when string) {
			t.Helper()
			n := 0
			for m := range q.View().All {
				if n++; m != want[m.ID] {
					t.Fatalf("seed %d, %s: %+v, want %+v", seed, when, m, want[m.ID])
				}
			}
			if n != len(want) {
				t.Fatalf("seed %d, %s: %d messages, want %d", seed, when, n, len(want))
			}
			checkRuns(t, &q)
			if err := q.Check(); err != nil {
				t.Fatalf("seed %d, %s: %v", seed, when, err)
			}
		}
		ids := make([]MessageID, 0, len(want))
		for id := range want {
			ids = append(ids, id)
		}
		slices.Sort(ids)
		r.Shuffle(len(ids), func(i, k int) { ids[i], ids[k] = ids[k], ids[i] })
		var frozen Frozen
		var then map[MessageID]Message
		for i, id := range ids[:len(ids)*98/100] {
			switch {
			case i%5000 == 2500:
				agree("on the way")
				frozen, then = q.Freeze(), maps.Clone(want)
			case i%1000 == 17:
				gone, _ := q.RemoveRange(IDRange{id, id + MessageID(r.IntN(30))}, nil)
				for _, g := range gone {
					for id := g.First; id <= g.Last; id++ {
						delete(want, id)
					}
				}
			case i%50 == 3 && q.Has(id):
				q.Touch(id, uint32(i), 1)
				m := want[id]
				m.Attempt, m.Failed = uint32(i), 1
				want[id] = m
				continue
			case i%50 == 4 && q.StopTTL(id):
				m := want[id]
				m.ExpiresAt = 0
				want[id] = m
				continue
			}
			if i%3 == 0 { // by a range of one
				q.RemoveRange(IDRange{id, id}, nil)
				delete(want, id)
				continue
			}
			if m, ok := q.Remove(id); ok && m != want[id] {
				t.Fatalf("seed %d: removed %+v, want %+v", seed, m, want[id])
			}
			delete(want, id)
		}
		agree("at the end")
		n := 0
		for m := range frozen.All {
			if n++; m != then[m.ID] {
				t.Fatalf("seed %d: the view has %+v, want %+v", seed, m, then[m.ID])
			}
		}
		if n != len(then) {
			t.Fatalf("seed %d: the view has %d messages, want %d", seed, n, len(then))
		}
	}
}

// TestMemoryOfSurvivors: one message of sixteen outlives the others; what these took is given back.
func TestMemoryOfSurvivors(t *testing.T) {
	heap := func() int64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	before := heap()
	q := &Queue{}
	const n, each = 1 << 20, 16
	for i := range uint32(n) {
		q.Append(Message{Ref: Ref{uint64(i / 64), i % 64 * 150, 120 + i%7}, BodyBytes: 100})
		if i > 2*blockSize {
			if id := MessageID(i - 2*blockSize); id%each != 0 {
				q.Remove(id)
			}
		}
	}
	per := float64(heap()-before) / float64(q.Len())
	t.Logf("%.1f bytes for each of %d messages", per, q.Len())
	if per > 28 {
		t.Errorf("%.1f bytes for each message", per)
	}
	runtime.KeepAlive(q)
}
