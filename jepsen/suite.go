package jepsen

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/warrenmq/warren/jepsen/nemesis"
	"github.com/warrenmq/warren/jepsen/report"
)

// Plan says which runs a Suite does.
type Plan struct {
	// Base is what the runs have in common. Their nemeses are some of its; their seeds count
	// up from its.
	Base Config
	// Workloads and Nodes are gone through in turns.
	Workloads []string
	Nodes     []int
	// Budget is how long it may take: a run that might not end in time is not begun, except
	// for the first.
	Budget time.Duration
	// GoOn says that an invalid run does not end it.
	GoOn bool
}

// Suite does runs one after the other, each under a seed of its own. Each report is given to
// done.
func Suite(ctx context.Context, p Plan, done func(report.Report)) (valid bool, err error) {
	begun := time.Now()
	valid = true
	var longest time.Duration
	for i := 0; ctx.Err() == nil; i++ {
		if i > 0 && time.Since(begun)+longest > p.Budget {
			break
		}
		cfg := p.Base
		cfg.Seed += uint64(i)
		cfg.Workload = p.Workloads[i%len(p.Workloads)]
		round := i / len(p.Workloads)
		cfg.Nemeses = combination(p.Base.Nemeses, p.Base.Failpoints, round, p.Base.Seed)
		cfg.Nodes = p.Nodes[round%len(p.Nodes)]
		r, err := Run(ctx, cfg)
		if err != nil {
			return false, err
		}
		longest = max(longest, r.Took)
		valid = valid && r.Valid
		done(r)
		if !valid && !p.GoOn {
			break
		}
	}
	return valid, ctx.Err()
}

// combination returns the nemeses of round i: all of them first, then in turns each alone, beginning
// with one that the seed chooses, and a few by chance.
func combination(names []string, within bool, i int, seed uint64) []string {
	list, err := nemesis.Select(names, true, within)
	if err != nil || i == 0 || len(list) < 2 {
		return names // an error is reported by Run
	}
	if i%2 == 1 {
		return []string{list[(uint64(i/2)+seed)%uint64(len(list))].Name}
	}
	r := rand.New(rand.NewPCG(seed, uint64(i)))
	var some []string
	for _, j := range r.Perm(len(list))[:2+r.IntN(min(3, len(list)-1))] {
		some = append(some, list[j].Name)
	}
	return some
}
