package ctl

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
)

// closingColumns are those of list_closing_queues.
var closingColumns = []string{"vhost", "name", "state", "leader", "messages_dlx", "message_bytes_dlx", "oldest_age_seconds", "why", "members"}

func closingVerbs(t *tool) []*cobra.Command {
	return []*cobra.Command{t.command(verb{
		use: "list_closing_queues [COLUMN...]", short: "List the deleted queues that have not ended, and what keeps them",
		long: "List the queues of all virtual hosts, deleted ones too, that were deleted and have not ended: dead letters\n" +
			"are on their way out of them, or no leader ends them. Of the latter delete_queue --force rids the cluster.",
		max: -1,
		run: listClosingQueues,
	})}
}

// closingQueue is what the API tells of one.
type closingQueue struct {
	VHost        string   `json:"vhost"`
	Queue        string   `json:"queue"`
	DelayOf      string   `json:"delay_of"`
	Members      []string `json:"members"`
	State        string   `json:"state"`
	Leader       string   `json:"leader"`
	Messages     uint64   `json:"messages_dlx"`
	MessageBytes uint64   `json:"message_bytes_dlx"`
	OldestAge    uint64   `json:"oldest_age_ms"`
	Why          string   `json:"why"`
}

func (q *closingQueue) row() row {
	r := row{
		"vhost": q.VHost, "name": q.Queue, "state": q.State, "leader": q.Leader, "messages_dlx": q.Messages, "message_bytes_dlx": q.MessageBytes,
		"oldest_age_seconds": fmt.Sprintf("%.1f", float64(q.OldestAge)/1000), "why": q.Why, "members": strings.Join(q.Members, " "),
	}
	if q.DelayOf != "" {
		r["name"] = "exchange " + q.DelayOf
	}
	return r
}

func listClosingQueues(ctx context.Context, s *session, args []string) error {
	columns, err := columnsOf(args, closingColumns, closingColumns...)
	if err != nil {
		return err
	}
	s.say("Deleted queues that have not ended ...")
	var list []closingQueue
	if err := s.get(ctx, path("warren", "closing-queues"), &list); err != nil {
		return err
	}
	rows := make([]row, len(list))
	for i := range list {
		rows[i] = list[i].row()
	}
	return s.list(columns, rows)
}
