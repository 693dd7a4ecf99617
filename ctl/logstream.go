package ctl

import (
	"context"
	"strconv"
	"time"

	"github.com/spf13/cobra"
)

// logLook is the time between two looks at a node's log.
const logLook = 500 * time.Millisecond

// logStreamVerb follows the log, as rabbitmq-diagnostics does.
func logStreamVerb(t *tool) *cobra.Command {
	duration := 0
	cmd := t.command(verb{
		use: "log_tail_stream", short: "Print new lines of the node's log, until interrupted", patient: true,
		long: "Print new lines of the node's log, until interrupted or for --duration seconds. It asks twice a second, and says how many\n" +
			"lines it has missed where the node logs faster than it keeps lines. The exit code is 69 if the node ends.",
		run: func(ctx context.Context, s *session, _ []string) error {
			if duration < 0 {
				return usage("--duration %d is negative", duration)
			}
			if duration > 0 {
				var cancel context.CancelFunc
				ctx, cancel = context.WithTimeout(ctx, time.Duration(duration)*time.Second)
				defer cancel()
			}
			return followLog(ctx, s)
		},
	})
	cmd.Flags().IntVarP(&duration, "duration", "d", 0, "end after so many `seconds`; 0: never")
	return cmd
}

func followLog(ctx context.Context, s *session) error {
	at := path("warren", "log") + "?lines="
	query := "1" // what is the newest line now?
	for after := false; ; after = true {
		var log struct {
			Lines  []string `json:"lines"`
			Last   *uint64  `json:"last"`
			Missed uint64   `json:"missed"`
		}
		err := s.get(ctx, at+query, &log)
		switch {
		case ctx.Err() != nil:
			return nil // interrupted, or the time is over, which is how it ends
		case err != nil:
			return err
		case log.Last == nil:
			return errorf(ExitSoftware, "node %s does not number the lines of its log", s.name)
		}
		if after {
			if log.Missed > 0 {
				s.printf("... %d lines were not kept ...\n", log.Missed)
			}
			for _, l := range log.Lines {
				s.printf("%s\n", l)
			}
			if err := s.flush(); err != nil {
				return errorf(ExitSoftware, "write the lines: %v", err)
			}
		}
		query = "1000&after=" + strconv.FormatUint(*log.Last, 10)
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(logLook):
		}
	}
}
