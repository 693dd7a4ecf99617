package ctl

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/spf13/cobra"
)

// How long the verbs that wait do so without --timeout, as in RabbitMQ's tools, and how often they look.
const (
	startupWait, nodesWait, quorumWait = 300, 300, 120 // seconds
	awaitEvery                         = 500 * time.Millisecond
)

func awaitVerbs(t *tool) []*cobra.Command {
	return []*cobra.Command{
		t.command(verb{
			use: "ping", short: "Fail if the node's process does not respond, or should be restarted",
			run: func(ctx context.Context, s *session, _ []string) error {
				s.say("Will ping %s.", s.name)
				resp, raw, err := s.send(ctx, http.MethodGet, "/healthz", nil)
				if err != nil {
					return err
				}
				if resp.StatusCode != http.StatusOK {
					return s.failed(string(raw))
				}
				s.passed("Ping succeeded")
				return nil
			},
		}),
		t.command(verb{use: "check_running", short: "Fail if the node has not started yet", run: func(ctx context.Context, s *session, _ []string) error {
			s.say("Checking if node %s is running ...", s.name)
			starts, why, err := s.starting(ctx)
			switch {
			case err != nil:
				return err
			case starts:
				return s.failed(fmt.Sprintf("Node %s has not fully started yet: %s", s.name, why))
			}
			s.passed(fmt.Sprintf("Node %s is fully started and running", s.name))
			return nil
		}}),
		stateVerb(t, "is_running", "Say whether the node has started", func(starts bool) bool { return !starts }),
		stateVerb(t, "is_booting", "Say whether the node is still starting", func(starts bool) bool { return starts }),
		awaitVerb(t, verb{use: "await_startup", short: "Wait until the node has started, for --timeout or five minutes", run: awaitStartup}, startupWait),
		awaitVerb(t, verb{
			use: "await_online_nodes COUNT", short: "Wait until this many nodes of the cluster are running, for --timeout or five minutes", min: 1, max: 1, run: awaitNodes,
		}, nodesWait),
		awaitVerb(t, verb{
			use: "await_online_quorum_plus_one", short: "Wait until neither a queue nor the catalog would lose its quorum without the node, for --timeout or two minutes",
			run: func(ctx context.Context, s *session, _ []string) error {
				s.say("Will wait for a quorum + 1 of nodes to be online for all quorum queues ...")
				return s.until(ctx, func() (bool, string, error) {
					ok, answer, err := s.ask(ctx, path("health", "checks", "node-is-quorum-critical"))
					if err != nil || ok {
						return ok, "", err
					}
					return false, unspared(answer.Queues), nil
				})
			},
		}, quorumWait),
	}
}

// unspared says what would lose its quorum without a node.
func unspared(critical []criticalQueue) string {
	queues := slices.DeleteFunc(slices.Clone(critical), func(q criticalQueue) bool { return q.Type == "process" })
	text := fmt.Sprintf("%d queues have no replica to spare", len(queues))
	if len(queues) < len(critical) {
		text += ", and the catalog has no voter"
	}
	return text
}

// awaitVerb is a verb that waits for so many seconds if --timeout does not say anything else.
func awaitVerb(t *tool, v verb, wait int) *cobra.Command {
	cmd := t.command(v)
	run := cmd.RunE
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if !t.given("timeout") {
			t.opt.timeout = wait
		}
		return run(cmd, args)
	}
	return cmd
}

// stateVerb tells about the start of a node; what it says is no failure.
func stateVerb(t *tool, use, short string, is func(starts bool) bool) *cobra.Command {
	return t.command(verb{use: use, short: short, run: func(ctx context.Context, s *session, _ []string) error {
		s.say("Asking node %s for its status ...", s.name)
		starts, why, err := s.starting(ctx)
		if err != nil {
			return err
		}
		text := fmt.Sprintf("Node %s is fully started and running", s.name)
		if starts {
			text = fmt.Sprintf("Node %s is %s", s.name, why)
		}
		if s.opt.formatter == formatJSON {
			raw, err := json.Marshal(row{"result": is(starts), "message": text})
			if err != nil {
				return err
			}
			text = string(raw)
		}
		s.printf("%s\n", text)
		return nil
	}})
}

// starting tells whether a node's process is still on its way, and what it does.
func (s *session) starting(ctx context.Context) (starts bool, why string, err error) {
	resp, raw, err := s.send(ctx, http.MethodGet, "/readyz", nil)
	if err != nil {
		return false, "", err
	}
	var state struct {
		Status string `json:"status"`
		Reason string `json:"reason"`
		Step   string `json:"step"`
	}
	if err := json.Unmarshal(raw, &state); err != nil || state.Status == "" {
		return false, "", s.refused(resp, raw)
	}
	return state.Step == "starting", state.Reason, nil
}

// until looks again and again until done; why says what is missing. Nodes that do not answer are waited for.
func (s *session) until(ctx context.Context, look func() (done bool, why string, err error)) error {
	why := "no answer"
	for {
		done, now, err := look()
		e, ok := errors.AsType[*Error](err)
		switch {
		case err != nil && (!ok || e.Code != ExitUnavailable && e.Code != ExitTimeout):
			return err
		case ok && ctx.Err() != nil: // the last look was cut off: what the one before has seen is why
		case ok:
			why = e.Text
		case done:
			return nil
		default:
			why = now
		}
		select {
		case <-time.After(awaitEvery):
		case <-ctx.Done():
			return errorf(ExitTimeout, "not within %d seconds: %s", s.opt.timeout, why)
		}
	}
}

// lostMax is for how long a verb that waits for something that goes on without it bears that nobody can tell how far that is: a node is started again, or a leader
// chosen.
const lostMax = time.Minute

// absence counts for how long nobody has told.
type absence struct{ since time.Time }

// bears tells whether to go on although a look failed, if it did.
func (a *absence) bears(ctx context.Context, err error) bool {
	e, ok := errors.AsType[*Error](err)
	if !ok || e.Code != ExitUnavailable && e.Code != ExitTimeout {
		a.since = time.Time{}
		return false
	}
	if a.since.IsZero() {
		a.since = time.Now()
	}
	return ctx.Err() != nil || time.Since(a.since) < lostMax
}

func awaitStartup(ctx context.Context, s *session, _ []string) error {
	s.say("Waiting for node %s to start ...", s.name)
	return s.until(ctx, func() (bool, string, error) {
		starts, why, err := s.starting(ctx)
		return err == nil && !starts, why, err
	})
}

func awaitNodes(ctx context.Context, s *session, args []string) error {
	want, err := strconv.ParseUint(args[0], 10, 16)
	if err != nil || want == 0 {
		return errorf(ExitData, "'%s' is no number of nodes", args[0])
	}
	s.say("Will wait for at least %d nodes of the cluster to run. Timeout: %d seconds.", want, s.opt.timeout)
	return s.until(ctx, func() (bool, string, error) {
		var nodes []statusNode
		if err := s.get(ctx, path("nodes"), &nodes); err != nil {
			return false, "", err
		}
		run := 0
		for _, n := range nodes {
			if n.Running {
				run++
			}
		}
		return run >= int(want), fmt.Sprintf("%d nodes run", run), nil
	})
}
