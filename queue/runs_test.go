package queue

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// checkRuns compares the views of a queue by runs and by entries with that message by message.
func checkRuns(t *testing.T, q *Queue) (runs int) {
	t.Helper()
	var all, byRuns []Message
	var indexes []uint64
	view := q.View()
	for m := range view.All {
		all = append(all, m)
		if n := len(indexes); n == 0 || indexes[n-1] != m.Ref.Index {
			indexes = append(indexes, m.Ref.Index)
		}
	}
	for r := range view.Runs {
		runs++
		m := r.First
		for range r.N {
			byRuns = append(byRuns, m)
			m.ID++
			m.Ref.Offset += m.Ref.Length + r.Space
		}
	}
	if !slices.Equal(byRuns, all) {
		t.Fatalf("%d messages by runs, %d one by one, or others", len(byRuns), len(all))
	}
	if got := slices.Compact(slices.Collect(view.Indexes)); !slices.Equal(got, indexes) {
		t.Fatalf("%d indexes, want %d", len(got), len(indexes))
	}
	return runs
}

// TestRuns fills queues with entries of messages that are alike, or nearly, and removes and touches some.
func TestRuns(t *testing.T) {
	for seed := range uint64(8) {
		r := rand.New(rand.NewPCG(seed, 2))
		var q Queue
		n, perEntry := r.IntN(3*blockSize), 1+r.IntN(300)
		length, space := 10+r.Uint32N(100), r.Uint32N(3)
		index, offset, left := 1+r.Uint64N(9), uint32(0), 0
		vary := r.IntN(3) == 0
		for range n {
			if left--; left < 0 {
				index, offset, left = index+1+r.Uint64N(2), r.Uint32N(9), r.IntN(2*perEntry)
			}
			m := Message{Ref: Ref{index, offset, length}, BodyBytes: length - 5}
			if vary && r.IntN(500) == 0 {
				m.BodyBytes, m.Priority, m.ExpiresAt = r.Uint32N(length), uint8(r.IntN(2)), r.Int64N(2)
			}
			offset += length + space
			q.Append(m)
		}
		runs := checkRuns(t, &q)
		if perEntry > 50 && !vary && runs > blockSize+n/20 { // the newest chunk is open
			t.Errorf("seed %d: %d messages in %d runs", seed, n, runs)
		}
		for range r.IntN(12) {
			first := MessageID(1 + r.IntN(n+1))
			switch r.IntN(4) {
			case 0:
				q.RemoveRange(IDRange{first, first + MessageID(r.IntN(500))}, nil)
			case 1, 2:
				q.RemoveRange(IDRange{first, first}, nil)
			default:
				if q.Has(first) && r.IntN(4) == 0 {
					q.Touch(first, 2, 1)
				}
			}
			checkRuns(t, &q)
		}
	}
}
