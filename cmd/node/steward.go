package main

import (
	"context"
	"time"

	"github.com/warrenmq/warren/cluster/repair"
	"github.com/warrenmq/warren/metrics"
	"github.com/warrenmq/warren/steward"
)

// openSteward looks after the places of replicas from now on.
func (n *running) openSteward(context.Context) error {
	n.steward = steward.New(steward.Config{
		Catalog: n.catalog.Load(), Alive: n.runs, Ended: n.detector.Ended, Clock: n.mesh.Clock, Logger: n.log,
		Policy: repair.Policy{After: n.cfg.RepairAfter, Groups: n.cfg.RepairGroups},
	})
	n.onClose("steward", func() error {
		n.steward.Close()
		return nil
	})
	return nil
}

// downAfter is how long a node must have been dead before the catalog notes it: 10 s, or less where repairs are to begin sooner.
func (n *running) downAfter() time.Duration {
	const usual = 10 * time.Second
	if after := n.cfg.RepairAfter; after > 0 {
		return min(usual, after)
	}
	return usual
}

// repairs are the figures of replicas that are moved.
func (n *running) repairs() metrics.Repair {
	s := n.steward.Stats()
	r := metrics.Repair{
		Refused: s.Refused, Plans: map[string]uint64{}, Queues: map[string]int{
			"waiting": s.Waiting, "underway": s.Underway, "stalled": s.Stalled, "nowhere": s.Nowhere, "no_majority": s.NoMajority,
			"short": s.Short,
		},
	}
	for _, reason := range repair.Reasons() {
		r.Plans[reason.String()] = s.Plans[reason]
	}
	r.FillBytes, r.FillWait = n.fill.Stats()
	return r
}
