package ctl

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/spf13/cobra"
)

// stateRegular is the state of a node that does not leave.
const stateRegular = "regular"

// leavePoll is the time between two questions how far a node is, leaveLook how long one may take, and leaveLine the longest without a line about it.
const leavePoll, leaveLook, leaveLine = 500 * time.Millisecond, 3 * time.Second, 30 * time.Second

func stewardVerbs(t *tool) []*cobra.Command {
	return []*cobra.Command{decommissionVerb(t), rebalanceVerb(t)}
}

func decommissionVerb(t *tool) *cobra.Command {
	var cancel, detached bool
	cmd := t.command(verb{
		use: "decommission_node NODE", short: "Remove a node from the cluster permanently: its replicas move to other nodes, then it is forgotten", min: 1, max: 1,
		long: "Let a node leave the cluster for good, whether it runs or is dead: other nodes take its replicas of queues, its vote in the catalog's\n" +
			"group and its leaders; then it is forgotten, and if it runs it sends its clients away and ends. Its data folder is of no use any more: a\n" +
			"node of that name can join with an empty one. The verb waits without a time limit unless --timeout is given (exit code 75: it goes on, and the\n" +
			"verb can be called again). Without a node that could take its replicas it says so and goes on waiting. --cancel undoes it, but for what has\n" +
			"moved; a call that waits then ends with exit code 70. If the node that is asked does not answer for\n" +
			"a minute the verb ends, too, and what it has begun goes on. Of several calls at the same time each ends when the node has left.",
		run: func(ctx context.Context, s *session, args []string) error {
			if cancel {
				s.say("Node %s stays in the cluster ...", args[0])
				return found(s.do(ctx, http.MethodDelete, leavePath(args[0]), nil, nil), noNode(args))
			}
			return decommission(ctx, s, args[0], t.given("timeout"), detached)
		},
	})
	cmd.Flags().BoolVar(&cancel, "cancel", false, "the node stays after all")
	cmd.Flags().BoolVar(&detached, "no-wait", false, "only mark the node; call the verb again to end it")
	return cmd
}

func leavePath(node string) string { return path("warren", "nodes", node, "decommission") }

// leaving is how far a node is.
type leaving struct {
	State      string `json:"state"`
	Replicas   int    `json:"replicas"`
	Waiting    int    `json:"waiting"`
	Underway   int    `json:"underway"`
	Stalled    int    `json:"stalled"`
	Nowhere    int    `json:"nowhere"`
	NoMajority int    `json:"no_majority"`
	Voter      bool   `json:"voter"`
	Done       bool   `json:"done"`
}

// String says in words what is left.
func (l leaving) String() string {
	var parts []string
	if l.Replicas > 0 {
		parts = append(parts, fmt.Sprintf("%d queues have replicas there, of which %d are being moved", l.Replicas, l.Underway))
	}
	if l.Nowhere > 0 {
		parts = append(parts, fmt.Sprintf("%d can go nowhere, because no other node can take them (add a node, or take the replicas away with shrink)", l.Nowhere))
	}
	if l.NoMajority > 0 {
		parts = append(parts, fmt.Sprintf("%d have no majority of living members", l.NoMajority))
	}
	if l.Stalled > 0 {
		parts = append(parts, fmt.Sprintf("%d wait for a node that does not answer", l.Stalled))
	}
	if l.Voter {
		parts = append(parts, "it votes in the catalog's group")
	}
	return strings.Join(parts, "; ")
}

func decommission(ctx context.Context, s *session, node string, limited, detached bool) error {
	if !limited { // the option's default is for answers that come at once
		asked := ctx
		unlimited, cancel := context.WithCancel(context.WithoutCancel(ctx))
		defer cancel()
		context.AfterFunc(asked, func() {
			if errors.Is(asked.Err(), context.Canceled) {
				cancel()
			}
		})
		ctx = unlimited
	}
	s.say("Node %s leaves the cluster ...", node)
	var l leaving
	if err := s.do(ctx, http.MethodPut, leavePath(node), nil, &l); err != nil {
		return found(err, noNode([]string{node}))
	}
	if detached {
		s.say("%s", l)
		return nil
	}
	err := l.follow(ctx, s, node)
	if err == nil {
		err = s.retry(ctx, func() error { return s.do(ctx, http.MethodPost, leavePath(node)+"/end", nil, nil) })
	}
	if err != nil && !isNotFound(err) { // it is gone: somebody else has called the verb, too
		return err
	}
	s.say("Node %s is no node of the cluster any more", node)
	return nil
}

// follow waits until a node that leaves has nothing any more, and tells how far it is. It ends when somebody else has the node stay.
func (l *leaving) follow(ctx context.Context, s *session, node string) error {
	said, at := "", time.Time{}
	var lost absence
	for !l.Done {
		if l.State == stateRegular {
			return errorf(ExitSoftware, "node %s stays in the cluster: somebody has called the verb with --cancel", node)
		}
		if line := l.String(); line != said && time.Since(at) > time.Second || time.Since(at) > leaveLine {
			s.say("%s", line)
			if err := s.flush(); err != nil {
				return err
			}
			said, at = line, time.Now()
		}
		select {
		case <-ctx.Done():
			return errorf(ExitTimeout, "it goes on: %s", l)
		case <-time.After(leavePoll):
		}
		if err := l.look(ctx, s, node); err != nil && !lost.bears(ctx, err) {
			return err
		}
	}
	return nil
}

// look asks how far a node is. Without a limit of its own it would wait for a node that is frozen for as long as that is.
func (l *leaving) look(ctx context.Context, s *session, node string) error {
	ctx, cancel := context.WithTimeout(ctx, leaveLook)
	defer cancel()
	return s.get(ctx, leavePath(node), l)
}

// retry does something again while the node does not answer, or cannot at the moment.
func (s *session) retry(ctx context.Context, do func() error) error {
	for lost := (absence{}); ; {
		err := do()
		if !lost.bears(ctx, err) || ctx.Err() != nil {
			return err
		}
		select {
		case <-time.After(leavePoll):
		case <-ctx.Done():
			return err
		}
	}
}

func rebalanceVerb(t *tool) *cobra.Command {
	var vhosts, queues string
	cmd := t.command(verb{
		use: "rebalance all|classic|quorum|stream", short: "Distribute the leaders of queues evenly over the nodes", min: 1, max: 1,
		long: "Even out which nodes should lead queues, as far as their replicas are there: all of them, or those of a type (there are no streams) whose names match.\n" +
			"Leaders follow at the pace of --leader-moves. Patterns are regular expressions of Go, and match anywhere in a name. It shows how many\n" +
			"of these queues each node should lead now.",
		run: func(ctx context.Context, s *session, args []string) error {
			switch args[0] {
			case "all", "classic", "quorum", "stream":
			default:
				return usage("type '%s' is not recognised: want all, classic, quorum or stream", args[0])
			}
			s.say("Rebalancing %s queues...", args[0])
			var answer struct {
				Nodes []row `json:"nodes"`
			}
			body := row{"type": args[0], "vhost_pattern": vhosts, "queue_pattern": queues}
			if err := s.do(ctx, http.MethodPost, path("rebalance", "queues"), body, &answer); err != nil {
				return err
			}
			return s.list([]string{"node", "queues"}, answer.Nodes)
		},
	})
	addPatterns(cmd, &vhosts, &queues)
	return cmd
}
