package queue

import (
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// naive is a queue as a sorted list.
type naive struct {
	live []Message
	tail MessageID
}

func (n *naive) find(id MessageID) (int, bool) {
	return slices.BinarySearchFunc(n.live, id, func(m Message, id MessageID) int {
		switch {
		case m.ID < id:
			return -1
		case m.ID > id:
			return 1
		}
		return 0
	})
}

// TestQueueAgreesWithList changes a queue of several chunks at random and compares
// it with a list. Views frozen on the way must stay as they were.
func TestQueueAgreesWithList(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var q Queue
		var n naive
		var frozen Frozen
		var wantFrozen []Message
		spread := rapid.SampledFrom([]int64{0, 1, 50, 1 << 40}).Draw(t, "spread")
		levels := rapid.SampledFrom([]uint8{0, 2, 31}).Draw(t, "levels")
		uniform := rapid.Bool().Draw(t, "uniform")
		random := uint64(rapid.Uint32().Draw(t, "seed"))*2 + 1
		roll := func(n uint64) uint64 { // cheap stand-in for thousands of draws
			random = random*6364136223846793005 + 1442695040888963407
			return random >> 33 % n
		}
		appendMany := func(count int) {
			for range count {
				m := Message{
					Ref:       Ref{Index: uint64(n.tail)/7 + 1, Offset: uint32(n.tail%7) * 1100, Length: 1050},
					BodyBytes: 1000, Priority: uint8(roll(uint64(levels) + 1)),
				}
				if !uniform {
					m.Ref.Offset, m.Ref.Length = uint32(roll(1<<24)), uint32(1<<roll(20))
					m.BodyBytes = uint32(roll(1 << 20))
				}
				if spread > 0 && roll(3) > 0 {
					m.ExpiresAt = int64(n.tail) + 1 + int64(roll(uint64(spread)))
				}
				m.ID = q.Append(m)
				n.tail++
				n.live = append(n.live, m)
			}
		}
		for range rapid.IntRange(1, 8).Draw(t, "steps") {
			switch rapid.IntRange(0, 7).Draw(t, "step") {
			case 0, 1:
				appendMany(rapid.IntRange(1, 6000).Draw(t, "append"))
			case 2:
				first := MessageID(roll(uint64(n.tail) + 1))
				r := IDRange{first, first + MessageID(roll(10000))}
				var want []IDRange
				kept := n.live[:0:0]
				for _, m := range n.live {
					if m.ID >= r.First && m.ID <= r.Last {
						want = AppendID(want, m.ID)
					} else {
						kept = append(kept, m)
					}
				}
				got, count := q.RemoveRange(r, nil)
				if !slices.Equal(got, want) || count != len(n.live)-len(kept) {
					t.Fatalf("removed %d: %v, want %v", count, got, want)
				}
				n.live = kept
			case 3:
				for range roll(3000) {
					id := MessageID(roll(uint64(n.tail) + 2))
					i, ok := n.find(id)
					m, got := q.Remove(id)
					if got != ok || ok && m != n.live[i] {
						t.Fatalf("remove %d: %+v, %t", id, m, got)
					}
					if ok {
						n.live = slices.Delete(n.live, i, i+1)
					}
				}
			case 4:
				for range roll(500) {
					id := MessageID(roll(uint64(n.tail) + 2))
					i, ok := n.find(id)
					if q.Touch(id, uint32(id)+1, 2) != ok {
						t.Fatalf("touch %d", id)
					}
					if ok {
						n.live[i].Attempt, n.live[i].Failed = uint32(id)+1, 2
					}
				}
			case 7:
				for range roll(500) {
					id := MessageID(roll(uint64(n.tail) + 2))
					i, ok := n.find(id)
					if q.StopTTL(id) != (ok && n.live[i].ExpiresAt != 0) {
						t.Fatalf("stop %d", id)
					}
					if ok {
						n.live[i].ExpiresAt = 0
					}
				}
			case 5:
				frozen, wantFrozen = q.Freeze(), slices.Clone(n.live)
			case 6:
				var r Queue
				for _, m := range n.live {
					if err := r.Restore(m); err != nil {
						t.Fatal(err)
					}
				}
				r.SkipTo(n.tail)
				q = r
			}
			compareQueue(t, &q, &n)
		}
		if !slices.Equal(slices.Collect(frozen.All), wantFrozen) {
			t.Fatalf("a frozen view changed")
		}
	})
}

func compareQueue(t *rapid.T, q *Queue, n *naive) {
	if err := q.Check(); err != nil {
		t.Fatal(err)
	}
	if q.Tail() != n.tail || !slices.Equal(slices.Collect(q.View().All), n.live) {
		t.Fatalf("%d live up to %d, want %d up to %d", q.Len(), q.Tail(), len(n.live), n.tail)
	}
	var due []Message
	for _, m := range n.live {
		if m.ExpiresAt != 0 {
			due = append(due, m)
		}
	}
	slices.SortStableFunc(due, func(a, b Message) int {
		switch {
		case a.ExpiresAt < b.ExpiresAt:
			return -1
		case a.ExpiresAt > b.ExpiresAt:
			return 1
		}
		return 0
	})
	at, ok := q.NextExpiry()
	if ok != (len(due) > 0) || ok && at != due[0].ExpiresAt {
		t.Fatalf("next expiry %d, %t", at, ok)
	}
	if !ok {
		return
	}
	now := due[len(due)/2].ExpiresAt
	i := 0
	q.Due(now, func(m Message) bool {
		if m != due[i] {
			t.Fatalf("due %d: %+v, want %+v", i, m, due[i])
		}
		i++
		return true
	})
	want := int64(0)
	if i < len(due) {
		want = due[i].ExpiresAt
	}
	if i > 0 && due[i-1].ExpiresAt != now || want != 0 && want <= now || q.NextExpiryAfter(now) != want {
		t.Fatalf("%d due at %d, next %d, want %d", i, now, q.NextExpiryAfter(now), want)
	}
	i = 0
	q.Due(now, func(Message) bool { i++; return i < 2 })
	if i > 2 {
		t.Fatalf("went on after the end: %d", i)
	}
	from := due[len(due)/3].ExpiresAt
	i = slices.IndexFunc(due, func(m Message) bool { return m.ExpiresAt > from })
	if i < 0 {
		i = len(due)
	}
	q.DueAfter(from, math.MaxInt64, func(m Message) bool {
		if m != due[i] {
			t.Fatalf("due after %d: %+v, want %+v", from, m, due[i])
		}
		i++
		return true
	})
	if i != len(due) {
		t.Fatalf("due after %d ends at %d of %d", from, i, len(due))
	}
}

func TestSetAgreesWithMap(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var s Set
		want := map[uint64]bool{}
		number := rapid.OneOf(rapid.Uint64Range(0, 200), rapid.Uint64Range(4000, 4200), rapid.Uint64Range(1<<40, 1<<40+9000), rapid.Just(^uint64(0)))
		for range rapid.IntRange(1, 200).Draw(t, "steps") {
			x := number.Draw(t, "number")
			if rapid.Bool().Draw(t, "add") {
				if s.Add(x) == want[x] {
					t.Fatalf("add %d", x)
				}
				want[x] = true
			} else {
				if s.Remove(x) != want[x] {
					t.Fatalf("remove %d", x)
				}
				delete(want, x)
			}
			var sorted []uint64
			for x := range want {
				sorted = append(sorted, x)
			}
			slices.Sort(sorted)
			var got []uint64
			for x, ok := s.First(); ok; x, ok = s.Next(x) {
				got = append(got, x)
			}
			if !slices.Equal(got, sorted) || s.Len() != len(sorted) || s.Has(x) != want[x] {
				t.Fatalf("members %v, want %v", got, sorted)
			}
		}
	})
}

func TestRestoreNeedsRisingIDs(t *testing.T) {
	var q Queue
	if err := q.Restore(Message{ID: 5}); err != nil {
		t.Fatal(err)
	}
	if err := q.Restore(Message{ID: 5}); err == nil {
		t.Fatal("the same id was taken twice")
	}
	q.SkipTo(3)
	if q.Tail() != 5 {
		t.Fatalf("tail %d", q.Tail())
	}
}
