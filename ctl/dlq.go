package ctl

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
)

// redriveStatus is what verbs read of a redrive.
type redriveStatus struct {
	Number    uint64 `json:"number"`
	State     string `json:"state"`
	StartedAt int64  `json:"started_at"`
	Position  uint64 `json:"position"`
	Tail      uint64 `json:"tail"`
	Discard   bool   `json:"discard"`
	Moved     uint64 `json:"moved"`
	UnderWay  int    `json:"under_way"`
	Returned  uint64 `json:"returned"`
	Missing   uint64 `json:"missing"`
	NoOrigin  uint64 `json:"no_origin"`
	Busy      uint64 `json:"busy"`
	WaitsFor  []struct {
		VHost    string `json:"vhost"`
		Queue    string `json:"queue"`
		Messages int    `json:"messages"`
		State    string `json:"state"`
	} `json:"waits_for"`
}

// redriveBody is the request of a redrive.
type redriveBody struct {
	DryRun     bool     `json:"dry_run,omitempty"`
	To         string   `json:"to,omitempty"`
	Queue      string   `json:"queue,omitempty"`
	Discard    bool     `json:"discard,omitempty"`
	Rate       uint32   `json:"rate,omitempty"`
	Reasons    []string `json:"reasons,omitempty"`
	From       string   `json:"from,omitempty"`
	OlderThan  string   `json:"older_than,omitempty"`
	NewerThan  string   `json:"newer_than,omitempty"`
	IDs        []uint64 `json:"ids,omitempty"`
	MessageIDs []string `json:"message_ids,omitempty"`
	Header     string   `json:"header,omitempty"`
	Retried    *bool    `json:"retried,omitempty"`
}

// fill takes over the filter.
func (b *redriveBody) fill(c *chosen) error {
	b.Reasons, b.From, b.OlderThan, b.NewerThan = c.reasons, c.from, c.older, c.newer
	b.MessageIDs, b.Header, b.Retried = c.messageIDs, c.header, c.wantRetried()
	for _, text := range c.ids {
		id, err := strconv.ParseUint(text, 10, 64)
		if err != nil {
			return usage("--id '%s' is no number", text)
		}
		b.IDs = append(b.IDs, id)
	}
	return nil
}

func (c *chosen) empty() bool { return len(c.parameters()) == 0 }

func dlqVerbs(t *tool) []*cobra.Command {
	cmd := &cobra.Command{
		Use:   "dlq",
		Short: "Inspect dead letters, and send them back to where they came from",
		Args:  cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				return usage("Command 'dlq %s' not found.%s", args[0], meant(cmd, args[0]))
			}
			return cmd.Help()
		},
	}
	cmd.AddCommand(
		t.command(verb{
			use: "list", short: "Queues that have been sent dead letters, or have some on their way", run: dlqList,
		}),
		dlqShow(t), dlqRetry(t), dlqDrop(t),
		t.command(verb{
			use: "release QUEUE", short: "Look again for a way for the parked dead letters of a queue", min: 1, max: 1, run: dlqRelease,
		}),
		t.command(verb{
			use: "status QUEUE", short: "Progress of the newest retry or drop", min: 1, max: 1,
			run: func(ctx context.Context, s *session, args []string) error {
				var st redriveStatus
				if err := s.redrive(ctx, "GET", args[0], nil, &st); err != nil {
					return err
				}
				return s.report(&st)
			},
		}),
		t.command(verb{
			use: "stop QUEUE", short: "Stop the newest retry or drop, without waiting; what is under way arrives, or comes back if there is no room for it", min: 1, max: 1,
			run: func(ctx context.Context, s *session, args []string) error {
				var st redriveStatus
				if err := s.redrive(ctx, "DELETE", args[0], nil, &st); err != nil {
					return err
				}
				return s.report(&st)
			},
		}),
	)
	return []*cobra.Command{cmd}
}

func (s *session) redrive(ctx context.Context, method, queue string, body, to any) error {
	err := s.do(ctx, method, path("warren", "queues", s.opt.vhost, queue, "redrive"), body, to)
	return found(err, errorf(ExitData, "no queue '%s' in vhost '%s'", queue, s.opt.vhost))
}

// dlqColumns are those of dlq list.
var dlqColumns = []string{"name", "messages", "messages_transferred", "messages_dlx", "messages_parked"}

func dlqList(ctx context.Context, s *session, _ []string) error {
	s.say("Queues with dead letters in vhost %s ...", s.opt.vhost)
	var rows []row
	if err := s.get(ctx, path("queues", s.opt.vhost), &rows); err != nil {
		return found(err, noVhost(s.opt.vhost))
	}
	var untold []string // queues of which nobody says what is in them
	for _, r := range rows {
		if state := cell(r["state"]); state == "minority" || state == "down" {
			untold = append(untold, cell(r["name"]))
		}
	}
	if len(untold) > 0 {
		s.say("Nobody can tell what is in %s, since too few of their replicas run", strings.Join(untold, ", "))
	}
	return s.list(dlqColumns, slices.DeleteFunc(rows, func(r row) bool {
		return !above0(r["messages_dlx"]) && (!above0(r["messages_transferred"]) || !above0(r["messages"]))
	}))
}

func above0(v any) bool { return !slices.Contains([]string{"", "0"}, cell(v)) }

func dlqShow(t *tool) *cobra.Command {
	var c chosen
	cmd := t.command(verb{
		use: "show QUEUE", short: "Look at the dead letters in a queue; nothing is taken", min: 1, max: 1,
		run: func(ctx context.Context, s *session, args []string) error {
			s.say("Messages of queue %s in vhost %s, %s ...", args[0], s.opt.vhost, c.state)
			return peek(ctx, s, args[0], &c)
		},
	})
	c.addPeek(cmd)
	return cmd
}

func dlqRetry(t *tool) *cobra.Command {
	var c chosen
	var dryRun, wait bool
	var to string
	var rate uint32
	cmd := t.command(verb{
		use: "retry QUEUE", short: "Send dead letters back where they came from",
		long: "Send the dead letters that are in a queue now back where they came from: all of them, or those\n" +
			"that the options choose. A message stays in the queue until its target has taken it, and if the target goes\n" +
			"it stays for good. Its death history stays with it. The exit code is 75 if it does not end within --timeout;\n" +
			"it goes on then.",
		min: 1, max: 1,
		run: func(ctx context.Context, s *session, args []string) error {
			body := redriveBody{DryRun: dryRun, Rate: rate}
			body.To, body.Queue, _ = strings.Cut(to, ":")
			if (body.To == "queue") != (body.Queue != "") {
				return usage("--to '%s' is none of last, first, exchange and queue:NAME", to)
			}
			if err := body.fill(&c); err != nil {
				return err
			}
			if dryRun {
				return s.dryRun(ctx, args[0], &body)
			}
			return s.start(ctx, args[0], &body, wait)
		},
	})
	f := cmd.Flags()
	f.StringVar(&to, "to", "last", "last or first: the queue in which a message died last or first; exchange: as it was published; queue:`NAME`")
	f.Uint32Var(&rate, "rate", 0, "so many `messages` a second at most; 0: no limit")
	f.BoolVar(&dryRun, "dry-run", false, "only tell what would go where")
	f.BoolVar(&wait, "wait", true, "wait for the end")
	c.addFilter(cmd)
	return cmd
}

func dlqDrop(t *tool) *cobra.Command {
	var c chosen
	var all, wait bool
	cmd := t.command(verb{
		use: "drop QUEUE", short: "Remove messages from a queue for good", min: 1, max: 1,
		run: func(ctx context.Context, s *session, args []string) error {
			if all != c.empty() {
				return usage("choose messages, or --all")
			}
			body := redriveBody{Discard: true}
			if err := body.fill(&c); err != nil {
				return err
			}
			return s.start(ctx, args[0], &body, wait)
		},
	})
	cmd.Flags().BoolVar(&all, "all", false, "everything that is in the queue now and with no consumer")
	cmd.Flags().BoolVar(&wait, "wait", true, "wait for the end")
	c.addFilter(cmd)
	return cmd
}

func dlqRelease(ctx context.Context, s *session, args []string) error {
	var r struct{ Unrouted, Cycle uint64 }
	err := s.do(ctx, "POST", path("warren", "queues", s.opt.vhost, args[0], "release"), nil, &r)
	if err != nil {
		return found(err, errorf(ExitData, "no queue '%s' in vhost '%s'", args[0], s.opt.vhost))
	}
	return s.list([]string{"unrouted", "cycle"}, []row{{
		"unrouted": json.Number(strconv.FormatUint(r.Unrouted, 10)), "cycle": json.Number(strconv.FormatUint(r.Cycle, 10)),
	}})
}

func (s *session) dryRun(ctx context.Context, queue string, body *redriveBody) error {
	var plan struct {
		Destinations map[string]uint64 `json:"destinations"`
		Missing      map[string]uint64 `json:"missing"`
		NoOrigin     uint64            `json:"no_origin"`
		Messages     uint64            `json:"messages"`
		Looked       uint64            `json:"looked"`
		Next         uint64            `json:"next"`
	}
	if err := s.redrive(ctx, "POST", queue, body, &plan); err != nil {
		return err
	}
	s.say("Of %d messages %d would be sent, or stay for want of a destination ...", plan.Looked, plan.Messages)
	var rows []row
	add := func(destination string, n uint64, note string) {
		rows = append(rows, row{"destination": destination, "messages": json.Number(strconv.FormatUint(n, 10)), "note": note})
	}
	for _, q := range sortedKeys(plan.Destinations) {
		add(q, plan.Destinations[q], "")
	}
	for _, q := range sortedKeys(plan.Missing) {
		add(q, plan.Missing[q], "does not exist or takes nothing: they stay")
	}
	if plan.NoOrigin > 0 {
		add("", plan.NoOrigin, "no death says where from: they stay")
	}
	if plan.Next > 0 {
		add("", 0, fmt.Sprintf("counted up to message %d only", plan.Next))
	}
	return s.list([]string{"destination", "messages", "note"}, rows)
}

func sortedKeys(m map[string]uint64) (keys []string) {
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

// ctlStates are the states of targets in words that follow "is".
var ctlStates = map[string]string{
	"moving": "taking them", "full": "full: they come back", "unreachable": "without a leader that answers", "gone": "deleted: they come back",
}

// pollEvery is the time between two looks at a redrive's progress.
const pollEvery = 100 * time.Millisecond

func (s *session) start(ctx context.Context, queue string, body *redriveBody, wait bool) error {
	var st redriveStatus
	if err := s.redrive(ctx, "POST", queue, body, &st); err != nil {
		return err
	}
	begun := st
	var unknown time.Time // since when the queue does not know of it
	var lost absence
	for wait && (st.State == "running" || st.State == "stopping") {
		select {
		case <-ctx.Done():
			return errorf(ExitTimeout, "it goes on: %d done, %d under way. See warren ctl dlq status %s", st.Moved, st.UnderWay, queue)
		case <-time.After(pollEvery):
		}
		var now redriveStatus
		if err := s.redrive(ctx, "GET", queue, nil, &now); lost.bears(ctx, err) {
			continue
		} else if err != nil {
			return err
		}
		switch {
		case now.Number == begun.Number && now.StartedAt == begun.StartedAt:
			st, unknown = now, time.Time{}
		case now.Number > begun.Number:
			return errorf(ExitSoftware, "another one of queue '%s' has begun: %d were done by this one before", queue, st.Moved)
		case unknown.IsZero(): // a leader that has just begun may not have it yet
			unknown = time.Now()
		case time.Since(unknown) > unknownTime:
			return errorf(ExitData, "queue '%s' was deleted and declared anew: %d were done before", queue, st.Moved)
		}
	}
	return s.report(&st)
}

// unknownTime is for how long a queue that does not know of a redrive is asked again.
const unknownTime = 5 * time.Second

// report prints a redrive's state, and of one that is stopped what it still waits for.
func (s *session) report(st *redriveStatus) error {
	if st.State == "stopping" {
		s.say("Nothing more is sent. It ends when it is known where the %d messages are that were under way ...", st.UnderWay)
		for _, t := range st.WaitsFor {
			s.say("%d for queue '%s' in vhost '%s', which is %s", t.Messages, t.Queue, t.VHost, ctlStates[t.State])
		}
	}
	r := row{"state": st.State}
	for name, n := range map[string]uint64{
		"number": st.Number, "moved": st.Moved, "under_way": uint64(st.UnderWay), "returned": st.Returned, "missing": st.Missing,
		"no_origin": st.NoOrigin, "busy": st.Busy, "position": st.Position, "tail": st.Tail,
	} {
		r[name] = json.Number(strconv.FormatUint(n, 10))
	}
	return s.list([]string{"number", "state", "moved", "under_way", "returned", "missing", "no_origin", "busy", "position", "tail"}, []row{r})
}
