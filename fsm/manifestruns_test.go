package fsm

import (
	"bytes"
	"math/rand/v2"
	"testing"

	"github.com/warrenmq/warren/queue"
)

// appendSingly is appendMessages message by message.
func appendSingly(b []byte, live queue.Frozen) []byte {
	var p prediction
	repeat := uint64(0)
	for m := range live.All {
		if m == p.next(0) {
			repeat++
		} else {
			if repeat > 0 {
				b = appendUint(b, repeat<<1)
				repeat = 0
			}
			b = appendMessage(b, &p, m)
		}
		p.learn(m)
	}
	if repeat > 0 {
		b = appendUint(b, repeat<<1)
	}
	return b
}

// TestMessagesByRuns shows that a manifest has the same bytes, and names the same entries, however its messages are gathered.
func TestMessagesByRuns(t *testing.T) {
	for seed := range uint64(20) {
		r := rand.New(rand.NewPCG(seed, 3))
		var q queue.Queue
		index, offset, left, length := uint64(0), uint32(0), 0, uint32(50)
		n := r.IntN(12000)
		for range n {
			if left--; left < 0 {
				index, offset, left = index+1+r.Uint64N(2), 7+r.Uint32N(2), r.IntN(400)
				if r.IntN(20) == 0 {
					length = 50 + r.Uint32N(20)
				}
			}
			q.Append(queue.Message{Ref: queue.Ref{Index: index, Offset: offset, Length: length}, BodyBytes: length - 8})
			offset += length + 2
		}
		for range r.IntN(40) {
			first := queue.MessageID(1 + r.IntN(n+1))
			q.RemoveRange(queue.IDRange{First: first, Last: first + queue.MessageID(r.IntN(2)*r.IntN(700))}, nil)
			if first := queue.MessageID(1 + r.IntN(n+1)); q.Has(first) && r.IntN(3) == 0 {
				q.Touch(first, 3, 1)
			}
		}
		if got, want := appendMessages(nil, q.View()), appendSingly(nil, q.View()); !bytes.Equal(got, want) {
			t.Fatalf("seed %d: %d bytes by runs, %d one by one, or others", seed, len(got), len(want))
		}
		var want []IndexRange
		for m := range q.View().All {
			want = appendIndex(want, m.Ref.Index)
		}
		if got := (&capture{live: q.View()}).pins(); len(got) != len(want) || len(got) > 0 && got[len(got)-1] != want[len(want)-1] {
			t.Fatalf("seed %d: %d pins, want %d", seed, len(got), len(want))
		}
	}
}

// BenchmarkCaptureAlike encodes a million messages of one size.
func BenchmarkCaptureAlike(b *testing.B) {
	m := New()
	for i := range 4096 {
		m.Apply(uint64(i+1), publishEntry(uint64(i*256)+1, 256, 100, 100))
	}
	for b.Loop() {
		m.Capture()()
	}
}
