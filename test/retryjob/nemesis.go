package retryjob

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/warrenmq/warren/test/cluster"
)

// Nemesis kills the node that leads a queue of the job, again and again.
type Nemesis struct {
	Cluster *cluster.Cluster
	// Every is the time from one kill to the next, Down how long the node is
	// away.
	Every, Down time.Duration
	// Killed, when not nil, is told about each kill.
	Killed func(node, queue string)
}

// Run kills and restarts until ctx ends, then waits until all nodes are ready
// and returns the number of kills. The nodes are up when it returns without an
// error.
func (n *Nemesis) Run(ctx context.Context) (kills int, err error) {
	// Restarts are carried through when ctx ends.
	bound, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	for i := 0; sleepUntil(ctx, time.Now().Add(n.Every-n.Down)); i++ {
		queue := []string{QueuePrimary, QueueWait, QueueParking}[i%3]
		look, done := context.WithTimeout(ctx, max(n.Every, time.Minute))
		node, err := n.Cluster.Leader(look, queue)
		done()
		if err != nil {
			if ctx.Err() != nil {
				break
			}
			return kills, err
		}
		if n.Killed != nil {
			n.Killed(node.Name, queue)
		}
		if err := node.Kill(); err != nil {
			return kills, err
		}
		kills++
		sleepUntil(ctx, time.Now().Add(n.Down))
		up, done := context.WithTimeout(bound, 2*time.Minute)
		err = node.Start(up)
		done()
		if err != nil {
			return kills, fmt.Errorf("restart after kill %d: %w", kills, err)
		}
	}
	return kills, nil
}

// RunJob runs the job while the nemesis is at work, and adds the kills to the
// report. The faults end when every job is done or rejected. Both end when one
// of them fails.
func (n *Nemesis) RunJob(ctx context.Context, cfg Config) (Report, error) {
	ctx, abort := context.WithCancelCause(ctx)
	defer abort(nil)
	raging, calm := context.WithCancel(ctx)
	defer calm()
	type outcome struct {
		kills int
		err   error
	}
	ended := make(chan outcome, 1)
	go func() {
		kills, err := n.Run(raging)
		if err != nil {
			abort(fmt.Errorf("nemesis: %w", err))
		}
		ended <- outcome{kills, err}
	}()
	var last outcome
	over := false
	end := func() error {
		if !over {
			calm()
			last, over = <-ended, true
		}
		return last.err
	}
	cfg.Calm = func(context.Context) error { return end() }
	cfg.Transferred = func(ctx context.Context) (int, bool, error) {
		q, err := n.Cluster.Queue(ctx, QueuePrimary)
		if err != nil || q.Transferred == nil {
			return 0, false, err
		}
		return *q.Transferred, true, nil
	}
	report, err := Run(ctx, cfg)
	if nemesis := end(); nemesis != nil {
		err = errors.Join(nemesis, err)
	}
	report.Kills = last.kills
	return report, err
}
