package ctl

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
)

// replicaGrace is how much longer than the node the tool waits for an answer.
const replicaGrace = 15 * time.Second

// replicaWaitMax is what is asked for with --timeout 0.
const replicaWaitMax = 24 * time.Hour

func replicaVerbs(t *tool) []*cobra.Command {
	return []*cobra.Command{
		addMemberVerb(t),
		t.command(verb{
			use: "delete_member QUEUE NODE", short: "Remove a queue's replica from a node, and wait until that is done", min: 2, max: 2,
			long: "Remove a queue's replica from a node, and wait until that is done. It is refused for the last one, and if the queue would\n" +
				"have no majority then. The replica that add_member is just adding can be taken back. The exit code is 75 if it is not done within\n" +
				"--timeout: it goes on.",
			run: func(ctx context.Context, s *session, args []string) error {
				s.say("Removing a replica of queue %s on node %s...", args[0], args[1])
				return s.changeMember(ctx, http.MethodDelete, "delete", args)
			},
		}),
	}
}

func addMemberVerb(t *tool) *cobra.Command {
	var membership string
	cmd := t.command(verb{
		use: "add_member QUEUE NODE", short: "Add a replica of a queue on a node, and wait until it has caught up and votes", min: 2, max: 2,
		long: "Add a replica of a queue on a node, and wait until it has caught up and votes; until then it does not count for the quorum. The\n" +
			"exit code is 75 if that is not so within --timeout: it goes on.",
		run: func(ctx context.Context, s *session, args []string) error {
			if err := checkMembership(membership); err != nil {
				return err
			}
			s.say("Adding a member for queue %s on node %s...", args[0], args[1])
			return s.changeMember(ctx, http.MethodPost, "add", args)
		},
	})
	addMembership(cmd, &membership)
	return cmd
}

// addMembership adds RabbitMQ's option, of which all values that end with a voter mean the same here.
func addMembership(cmd *cobra.Command, to *string) {
	cmd.Flags().StringVar(to, "membership", "promotable", "promotable or voter, which are the same: a replica votes when it has caught up")
}

func checkMembership(m string) error {
	switch m {
	case "promotable", "voter":
		return nil
	case "non_voter":
		return usage("voter status 'non_voter' is not supported: every replica becomes a voter")
	}
	return usage("voter status '%s' is not recognised.", m)
}

func (s *session) changeMember(ctx context.Context, method, what string, args []string) error {
	ctx, at, cancel := s.patient(ctx, path("queues", "quorum", s.opt.vhost, args[0], "replicas", what))
	defer cancel()
	var left struct {
		Members []string `json:"members"`
	}
	if err := s.do(ctx, method, at, row{"node": args[1]}, &left); err != nil {
		return noReplica(err, s.opt.vhost, args[0])
	}
	if left.Members != nil {
		return errorf(ExitTimeout, "the change goes on: queue '%s' in vhost '%s' shall be on %s; see quorum_status", args[0], s.opt.vhost, strings.Join(left.Members, ", "))
	}
	return nil
}

// patient has the node wait for the end of a change as long as --timeout says, and the tool a little longer for the answer.
func (s *session) patient(ctx context.Context, path string) (_ context.Context, at string, cancel context.CancelFunc) {
	wait := time.Duration(s.opt.timeout) * time.Second
	if wait == 0 {
		wait = replicaWaitMax
	}
	asked := ctx
	ctx, cancel = context.WithTimeout(context.WithoutCancel(ctx), wait+replicaGrace)
	context.AfterFunc(asked, func() {
		if errors.Is(asked.Err(), context.Canceled) { // not its time limit
			cancel()
		}
	})
	return ctx, path + "?" + url.Values{"for": {strconv.Itoa(int(wait.Seconds()))}}.Encode(), cancel
}

// noReplica is the error of a verb about a replica: a 404 without a word of its own is about the queue.
func noReplica(err error, vhost, queue string) error {
	r, ok := errors.AsType[*refusal](err)
	switch {
	case !ok || r.status != http.StatusNotFound:
		return err
	case r.Short == "not_cluster_member":
		return errorf(ExitData, "%s", r.Reason)
	}
	return errorf(ExitData, "no queue '%s' in vhost '%s'", queue, vhost)
}
