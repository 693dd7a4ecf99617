package stats

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"
)

// fake is a source of objects.
type fake map[Key]*Set

func (f fake) each(yield func(Key, *Set)) {
	for k, s := range f {
		yield(k, s)
	}
}

func queue(id uint64) Key { return Key{Kind: Queue, ID: id} }

func TestRates(t *testing.T) {
	f := fake{queue(1): {Publish: 100, Ready: 50}}
	s := New(f.each)
	s.Sample(1_000)
	if r := s.Rates(queue(1)); r != (Rates{}) {
		t.Errorf("what was before the first sample has a rate: %v", r)
	}
	f[queue(1)][Publish], f[queue(1)][Ready] = 150, 40
	f[queue(2)] = &Set{Ack: 20} // new within the interval
	s.Sample(6_000)
	if r := s.Rates(queue(1)); r[Publish] != 10 || r[Ready] != -2 {
		t.Errorf("%v", r)
	}
	if r := s.Rates(queue(2)); r[Ack] != 4 {
		t.Errorf("%v", r)
	}
	s.Sample(6_000) // the clock stands still
	s.Sample(5_000)
	if r := s.Rates(queue(1)); r[Publish] != 10 {
		t.Errorf("%v", r)
	}
	delete(f, queue(2))
	f[queue(1)][Blocked] += 2500 // is no use of it
	s.Sample(11_000)
	if r := s.Rates(queue(1)); r != (Rates{Blocked: 500}) {
		t.Errorf("blocked: %v", r)
	}
	s.Sample(16_000)
	if r := s.Rates(queue(1)); r != (Rates{}) {
		t.Errorf("idle: %v", r)
	}
	if at, ok := s.Changed(queue(1)); at != 6_000 || !ok {
		t.Errorf("changed at %d %v", at, ok)
	}
	if _, ok := s.Changed(queue(2)); ok || len(s.objects) != 1 {
		t.Error("an object that is gone is still known")
	}
	f[queue(3)] = &Set{}
	s.Sample(21_000)
	if len(s.objects) != 1 {
		t.Error("what has counted nothing is kept")
	}
	n := 0
	s.Each(Queue, func(Key, *Rates) { n++ })
	if n != 0 {
		t.Errorf("%d idle objects are told of", n)
	}
}

// A history is what was counted at each time, as far back as it reaches.
// TestClockPutBack puts the clock back by an hour: rates are those of the time since, and not those of before for an hour.
func TestClockPutBack(t *testing.T) {
	f := fake{queue(1): {Publish: 100}, {Kind: Node}: {Publish: 100}}
	s := New(f.each)
	s.Sample(7_200_000)
	f[queue(1)][Publish] = 150
	s.Sample(7_205_000)
	s.Sample(3_605_000)
	f[queue(1)][Publish] = 151
	s.Sample(3_610_000)
	if r := s.Rates(queue(1)); r[Publish] != 0.2 {
		t.Errorf("%v", r)
	}
	if at, _ := s.Changed(queue(1)); at != 3_610_000 {
		t.Errorf("changed at %d", at)
	}
	if sets, known := s.History(queue(1), []int64{3_605_000, 3_610_000}); !known || sets[0][Publish] != 150 || sets[1][Publish] != 151 {
		t.Errorf("%v %v", sets, known)
	}
}

func TestHistory(t *testing.T) {
	node := Key{Kind: Node}
	f := fake{node: {}, queue(1): {}}
	s := New(f.each)
	now := int64(1_000_000)
	step := func() {
		now += Interval.Milliseconds()
		f[node][Publish]++
		f[queue(1)][Publish] += 2
		s.Sample(now)
	}
	for range 300 {
		step()
	}
	sets, ok := s.History(queue(1), []int64{now - 3_600_000, now - 600_000, now - 10_000, now - 2, now, now + 60_000})
	if !ok || sets[0][Publish] != 0 || sets[1][Publish] != 360 || sets[2][Publish] != 596 || sets[3][Publish] != 598 || sets[4][Publish] != 600 || sets[5][Publish] != 600 {
		t.Errorf("%v %v", ok, sets)
	}
	sets, ok = s.History(node, []int64{now - 1_200_000, now - 600_000, now})
	if !ok || sets[0][Publish] < 48 || sets[0][Publish] > 60 || sets[1][Publish] != 180 || sets[2][Publish] != 300 {
		t.Errorf("%v %v", ok, sets)
	}
	if _, ok := s.History(queue(2), []int64{now}); ok {
		t.Error("an unknown object has a history")
	}
}

// However many objects there are and whatever is asked, so many have a history, and what is looked at keeps it.
func TestHistoriesAreBounded(t *testing.T) {
	f := fake{{Kind: Node}: {}}
	for i := range uint64(3 * histories) {
		f[queue(i)] = &Set{Publish: i}
	}
	s := New(f.each)
	now := int64(0)
	step := func() {
		now += Interval.Milliseconds()
		for _, set := range f {
			set[Ack]++
		}
		s.Sample(now)
	}
	count := func() (n int) {
		for _, o := range s.objects {
			if o.ring != nil {
				n++
			}
		}
		return n
	}
	for i := range uint64(2 * histories) {
		step()
		for j := range uint64(5) {
			s.History(queue(j), nil)
		}
		s.History(queue(3*histories-1-i), nil)
		if n := count(); n != s.rings || n > histories+1 {
			t.Fatalf("%d histories, %d counted", n, s.rings)
		}
	}
	for j := range uint64(5) {
		if s.objects[queue(j)].ring == nil {
			t.Errorf("what is looked at has lost its history")
		}
	}
	for k := range f {
		if k.Kind == Queue {
			delete(f, k)
		}
	}
	step()
	if len(s.objects) != 1 || s.rings != 1 {
		t.Errorf("%d objects, %d histories", len(s.objects), s.rings)
	}
}

// A quiet object gives its history up.
func TestQuietHistory(t *testing.T) {
	f := fake{queue(1): {Ack: 1}}
	s := New(f.each)
	s.Sample(1)
	if s.rings != 1 {
		t.Fatal("no history")
	}
	for i := range 2 * int64(history) {
		s.Sample(2 + i*Interval.Milliseconds())
	}
	if s.rings != 0 || s.objects[queue(1)].ring != nil {
		t.Error("it has one for ever")
	}
}

// The ring finds what a list would.
func TestRing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 8).Draw(t, "size")
		r := newRing(n)
		var times []int64
		at := int64(0)
		for range rapid.IntRange(0, 30).Draw(t, "samples") {
			at += rapid.Int64Range(1, 5).Draw(t, "distance")
			r.add(at, &Set{Publish: uint64(at)})
			times = append(times, at)
		}
		times = times[max(0, len(times)-n):]
		for q := int64(-1); q < at+3; q++ {
			want := int64(-1)
			for _, t := range times {
				if t <= q {
					want = t
				}
			}
			got := int64(-1)
			if s := r.find(q); s != nil {
				got = int64(s[Publish])
			}
			if got != want {
				t.Fatalf("at %d: %d, want %d", q, got, want)
			}
		}
	})
}

// It samples at the same moments on every node, and ends.
func TestRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(1234 * time.Millisecond)
		f := fake{{Kind: Node}: {}}
		var at []time.Time
		s := New(f.each, func(func(Key, *Set)) { at = append(at, time.Now()) })
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { s.Run(ctx); close(done) }()
		time.Sleep(3 * Interval)
		cancel()
		<-done
		if len(at) != 3 {
			t.Fatalf("%d samples", len(at))
		}
		for _, x := range at {
			if x.UnixMilli()%Interval.Milliseconds() != 0 {
				t.Errorf("sampled at %v", x)
			}
		}
	})
}

// BenchmarkSample is a round over ten thousand objects, all of which were used once.
func BenchmarkSample(b *testing.B) {
	f := fake{}
	for i := range uint64(10_000) {
		f[queue(i)] = &Set{Publish: i + 1}
	}
	s := New(f.each)
	now := int64(0)
	for b.Loop() {
		now += Interval.Milliseconds()
		s.Sample(now)
	}
}
