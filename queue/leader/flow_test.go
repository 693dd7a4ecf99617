package leader

import (
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/warrenmq/warren/fsm"
	"github.com/warrenmq/warren/queue/wire"
)

// machine says what comes in and goes out in a second while all nodes may publish so much in one, 0: whatever they like.
type machine func(pace float64) (in, out float64)

// A message taken in costs 13 us of a machine, one given out 16, and where publishers have more under way than consumers may
// hold, they get twice as many of the turns.
func starved(pace float64) (in, out float64) {
	const takes, gives = 13e-6, 16e-6
	if pace == 0 {
		turns := 1 / (2*takes + gives)
		return 2 * turns, turns
	}
	in = min(pace, 1/takes)
	return in, (1 - in*takes) / gives
}

// Consumers that may hold so little that publishers get thirty turns for one of theirs.
func small(pace float64) (in, out float64) {
	if pace == 0 {
		return 100_000, 3_000
	}
	return pace, 3_000 + max(0, 100_000-pace)/6
}

// Consumers that do a certain number, whoever publishes.
func slow(rate float64) machine {
	return func(pace float64) (in, out float64) {
		if pace == 0 {
			return 75_000, rate
		}
		return min(pace, 75_000), rate
	}
}

// run has flow control decide for so long, where consumers settle a lump of messages at a time, and returns the share of the time in which publishers were held and what came in and
// went out in a second, all of it behind the first ten.
func run(w machine, noise float64, lump int64, length time.Duration) (held, in, out float64) {
	f, now, random := flow{}, time.Unix(1e9, 0), rand.New(rand.NewPCG(1, 2))
	seconds := flowWindow.Seconds()
	ready, n := int64(5_000), 0.0
	var done int64 // and not settled yet
	for t := time.Duration(0); t < length; t += flowWindow {
		now = now.Add(flowWindow)
		i, o := w(f.rate)
		around := func(x float64) int64 { return int64(x * (1 + noise*(2*random.Float64()-1)) * seconds) }
		p := pace{in: around(i), took: flowWindow}
		done = min(done+around(o), ready+p.in)
		p.out = done / lump * lump
		done -= p.out
		ready += p.in - p.out
		if t >= 10*time.Second {
			n++
			in, out = in+float64(p.in)/seconds, out+float64(p.out)/seconds
			if f.rate > 0 {
				held++
			}
		}
		f.decide(p, now, ready, true)
	}
	return held / n, in / n, out / n
}

// Publishers are held where consumers are faster for it, and hardly ever where they are not.
func TestFlowControlHoldsWhereItHelps(t *testing.T) {
	for _, c := range []struct {
		name             string
		machine          machine
		heldMin, heldMax float64
		in, out          float64 // at least
	}{
		{"starved", starved, 0.9, 1, 33_000, 33_500}, // 23,800 went out of 47,600
		{"slow, two thirds", slow(50_000), 0, 0.1, 72_000, 49_000},
		{"slow, half", slow(37_500), 0, 0.1, 70_000, 36_000},
		{"slow, a third", slow(25_000), 0, 0.1, 70_000, 24_000},
		{"very slow", slow(1_000), 0, 0.05, 72_000, 900},
		{"a small prefetch", small, 0.9, 1, 45_000, 9_000}, // 3,000 of 100,000
		{"as fast", slow(75_000), 0, 1, 70_000, 70_000},
	} {
		for _, noise := range []float64{0, 0.3} {
			held, in, out := run(c.machine, noise, 1, 5*time.Minute)
			if held < c.heldMin || held > c.heldMax || in < c.in || out < c.out {
				t.Errorf("%s, noise %v: held %.2f of the time, %.0f in, %.0f out", c.name, noise, held, in, out)
			}
		}
	}
}

// Consumers that settle hundreds of messages at a time seem to settle now none and now many; that is not what holding publishers does.
func TestFlowControlOfLumps(t *testing.T) {
	few := func(pace float64) (in, out float64) {
		if pace == 0 {
			return 4_000, 1_500
		}
		return min(pace, 4_000), 1_500
	}
	for _, lump := range []int64{10, 100, 500, 1_500} {
		for _, noise := range []float64{0, 0.3} {
			if held, in, _ := run(few, noise, lump, 10*time.Minute); held > 0.1 || in < 3_700 {
				t.Errorf("lumps of %d, noise %v: held %.2f of the time, %.0f of 4,000 in", lump, noise, held, in)
			}
		}
	}
}

// Whatever it is good for, publishers keep half of what they have when they are free.
func TestFlowControlLeavesPublishersHalf(t *testing.T) {
	eager := func(pace float64) (in, out float64) {
		if pace == 0 {
			return 80_000, 21_000
		}
		return pace, 21_000 + (80_000-pace)/6
	}
	held, in, _ := run(eager, 0, 1, time.Minute)
	if held < 0.5 || in < 40_000 {
		t.Errorf("held %.2f of the time, %.0f of 80,000 in", held, in)
	}
}

// A queue that has caught up for a while holds nobody; what was found counts when it falls behind again.
func TestFlowControlOfAQueueThatCatchesUp(t *testing.T) {
	f, now := flow{}, time.Unix(1e9, 0)
	step := func(ready int64, may bool) {
		now = now.Add(flowWindow)
		in, out := starved(f.rate)
		f.decide(pace{in: int64(in / 20), out: int64(out / 20), took: flowWindow}, now, ready, may)
	}
	for range 60 {
		step(flowBehind, true)
	}
	if !f.pays || f.rate == 0 {
		t.Fatalf("not held: %+v", f)
	}
	rate := f.rate
	step(flowCaught-1, true)
	if f.rate <= rate {
		t.Errorf("%.0f a second where nothing is left, %.0f where something was", f.rate, rate)
	}
	for range flowCalm/flowWindow - 1 {
		if f.rate == 0 {
			t.Fatal("free as soon as nothing is left")
		}
		step(flowCaught-1, true)
	}
	if f.rate != 0 {
		t.Errorf("still held to %.0f a second", f.rate)
	}
	step(flowBehind-1, true)
	if f.rate != 0 {
		t.Error("held again although the queue has not fallen behind again")
	}
	step(flowBehind, true)
	if f.rate < rate/2 {
		t.Errorf("%.0f a second, %.0f before the queue caught up", f.rate, rate)
	}
	step(flowBehind, false)
	if f.rate != 0 {
		t.Error("held although nobody may be")
	}
}

// A trial in which the queue catches up has shown enough.
func TestFlowControlOfATrialThatCatchesUp(t *testing.T) {
	f, now := flow{}, time.Unix(1e9, 0)
	for ready := int64(30_000); f.rate > 0 || ready == 30_000; {
		now = now.Add(flowWindow)
		in, out := starved(f.rate)
		if f.rate > 0 && now.Sub(f.held) > flowSettle {
			ready = max(0, ready-3_000)
		}
		f.decide(pace{in: int64(in / 20), out: int64(out / 20), took: flowWindow}, now, ready, true)
	}
	if !f.pays || !now.Before(f.known) {
		t.Errorf("nothing is known: %+v", f)
	}
}

// Publishers are free again where commits become so slow that nothing can be compared, and where more comes in than in the comparison
// and consumers get nothing of it.
func TestFlowControlLetsGo(t *testing.T) {
	f, now := flow{}, time.Unix(1e9, 0)
	step := func(took time.Duration, in, out float64) {
		now = now.Add(took)
		f.decide(pace{in: int64(in * took.Seconds()), out: int64(out * took.Seconds()), took: took}, now, 50_000, true)
	}
	trial := func(in float64) {
		t.Helper()
		f = flow{}
		for range 11 {
			step(flowWindow, in, 1_000)
		}
		if f.rate == 0 {
			t.Fatal("no trial")
		}
	}
	trial(20_000)
	for range 20 {
		step(250*time.Millisecond, f.rate/10, 1_000)
	}
	if f.rate != 0 || f.rest != flowRest {
		t.Errorf("held to %.0f a second after five seconds of slow commits", f.rate)
	}
	trial(20_000)
	step(time.Minute, 0, 0)
	if f.rate != 0 {
		t.Errorf("held to %.0f a second after a minute without anything", f.rate)
	}
	trial(2_000)
	for range 30 {
		step(flowWindow, 60_000, 1_000)
	}
	if f.rate != 0 || f.pays {
		t.Errorf("held to %.0f a second: more comes in than before, and no more goes out", f.rate)
	}
}

// What all nodes may publish is divided among those that want their part of it.
func TestShareOf(t *testing.T) {
	for _, c := range []struct {
		rate  float64
		nodes []float64
		want  uint64
	}{
		{0, []float64{1_000}, 0},
		{9_000, nil, 9_000},
		{9_000, []float64{0}, 9_000},
		{9_000, []float64{8_900, 0, 0}, 9_000}, // two that consume only
		{9_000, []float64{3_000, 2_900, 3_100}, 3_000},
		{9_000, []float64{4_000, 1_000, 4_000}, 4_000},
		{9_000, []float64{100, 200, 20_000}, 8_700},
		{0.5, []float64{5, 5}, 1},
	} {
		if got := shareOf(c.rate, c.nodes); got != c.want {
			t.Errorf("%v of %v: each may publish %d, want %d", c.nodes, c.rate, got, c.want)
		}
	}
}

// The leader of a queue counts what it takes in and what consumers settle, and says in its answers what nodes may send.
func TestLeaderHoldsPublishers(t *testing.T) {
	for _, known := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			n := node(1)
			r := newRigWith(t, plain(), func(c *Config) { c.Bursts = func() bool { return known } }, n)
			r.answerRoll(n)
			r.l.Receive(n.ID, &wire.Attach{Queue: 7, Origin: n.Origin, Consumer: wire.Consumer{No: 1, WindowMessages: 1 << 30, WindowBytes: 1 << 40, Prefetch: 2000}})
			await[*wire.Attached](r, n.ID, nil)
			pace := r.starve(n, time.Second)
			if known != (pace > 0) {
				t.Errorf("nodes know of bursts: %v, %d a second asked for", known, pace)
			}
			if in, _ := starved(0); pace > uint64(in) {
				t.Errorf("%d a second, %.0f with free publishers", pace, in)
			}
			r.l.Stop()
		})
	}
}

// starve publishes and consumes as a machine that has too little for both, and returns the pace asked for last.
func (r *rig) starve(n Node, length time.Duration) (pace uint64) {
	const tick = 10 * time.Millisecond
	debt := 0.0
	var held []wire.Item
	for t := time.Duration(0); t < length; t += tick {
		in, out := starved(float64(pace))
		ops := make([]fsm.Op, int(in*tick.Seconds()))
		for i := range ops {
			ops[i] = pub("m")
		}
		last := r.batch(n, ops...)
		debt += out * tick.Seconds()
		k := min(len(held), int(debt))
		debt -= float64(k)
		if k > 0 {
			r.settle(n, fsm.Ack, held[:k]...)
			held = held[k:]
			last = r.seq[n.Origin.Node]
		}
		time.Sleep(tick)
		synctest.Wait()
		a := await(r, n.ID, func(a *wire.Answer) bool { return a.UpTo >= last })
		pace = a.Pace
		held = append(held, r.delivered()...)
	}
	return pace
}

// delivered takes what was delivered, and forgets everything else.
func (r *rig) delivered() (items []wire.Item) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, s := range r.out {
		if d, ok := s.m.(*wire.Deliver); ok {
			items = append(items, d.Items...)
		}
	}
	r.out = nil
	return items
}
