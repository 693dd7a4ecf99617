package ctl

import (
	"context"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/spf13/cobra"
)

// bulkWait is how long a verb for many queues waits without --timeout.
const bulkWait = time.Hour

// statusColumns are those of quorum_status, by RabbitMQ's names, and three of ours at the end.
var statusColumns = []string{
	"Node Name", "Raft State", "Membership", "Last Log Index", "Last Applied", "Commit Index", "Snapshot Index", "Term", "Machine Version", "Lag", "Planned", "Election",
}

func quorumVerbs(t *tool) []*cobra.Command {
	return []*cobra.Command{
		growVerb(t), growToVerb(t),
		shrinkVerb(t),
		t.command(verb{
			use: "quorum_status QUEUE", short: "Show the replicas of a queue: which leads, how far each is, and what is planned", min: 1, max: 1,
			long: "Show the replicas of a queue, in rabbitmq-queues' columns and three more: Lag is the number of entries that the leader has and the\n" +
				"replica does not, Planned is stays, joins or goes, and Election is when the leader became one and after whom. The state of a replica that does not answer is nodedown (its node does not\n" +
				"run), noproc (the node has none) or timeout. Membership promotable is a replica that does not vote yet. Machine Version is the\n" +
				"cluster's level.",
			run: func(ctx context.Context, s *session, args []string) error {
				s.say("Status of queue %s on node %s ...", args[0], s.name)
				var rows []row
				if err := s.get(ctx, path("queues", "quorum", s.opt.vhost, args[0], "status"), &rows); err != nil {
					return noReplica(err, s.opt.vhost, args[0])
				}
				return s.list(statusColumns, rows)
			},
		}),
		t.command(verb{
			use: "transfer_leadership QUEUE NODE", short: "Make the replica on a node the leader of a queue, now and in future", min: 2, max: 2,
			long: "Make the replica on a node the leader of a queue, now and in future: the queue is at home there, and its leader comes back after a restart of\n" +
				"the node. The exit code is 75 if it does not lead at once: it will when it has caught up.",
			run: transferLeadership,
		}),
		t.command(verb{
			use: "forget_cluster_node NODE", short: "Remove a stopped node from the cluster, permanently", min: 1, max: 1,
			long: "Remove a stopped node from the cluster, permanently: its data folder is not let in again. It is refused while the\n" +
				"node runs, and while it has replicas of queues: see shrink and decommission_node.",
			run: forgetNode,
		}),
	}
}

func transferLeadership(ctx context.Context, s *session, args []string) error {
	s.say("Transferring leadership of quorum queue %s to node %s...", args[0], args[1])
	var answer struct {
		Leader string `json:"leader"`
		Reason string `json:"reason"`
	}
	if err := s.do(ctx, http.MethodPut, path("warren", "queues", s.opt.vhost, args[0], "leader"), row{"node": args[1]}, &answer); err != nil {
		return noReplica(err, s.opt.vhost, args[0])
	}
	if answer.Leader == "" {
		return errorf(ExitTimeout, "%s", answer.Reason)
	}
	s.printf("%s\n", answer.Leader)
	return nil
}

func forgetNode(ctx context.Context, s *session, args []string) error {
	s.say("Removing node %s from the cluster", args[0])
	var answer struct {
		Reason string `json:"reason"`
	}
	if err := s.do(ctx, http.MethodDelete, path("warren", "nodes", args[0]), nil, &answer); err != nil {
		return found(err, noNode(args))
	}
	if answer.Reason != "" {
		s.printf("%s\n", answer.Reason)
	}
	return nil
}

func growVerb(t *tool) *cobra.Command {
	var vhosts, queues, membership string
	var errorsOnly bool
	cmd := t.command(verb{
		use: "grow NODE all|even", short: "Add a replica on a node to all queues, or to those with an even number of replicas", min: 2, max: 2,
		long: "Add a replica on a node to all queues, or to those with an even number of replicas, some at a time, and wait until they vote. Queues that\n" +
			"have one there already, or are deleted meanwhile, are left out. Patterns are regular expressions of Go, and match anywhere in a name. The exit code is 70 if\n" +
			"something could not be done; it can be run again. Without --timeout it takes up to an hour.",
		run: func(ctx context.Context, s *session, args []string) error {
			if err := checkMembership(membership); err != nil {
				return err
			}
			if args[1] != "all" && args[1] != "even" {
				return usage("strategy '%s' is not recognised.", args[1])
			}
			s.say("Growing %s quorum queues on %s...", args[1], args[0])
			body := row{"strategy": args[1], "vhost_pattern": vhosts, "queue_pattern": queues, "membership": membership}
			return s.bulkOn(ctx, t.given("timeout"), http.MethodPost, "grow", args[0], body, errorsOnly)
		},
	})
	addMembership(cmd, &membership)
	addPatterns(cmd, &vhosts, &queues)
	addErrorsOnly(cmd, &errorsOnly)
	return cmd
}

func growToVerb(t *tool) *cobra.Command {
	var vhosts, queues, membership string
	var errorsOnly bool
	cmd := t.command(verb{
		use: "grow_to_count COUNT all|even", short: "Add replicas to all queues, or to those with an even number, until they have this many", min: 2, max: 2,
		long: "Give all queues, or those with an even number of replicas, replicas until they have so many, or one on each node that runs. Nodes in\n" +
			"zones where a queue has none come first, then those with the fewest replicas. Queues that have as many, or more, are left out. It\n" +
			"goes on as grow does otherwise.",
		run: func(ctx context.Context, s *session, args []string) error {
			if err := checkMembership(membership); err != nil {
				return err
			}
			count, err := strconv.Atoi(args[0])
			if err != nil || count < 1 {
				return usage("count '%s' is no positive number.", args[0])
			}
			if args[1] != "all" && args[1] != "even" {
				return usage("strategy '%s' is not recognised.", args[1])
			}
			s.say("Growing %s quorum queues to %d replicas...", args[1], count)
			body := row{"count": count, "strategy": args[1], "vhost_pattern": vhosts, "queue_pattern": queues, "membership": membership}
			return s.bulk(ctx, t.given("timeout"), http.MethodPost, path("warren", "replicas", "grow-to-count"), body, errorsOnly, errorf(ExitSoftware, "node %s does not know of this", s.name))
		},
	})
	addMembership(cmd, &membership)
	addPatterns(cmd, &vhosts, &queues)
	addErrorsOnly(cmd, &errorsOnly)
	return cmd
}

// addPatterns adds the flags that choose queues.
func addPatterns(cmd *cobra.Command, vhosts, queues *string) {
	cmd.Flags().StringVar(vhosts, "vhost-pattern", ".*", "regular expression of names of virtual hosts")
	cmd.Flags().StringVar(queues, "queue-pattern", ".*", "regular expression of names of queues")
}

func shrinkVerb(t *tool) *cobra.Command {
	var errorsOnly bool
	cmd := t.command(verb{
		use: "shrink NODE", short: "Remove all replicas of queues from a node", min: 1, max: 1,
		long: "Remove all replicas of queues from a node, some at a time, and wait until they are gone. The queues have one replica less then:\n" +
			"decommission_node moves them to other nodes instead. The exit code is 70 if something could not be done; it can be run again. Without\n" +
			"--timeout it takes up to an hour.",
		run: func(ctx context.Context, s *session, args []string) error {
			s.say("Shrinking quorum queues on %s...", args[0])
			return s.bulkOn(ctx, t.given("timeout"), http.MethodDelete, "shrink", args[0], nil, errorsOnly)
		},
	})
	addErrorsOnly(cmd, &errorsOnly)
	return cmd
}

func addErrorsOnly(cmd *cobra.Command, to *bool) {
	cmd.Flags().BoolVar(to, "errors-only", false, "list only queues that could not be changed")
}

// bulkOn changes the replicas on a node and lists what came of each queue.
func (s *session) bulkOn(ctx context.Context, limited bool, method, what, node string, body any, errorsOnly bool) error {
	return s.bulk(ctx, limited, method, path("queues", "quorum", "replicas", "on", node, what), body, errorsOnly, noNode([]string{node}))
}

// bulk changes replicas by a request and lists what came of each queue. absent is the error of a 404.
func (s *session) bulk(ctx context.Context, limited bool, method, at string, body any, errorsOnly bool, absent *Error) error {
	if !limited {
		s.opt.timeout = int(bulkWait.Seconds())
	}
	ctx, at, cancel := s.patient(ctx, at)
	defer cancel()
	var rows []row
	if err := s.do(ctx, method, at, body, &rows); err != nil {
		return found(err, absent)
	}
	failed := slices.DeleteFunc(slices.Clone(rows), func(r row) bool { return r["result"] == "ok" })
	if errorsOnly {
		rows = failed
	}
	if err := s.list([]string{"vhost", "name", "size", "result"}, rows); err != nil {
		return err
	}
	if len(failed) == 0 {
		return nil
	}
	if err := s.flush(); err != nil {
		return err
	}
	return errorf(ExitSoftware, "%d queues could not be changed", len(failed))
}
