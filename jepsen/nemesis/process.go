package nemesis

import (
	"context"
	"errors"
	"fmt"
	"syscall"
	"time"
)

// kill ends a node by SIGKILL and starts it again.
func kill(ctx context.Context, e *Env) (Fault, error) {
	victim := e.Victim(ctx)
	if err := e.DB.Kill(victim); err != nil {
		return Fault{}, err
	}
	return Fault{Node: victim, What: "killed " + victim, Heal: func(context.Context) error { return launch(e, victim) }}, nil
}

// killAll ends all nodes by SIGKILL, one right after the other, and starts them again.
func killAll(_ context.Context, e *Env) (Fault, error) {
	var errs []error
	for _, n := range e.DB.Nodes() {
		errs = append(errs, e.DB.Kill(n))
	}
	heal := func(context.Context) error { return launch(e, e.DB.Nodes()...) }
	return Fault{What: "killed all nodes", Heal: heal}, errors.Join(errs...)
}

// restart stops a node in order, as an operator does, and starts it again.
func restart(ctx context.Context, e *Env) (Fault, error) {
	victim := e.Victim(ctx)
	// A node that is frozen, or has no quorum to hand over to, may take longer than this.
	stopping, cancel := context.WithTimeout(ctx, 15*time.Second)
	defer cancel()
	what := "stopped " + victim
	if err := e.DB.Stop(stopping, victim); err != nil {
		what = fmt.Sprintf("stopped %s, which did not end by itself", victim)
	}
	return Fault{Node: victim, What: what, Heal: func(context.Context) error { return launch(e, victim) }}, nil
}

// launch starts those of the nodes that do not run.
func launch(e *Env, nodes ...string) error {
	var errs []error
	for _, n := range nodes {
		if !e.DB.Running(n) {
			errs = append(errs, e.DB.Launch(n))
		}
	}
	return errors.Join(errs...)
}

// pause freezes a node by SIGSTOP.
func pause(ctx context.Context, e *Env) (Fault, error) {
	victim := e.Victim(ctx)
	if err := e.DB.Signal(victim, syscall.SIGSTOP); err != nil {
		return Fault{}, err
	}
	heal := func(context.Context) error { return e.DB.Signal(victim, syscall.SIGCONT) }
	return Fault{Node: victim, What: "froze " + victim, Heal: heal}, nil
}
