package ctl

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"strings"

	"github.com/spf13/cobra"
)

// outboxColumns are those of outbox_status.
var outboxColumns = []string{
	"name", "messages_dlx", "message_bytes_dlx", "oldest_age_seconds", "unrouted", "routed", "parked_unrouted", "parked_cycle",
	"targets", "last_error", "leader",
}

func outboxVerbs(t *tool) []*cobra.Command {
	return []*cobra.Command{t.command(verb{
		use: "outbox_status [QUEUE]", short: "Show dead letters on their way: how many, how old, and what they wait for",
		long: "Show the dead letters of a queue, or of all queues of the virtual host that have some, on their way\n" +
			"to other queues. Each target is shown as NAME:PENDING:STATE, where the state is moving, full,\n" +
			"unreachable or gone.",
		max: 1,
		run: outboxStatus,
	})}
}

// outbox is what the API tells of one queue.
type outbox struct {
	Queue        string `json:"queue"`
	VHost        string `json:"vhost"`
	DelayOf      string `json:"delay_of"`
	Messages     uint64 `json:"messages_dlx"`
	MessageBytes uint64 `json:"message_bytes_dlx"`
	OldestAge    uint64 `json:"oldest_age_ms"`
	States       row    `json:"states"`
	Targets      []struct {
		ID      uint64 `json:"id"`
		Queue   string `json:"queue"`
		Pending uint64 `json:"pending"`
		State   string `json:"state"`
	} `json:"targets"`
	LastError *struct {
		Text string `json:"text"`
	} `json:"last_error"`
	Leader string `json:"leader"`
}

func (o *outbox) row() row {
	r := row{
		"name": o.Queue, "messages_dlx": o.Messages, "message_bytes_dlx": o.MessageBytes, "leader": o.Leader,
		"oldest_age_seconds": fmt.Sprintf("%.1f", float64(o.OldestAge)/1000), "last_error": "",
	}
	if o.DelayOf != "" {
		r["name"] = "exchange " + o.DelayOf
	}
	maps.Copy(r, o.States)
	var targets []string
	for _, t := range o.Targets {
		name := t.Queue
		if name == "" {
			name = fmt.Sprintf("id %d", t.ID)
		}
		targets = append(targets, fmt.Sprintf("%s:%d:%s", name, t.Pending, t.State))
	}
	r["targets"] = strings.Join(targets, " ")
	if o.LastError != nil {
		r["last_error"] = o.LastError.Text
	}
	return r
}

func outboxStatus(ctx context.Context, s *session, args []string) error {
	var list []outbox
	if len(args) == 0 {
		s.say("Dead letters on their way in vhost %s ...", s.opt.vhost)
		if err := s.get(ctx, path("warren", "outboxes", s.opt.vhost), &list); err != nil {
			return found(err, noVhost(s.opt.vhost))
		}
		s.sayUntold(ctx)
	} else {
		s.say("Dead letters of queue '%s' in vhost '%s' on their way ...", args[0], s.opt.vhost)
		list = make([]outbox, 1)
		if err := s.get(ctx, path("warren", "queues", s.opt.vhost, args[0], "outbox"), &list[0]); err != nil {
			return found(err, errorf(ExitData, "no queue '%s' in vhost '%s'", args[0], s.opt.vhost))
		}
	}
	rows := make([]row, len(list))
	for i := range list {
		rows[i] = list[i].row()
	}
	return s.list(outboxColumns, rows)
}

// sayUntold says of which dead letters nobody tells: those of queues with too few replicas that run, or on nodes that do not answer. Who may not ask for that, or
// asks a node that does not know, is not told.
func (s *session) sayUntold(ctx context.Context) {
	if s.mute() {
		return
	}
	// Of no age: what waits is in the list already.
	resp, raw, err := s.send(ctx, http.MethodGet, path("health", "checks", "warren", "dead-letters")+"?older_than=31536000", nil)
	var answer struct {
		Reason string   `json:"reason"`
		Queues []outbox `json:"queues"`
	}
	if err != nil || resp.StatusCode != http.StatusServiceUnavailable || json.Unmarshal(raw, &answer) != nil {
		return
	}
	var names []string
	for _, o := range answer.Queues {
		if o.Messages == 0 && o.VHost == s.opt.vhost {
			names = append(names, fmt.Sprint(o.row()["name"]))
		}
	}
	switch {
	case len(names) > 0:
		s.say("Nobody can tell of those of %s, since too few of its replicas run", strings.Join(names, ", "))
	case len(answer.Queues) == 0:
		s.say("Some may be missing: %s", answer.Reason)
	}
}
