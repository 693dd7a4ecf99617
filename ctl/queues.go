package ctl

import (
	"context"
	"slices"
	"strings"

	"github.com/spf13/cobra"
)

// queueColumns are those that list_queues knows, by their names in the management API.
var queueColumns = []string{
	"name", "messages", "messages_ready", "messages_unacknowledged", "messages_dlx", "messages_delayed", "consumers",
	"policy", "operator_policy", "effective_policy_definition", "arguments", "type", "durable", "auto_delete", "exclusive",
	"state", "leader", "members", "online", "vhost",
	"message_bytes", "message_bytes_ready", "message_bytes_unacknowledged", "message_bytes_dlx", "message_bytes_persistent", "message_bytes_ram",
	"messages_persistent", "messages_ram", "messages_ready_ram", "messages_unacknowledged_ram", "messages_parked",
	"consumer_capacity", "consumer_utilisation", "memory", "head_message_timestamp",
}

// onRequest are columns that a node puts into a long list only if it is asked for them.
var onRequest = []string{"memory", "head_message_timestamp"}

func queueVerbs(t *tool) []*cobra.Command {
	return []*cobra.Command{t.command(verb{
		use: "list_queues [COLUMN...]", short: "List queues with the columns asked for: name and messages by default",
		long: "List queues. The columns are " + strings.Join(queueColumns, ", ") + ".",
		max:  -1,
		run:  listQueues,
	})}
}

func listQueues(ctx context.Context, s *session, args []string) error {
	columns, err := columnsOf(args, queueColumns, "name", "messages")
	if err != nil {
		return err
	}
	s.say("Listing queues for vhost %s ...", s.opt.vhost)
	var rows []row
	at := path("queues", s.opt.vhost)
	if slices.ContainsFunc(columns, func(c string) bool { return slices.Contains(onRequest, c) }) {
		at += "?columns=state," + strings.Join(columns, ",")
	}
	if err := s.get(ctx, at, &rows); err != nil {
		return found(err, noVhost(s.opt.vhost))
	}
	if err := s.list(columns, rows); err != nil {
		return err
	}
	s.sayUncounted(rows)
	return nil
}

// sayUncounted tells how many queues have counts of 0 because nobody knows better.
func (s *session) sayUncounted(queues []row) {
	uncounted := 0
	for _, q := range queues {
		if q["state"] == "minority" || q["state"] == "down" {
			uncounted++
		}
	}
	if uncounted > 0 {
		s.say("The messages of %d queues are not known, and shown as 0: too few of their nodes run. See list_queues name state online.", uncounted)
	}
}

// columnsOf returns the columns that arguments ask for, which must be known, or else the
// ones given.
func columnsOf(args, known []string, otherwise ...string) ([]string, error) {
	// One argument may hold several names, as in rabbitmqctl.
	columns := strings.FieldsFunc(strings.Join(args, " "), func(r rune) bool { return r == ' ' || r == ',' })
	if len(columns) == 0 {
		return otherwise, nil
	}
	var wrong []string
	for _, c := range columns {
		if !slices.Contains(known, c) {
			wrong = append(wrong, c)
		}
	}
	if len(wrong) > 0 {
		return nil, usage("Info key(s) %s are not supported; there are %s", strings.Join(wrong, ", "), strings.Join(known, ", "))
	}
	return columns, nil
}
