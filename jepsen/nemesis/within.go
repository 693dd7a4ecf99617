package nemesis

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/warrenmq/warren/failpoint"
	"github.com/warrenmq/warren/jepsen/db"
)

// What is done to nodes from within: it needs a binary with failpoints.

const (
	syncDelayMin, syncDelayMax = 20 * time.Millisecond, 500 * time.Millisecond
	// A sync that hangs is older than what a leader waits for, and may outlast the fault.
	syncHangMin, syncHangMax = 3 * time.Second, 8 * time.Second
	// clockMax is how far a clock is off at most, in either direction.
	clockMax = 2 * time.Hour
	// passesMax bounds which pass of a failpoint counts.
	passesMax = 20
	// timeoutEnd is how long a node with a failing disk has to end itself.
	timeoutEnd = 5 * time.Second
	pollEnd    = 50 * time.Millisecond
)

// forgetful gives the nodes disks that lose at SIGKILL what was not synced, all of it or some.
// Nodes that are killed by other nemeses lose it, too.
func forgetful(e *Env) error {
	var errs []error
	for _, n := range e.DB.Nodes() {
		errs = append(errs, e.DB.SetForget(n, []int{0, 0, 30, 70}[e.Rand.IntN(4)]))
	}
	return errors.Join(errs...)
}

// power ends one node, a majority of them or all by SIGKILL, one right after the other. Their
// disks forget what was not synced, as at a loss of power.
func power(ctx context.Context, e *Env) (Fault, error) {
	nodes := e.shuffled(ctx)
	victims := nodes[:[]int{1, len(nodes)/2 + 1, len(nodes)}[e.Rand.IntN(3)]]
	var errs []error
	for _, n := range victims {
		errs = append(errs, e.DB.Kill(n))
	}
	f := Fault{What: fmt.Sprintf("no power at %v", victims), Heal: func(context.Context) error { return launch(e, victims...) }}
	if len(victims) == 1 {
		f.Node = victims[0]
	}
	return f, errors.Join(errs...)
}

// diskSlow delays each sync of a node.
func diskSlow(ctx context.Context, e *Env) (Fault, error) {
	delay := syncDelayMin + time.Duration(e.Rand.Int64N(int64(syncDelayMax-syncDelayMin)))
	return breakDisk(ctx, e, db.Disk{SyncDelay: delay}, fmt.Sprintf("syncs take %v longer", delay.Round(time.Millisecond)))
}

// diskHang has each sync of a node take seconds.
func diskHang(ctx context.Context, e *Env) (Fault, error) {
	delay := syncHangMin + time.Duration(e.Rand.Int64N(int64(syncHangMax-syncHangMin)))
	return breakDisk(ctx, e, db.Disk{SyncDelay: delay}, fmt.Sprintf("syncs hang for %v", delay.Round(time.Millisecond)))
}

// diskFull lets nothing grow on a node's disk.
func diskFull(ctx context.Context, e *Env) (Fault, error) {
	return breakDisk(ctx, e, db.Disk{Full: true}, "disk full")
}

func breakDisk(ctx context.Context, e *Env, d db.Disk, what string) (Fault, error) {
	victim := e.Victim(ctx)
	if err := e.DB.Break(ctx, victim, d); err != nil {
		return Fault{}, err
	}
	heal := func(ctx context.Context) error {
		return orKill(e, victim, func() error { return e.DB.Break(ctx, victim, db.Disk{}) })
	}
	return Fault{Node: victim, What: what + " at " + victim, Heal: heal}, nil
}

// orKill calls f for a node that runs. If it fails, for the node may be frozen or about to end,
// the node is killed: what is wrong with a process ends with it. Then the node is started if it does not
// run.
func orKill(e *Env, node string, f func() error) error {
	if e.DB.Running(node) && f() != nil {
		if err := e.DB.Kill(node); err != nil {
			return err
		}
	}
	return launch(e, node)
}

// diskFail makes a node's writes and syncs fail. The node ends itself.
func diskFail(ctx context.Context, e *Env) (Fault, error) {
	victim := e.Victim(ctx)
	if err := e.DB.Break(ctx, victim, db.Disk{Failing: true}); err != nil {
		return Fault{}, err
	}
	heal := func(ctx context.Context) error {
		// One that has nothing to write does not see it.
		for deadline := time.Now().Add(timeoutEnd); e.DB.Running(victim) && time.Now().Before(deadline); {
			wait(ctx, pollEnd)
		}
		if err := e.DB.Kill(victim); err != nil {
			return err
		}
		return launch(e, victim)
	}
	return Fault{Node: victim, What: "disk fails at " + victim, Heal: heal}, nil
}

// clock kills a node, which comes back at once with a clock that is wrong, and again with one that is
// right.
func clock(ctx context.Context, e *Env) (Fault, error) {
	victim := e.Victim(ctx)
	offset := time.Duration(e.Rand.Int64N(int64(2*clockMax))) - clockMax
	jump := func(offset time.Duration) error {
		return errors.Join(e.DB.Kill(victim), e.DB.SetClock(victim, offset), e.DB.Launch(victim))
	}
	heal := func(context.Context) error { return jump(0) }
	return Fault{Node: victim, What: fmt.Sprintf("clock off by %v at %s", offset.Round(time.Second), victim), Heal: heal}, jump(offset)
}

// atFailpoint kills a node when it comes to some step of its work.
func atFailpoint(ctx context.Context, e *Env) (Fault, error) {
	victim := e.Victim(ctx)
	points := failpoint.Points()
	point, at := points[e.Rand.IntN(len(points))], 1+e.Rand.Uint64N(passesMax)
	if err := e.DB.Arm(ctx, victim, string(point), at); err != nil {
		return Fault{}, err
	}
	heal := func(ctx context.Context) error {
		return orKill(e, victim, func() error { return e.DB.Disarm(ctx, victim) })
	}
	return Fault{Node: victim, What: fmt.Sprintf("killed at %s, pass %d, at %s", point, at, victim), Heal: heal}, nil
}
