package ctl

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"strings"

	"github.com/spf13/cobra"
)

// eventBytesMax bounds one event.
const eventBytesMax = 16 << 20

func eventVerbs(t *tool) []*cobra.Command {
	cmd := t.command(verb{
		use: "consume_event_stream", short: "Print the cluster's events, one JSON object per line, until interrupted", patient: true,
		run: func(ctx context.Context, s *session, _ []string) error { return consumeEvents(ctx, s) },
	})
	cmd.Long = "Print what happens in the cluster until interrupted: one JSON object a line, with the field event: change (a queue, policy or virtual host\n" +
		"was created, changed or deleted), catalog (something else may have changed), leader, node, alarm, and every five seconds overview."
	return []*cobra.Command{cmd}
}

func consumeEvents(ctx context.Context, s *session) error {
	resp, err := s.open(ctx, http.MethodGet, path("warren", "events"), nil)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		raw, err := io.ReadAll(io.LimitReader(resp.Body, answerBytesMax))
		if err != nil {
			return s.lost(ctx, err)
		}
		return found(s.refused(resp, raw), errorf(ExitSoftware, "node %s does not know of events", s.name))
	}
	lines := bufio.NewScanner(resp.Body)
	lines.Buffer(nil, eventBytesMax)
	event := ""
	for lines.Scan() {
		if name, ok := strings.CutPrefix(lines.Text(), "event: "); ok {
			event = name
			continue
		}
		data, ok := strings.CutPrefix(lines.Text(), "data: ")
		if !ok {
			continue
		}
		line, err := json.Marshal(struct {
			Event string          `json:"event"`
			Data  json.RawMessage `json:"data"`
		}{event, json.RawMessage(data)})
		if err != nil {
			return errorf(ExitSoftware, "node %s sent an event that is no JSON: %v", s.name, err)
		}
		s.printf("%s\n", line)
		if err := s.flush(); err != nil {
			return errorf(ExitSoftware, "write the events: %v", err)
		}
		if event == "end" {
			return errorf(ExitUnavailable, "node %s has ended the stream", s.name)
		}
	}
	if ctx.Err() != nil {
		return nil // interrupted, which is how it ends
	}
	return errorf(ExitUnavailable, "the stream of node %s was broken off", s.name)
}
