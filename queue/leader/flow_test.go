package leader

import (
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/warrenmq/warren/fsm"
	"github.com/warrenmq/warren/queue/wire"
)

// machine says what comes in and goes out in a second while bursts of a size go round, 0 without any.
type machine func(burst int64) (in, out float64)

// A message taken in costs 13 us of a machine, one given out 16, and where publishers have more under way than consumers may
// hold, they get twice as many of the turns.
func starved(burst int64) (in, out float64) {
	const takes, gives = 13e-6, 16e-6
	if burst == 0 {
		turns := 1 / (2*takes + gives)
		return 2 * turns, turns
	}
	in = min(float64(burst)/5e-3, 1/takes)
	return in, (1 - in*takes) / gives
}

// Consumers that may hold so little that publishers get thirty turns for one of theirs.
func small(burst int64) (in, out float64) {
	if burst == 0 {
		return 100_000, 3_000
	}
	in = float64(burst) / 2.5e-3
	return in, 3_000 + max(0, 100_000-in)/6
}

// Consumers that do a certain number, whoever publishes.
func slow(rate float64) machine {
	return func(burst int64) (in, out float64) {
		if burst == 0 {
			return 75_000, rate
		}
		return min(float64(burst)/5e-3, 75_000), rate
	}
}

// run has flow control decide for so long, and returns the share of the time in which publishers were held and what came in and
// went out in a second, all of it behind the first ten.
func run(w machine, noise float64, length time.Duration) (held, in, out float64) {
	f, now, random := flow{}, time.Unix(1e9, 0), rand.New(rand.NewPCG(1, 2))
	seconds := flowWindow.Seconds()
	n := 0.0
	for t := time.Duration(0); t < length; t += flowWindow {
		now = now.Add(flowWindow)
		i, o := w(f.burst)
		around := func(x float64) float64 { return x * (1 + noise*(2*random.Float64()-1)) }
		p := pace{in: int64(around(i) * seconds), out: int64(around(o) * seconds), took: flowWindow}
		if t >= 10*time.Second {
			n++
			in, out = in+float64(p.in)/seconds, out+float64(p.out)/seconds
			if f.burst > 0 {
				held++
			}
		}
		f.decide(p, now, true)
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
		{"starved", starved, 0.9, 1, 32_000, 31_000}, // 23,800 went out of 47,600
		{"slow, two thirds", slow(50_000), 0, 0.1, 72_000, 49_000},
		{"slow, a third", slow(25_000), 0, 0.1, 70_000, 24_000},
		{"very slow", slow(1_000), 0, 0.05, 72_000, 900},
		{"a small prefetch", small, 0.9, 1, 45_000, 9_000}, // 3,000 of 100,000
		{"as fast", slow(75_000), 0, 1, 70_000, 74_000},
	} {
		for _, noise := range []float64{0, 0.3} {
			held, in, out := run(c.machine, noise, 5*time.Minute)
			if held < c.heldMin || held > c.heldMax || in < c.in || out < c.out {
				t.Errorf("%s, noise %v: held %.2f of the time, %.0f in, %.0f out", c.name, noise, held, in, out)
			}
		}
	}
}

// Whatever it is good for, publishers keep half of what they have when they are free.
func TestFlowControlLeavesPublishersHalf(t *testing.T) {
	eager := func(burst int64) (in, out float64) {
		if burst == 0 {
			return 80_000, 21_000
		}
		in = float64(burst) / 5e-3
		return in, 21_000 + (80_000-in)/6
	}
	held, in, _ := run(eager, 0, time.Minute)
	if held < 0.5 || in < 40_000 {
		t.Errorf("held %.2f of the time, %.0f of 80,000 in", held, in)
	}
}

// A queue that has caught up holds nobody; what was found counts when it falls behind again.
func TestFlowControlOfAQueueThatCatchesUp(t *testing.T) {
	f, now := flow{}, time.Unix(1e9, 0)
	step := func(behind bool) {
		now = now.Add(flowWindow)
		in, out := starved(f.burst)
		f.decide(pace{int64(in / 20), int64(out / 20), flowWindow}, now, behind)
	}
	for range 60 {
		step(true)
	}
	if !f.pays || f.burst == 0 {
		t.Fatalf("not held: %+v", f)
	}
	size := f.burst
	step(false)
	if f.burst != 0 || f.share() != 0 {
		t.Errorf("still bursts of %d", f.burst)
	}
	step(true)
	if f.burst != size {
		t.Errorf("bursts of %d, want %d again", f.burst, size)
	}
	f.nodes = 3
	if s := f.share(); s != uint64(size/3) {
		t.Errorf("each of three nodes may send %d of %d", s, size)
	}
}

// Publishers are free again where commits become so slow that nothing can be compared, and where more comes in than in the comparison
// and consumers get nothing of it.
func TestFlowControlLetsGo(t *testing.T) {
	f, now := flow{}, time.Unix(1e9, 0)
	step := func(took time.Duration, in, out float64) {
		now = now.Add(took)
		f.decide(pace{int64(in * took.Seconds()), int64(out * took.Seconds()), took}, now, true)
	}
	trial := func(in float64) {
		t.Helper()
		f = flow{}
		for range 11 {
			step(flowWindow, in, 1_000)
		}
		if f.burst == 0 {
			t.Fatal("no trial")
		}
	}
	trial(20_000)
	for range 20 {
		step(250*time.Millisecond, float64(f.burst)*4, 1_000)
	}
	if f.burst != 0 || f.rest != flowRest {
		t.Errorf("held in bursts of %d after five seconds of slow commits", f.burst)
	}
	trial(20_000)
	step(time.Minute, 0, 0)
	if f.burst != 0 {
		t.Errorf("held in bursts of %d after a minute without anything", f.burst)
	}
	trial(2_000)
	for range 30 {
		step(flowWindow, min(60_000, float64(f.burst)/8e-3), 1_000)
	}
	if f.burst != 0 || f.pays {
		t.Errorf("held in bursts of %d: more comes in than before, and no more goes out", f.burst)
	}
}

// The leader of a queue counts what it takes in and what consumers settle, and says in its answers what nodes may send.
func TestLeaderAsksForBursts(t *testing.T) {
	for _, known := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			n := node(1)
			r := newRigWith(t, plain(), func(c *Config) { c.Bursts = func() bool { return known } }, n)
			r.answerRoll(n)
			r.l.Receive(n.ID, &wire.Attach{Queue: 7, Origin: n.Origin, Consumer: wire.Consumer{No: 1, WindowMessages: 1 << 30, WindowBytes: 1 << 40, Prefetch: 2000}})
			await[*wire.Attached](r, n.ID, nil)
			burst := r.starve(n, 3*time.Second)
			if known != (burst > 0) {
				t.Errorf("nodes know of bursts: %v, asked for %d", known, burst)
			}
			if burst > burstMax {
				t.Errorf("bursts of %d", burst)
			}
			r.l.Stop()
		})
	}
}

// starve publishes and consumes as a machine that has too little for both, and returns the burst asked for last.
func (r *rig) starve(n Node, length time.Duration) (burst uint64) {
	const tick = 10 * time.Millisecond
	debt := 0.0
	var held []wire.Item
	for t := time.Duration(0); t < length; t += tick {
		in, out := starved(int64(burst))
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
		burst = a.Burst
		held = append(held, r.delivered()...)
	}
	return burst
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
