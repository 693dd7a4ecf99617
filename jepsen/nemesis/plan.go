package nemesis

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/warrenmq/warren/jepsen/history"
)

// Bounds of a step.
const (
	calmMin, calmMax = 500 * time.Millisecond, 4 * time.Second
	holdMin          = 500 * time.Millisecond
	timeoutHeal      = 30 * time.Second
)

// HoldDefault is how long faults are left at most, if nothing else is asked for.
const HoldDefault = 7 * time.Second

// Step is one fault of a plan, or two at the same time.
type Step struct {
	// Calm is the time before it.
	Calm time.Duration
	// Faults are begun one after the other, Gap apart, and healed in the same order.
	Faults []Nemesis
	Gap    time.Duration
	// Hold is how long the last of them is left.
	Hold time.Duration
	// AtLeader and Seed are for the Env.
	AtLeader bool
	Seed     uint64
}

// Plan makes the steps of a run of length total, whose faults are left for hold at most. It
// depends on its arguments only.
func Plan(seed uint64, nemeses []Nemesis, total, hold time.Duration) []Step {
	if len(nemeses) == 0 {
		return nil
	}
	r := rand.New(rand.NewPCG(seed, 1))
	between := func(low, high time.Duration) time.Duration { return low + time.Duration(r.Int64N(int64(high-low))) }
	var steps []Step
	for used := time.Duration(0); ; {
		s := Step{Calm: between(calmMin, calmMax), Hold: between(holdMin, max(hold, 2*holdMin)), AtLeader: r.IntN(2) == 0, Seed: r.Uint64()}
		order := r.Perm(len(nemeses))
		s.Faults = append(s.Faults, nemeses[order[0]])
		if len(order) > 1 && r.IntN(3) == 0 {
			s.Faults, s.Gap = append(s.Faults, nemeses[order[1]]), between(0, 2*time.Second)
		}
		used += s.Calm + s.Gap + s.Hold
		if used > total && len(steps) > 0 {
			return steps
		}
		steps = append(steps, s)
	}
}

// Run carries the steps out until the last, or ctx ends. Whatever it has begun is healed when
// it returns. The error tells what could not be healed.
func Run(ctx context.Context, e *Env, steps []Step, rec *history.Recorder) error {
	for i, s := range steps {
		e.AtLeader, e.Rand = s.AtLeader, rand.New(rand.NewPCG(s.Seed, 2))
		wait(ctx, s.Calm)
		if ctx.Err() != nil {
			return nil
		}
		var heals []func() error
		for j, n := range s.Faults {
			if j > 0 {
				wait(ctx, s.Gap)
			}
			heals = append(heals, begin(ctx, e, n, rec))
		}
		wait(ctx, s.Hold)
		for _, heal := range heals {
			if err := heal(); err != nil {
				return fmt.Errorf("step %d of the faults: %w", i+1, err)
			}
		}
	}
	return nil
}

// begin begins a fault, records it, and returns how it is healed. A fault that could not be
// begun is recorded as such, and is no error: its victim may be down already.
func begin(ctx context.Context, e *Env, n Nemesis, rec *history.Recorder) (heal func() error) {
	f, err := n.Begin(ctx, e)
	op := history.Op{Process: history.Nemesis, F: history.Fault, Value: n.Name, Type: history.Invoke, Node: f.Node, Extra: map[string]string{"what": f.What}}
	if err != nil {
		op.Error, op.Type = err.Error(), history.Fail
		rec.Record(op)
		return func() error { return nil }
	}
	op.Of = rec.Record(op)
	return func() error {
		// Healing goes on when the run is over.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), timeoutHeal)
		defer cancel()
		err := f.Heal(ctx)
		op.Type = history.OK
		if err != nil {
			op.Type, op.Error = history.Info, err.Error()
		}
		rec.Record(op)
		if err != nil {
			return fmt.Errorf("heal %s (%s): %w", n.Name, f.What, err)
		}
		return nil
	}
}

// wait waits for d or until ctx ends.
func wait(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	}
}
