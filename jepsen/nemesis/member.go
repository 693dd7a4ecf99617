package nemesis

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/warrenmq/warren/jepsen/db"
	"github.com/warrenmq/warren/jepsen/network"
)

const (
	replicas = 3 // that a queue is to have
	// membersRetry is between two attempts to change a queue's members, of which one is under way at a time, and membersPatience for how
	// long: the node that it is about may be down by another fault that is healed later.
	membersRetry, membersPatience = 200 * time.Millisecond, 5 * time.Second
)

// members moves a replica of a queue to another node: a new one is asked for, and when that is healed an old one, perhaps the leader, is let go. Where
// there is no other node a replica is let go, and asked for again.
func members(ctx context.Context, e *Env) (Fault, error) {
	if len(e.Queues) == 0 {
		return Fault{}, errors.New("the workload has no queues")
	}
	queue := e.Queues[e.Rand.IntN(len(e.Queues))]
	have, err := e.DB.Members(ctx, queue)
	if err != nil {
		return Fault{}, err
	}
	var others []string
	for _, n := range e.DB.Nodes() {
		if !slices.Contains(have, n) {
			others = append(others, n)
		}
	}
	choice := e.Rand.IntN(1 << 20)
	if len(others) > 0 && len(have) <= replicas {
		node := others[choice%len(others)]
		return Fault{Node: node, What: fmt.Sprintf("a replica of %s goes to %s", queue, node), Heal: func(ctx context.Context) error {
			return setMember(ctx, e, queue, have[choice%len(have)], false)
		}}, e.DB.SetMember(ctx, queue, node, true)
	}
	node := have[choice%len(have)]
	return Fault{Node: node, What: fmt.Sprintf("%s loses its replica of %s", node, queue), Heal: func(ctx context.Context) error {
		if len(have) > replicas {
			return nil // there were too many
		}
		return setMember(ctx, e, queue, node, true)
	}}, e.DB.SetMember(ctx, queue, node, false)
}

// setMember asks until that is taken on, or for membersPatience; which is no error: other faults may keep the cluster from it, and the next
// one takes the queue as it is.
func setMember(ctx context.Context, e *Env, queue, node string, member bool) error {
	ctx, cancel := context.WithTimeout(ctx, membersPatience)
	defer cancel()
	for {
		err := e.DB.SetMember(ctx, queue, node, member)
		if err == nil || errors.Is(err, db.ErrUnsupported) || ctx.Err() != nil {
			return nil
		}
		wait(ctx, membersRetry)
	}
}

// move ends a node, by SIGKILL or in order, and starts it again at an address that it never had.
func move(ctx context.Context, e *Env) (Fault, error) {
	lan, ok := e.Net.(network.Movable)
	if !ok {
		return Fault{}, errors.New("addresses cannot be changed here")
	}
	victim := e.Victim(ctx)
	if !e.DB.Running(victim) {
		return Fault{}, errors.New("it is down already")
	}
	what := "killed " + victim + ", to come back elsewhere"
	end := func() error { return e.DB.Kill(victim) }
	if e.Rand.IntN(2) == 0 {
		what = "stopped " + victim + ", to come back elsewhere"
		end = func() error {
			stopping, cancel := context.WithTimeout(ctx, 15*time.Second)
			defer cancel()
			_ = e.DB.Stop(stopping, victim) // it is killed if it does not end
			return nil
		}
	}
	if err := end(); err != nil {
		return Fault{}, err
	}
	return Fault{Node: victim, What: what, Heal: func(context.Context) error {
		if e.DB.Running(victim) {
			return nil // another fault's end has started it
		}
		return errors.Join(lan.Readdress(victim), e.DB.Move(victim), launch(e, victim))
	}}, nil
}
