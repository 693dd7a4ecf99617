package ctl

import (
	"context"
	"strings"

	"github.com/spf13/cobra"
)

// Columns of the lists, by rabbitmqctl's names.
var (
	channelColumns = []string{
		"pid", "connection", "name", "number", "user", "vhost", "transactional", "confirm", "consumer_count", "messages_unacknowledged",
		"acks_uncommitted", "messages_unconfirmed", "prefetch_count", "global_prefetch_count", "state", "node",
	}
	consumerColumns = []string{"queue_name", "channel_pid", "consumer_tag", "ack_required", "prefetch_count", "active", "arguments", "activity_status", "exclusive"}
)

// clientVerbs look at what clients have open.
func clientVerbs(t *tool) []*cobra.Command {
	return []*cobra.Command{
		t.command(verb{
			use: "list_channels [COLUMN...]", short: "List channels with the columns asked for: pid, user, consumer_count and messages_unacknowledged by default",
			long: "List the channels of clients at all nodes. The columns are " + strings.Join(channelColumns, ", ") + ".\n" +
				"A channel's pid is its name, that of its connection with its number.", max: -1,
			run: listChannels,
		}),
		t.command(verb{
			use: "list_consumers [COLUMN...]", short: "List the consumers of a vhost's queues with the columns asked for",
			long: "List consumers. The columns are " + strings.Join(consumerColumns, ", ") + "; all but the last two by default.", max: -1,
			run: listConsumers,
		}),
	}
}

func listChannels(ctx context.Context, s *session, args []string) error {
	columns, err := columnsOf(args, channelColumns, "pid", "user", "consumer_count", "messages_unacknowledged")
	if err != nil {
		return err
	}
	s.say("Listing channels ...")
	var rows []row
	if err := s.get(ctx, path("channels"), &rows); err != nil {
		return err
	}
	for _, r := range rows {
		r["pid"] = r["name"]
		of, _ := r["connection_details"].(map[string]any) // shown as nothing if it is nothing
		r["connection"] = of["name"]
	}
	return s.list(columns, rows)
}

func listConsumers(ctx context.Context, s *session, args []string) error {
	columns, err := columnsOf(args, consumerColumns, consumerColumns[:len(consumerColumns)-2]...)
	if err != nil {
		return err
	}
	s.say("Listing consumers in vhost %s ...", s.opt.vhost)
	var rows []row
	if err := s.get(ctx, path("consumers", s.opt.vhost), &rows); err != nil {
		return found(err, noVhost(s.opt.vhost))
	}
	for _, r := range rows {
		queue, _ := r["queue"].(map[string]any)
		channel, _ := r["channel_details"].(map[string]any)
		r["queue_name"], r["channel_pid"] = queue["name"], channel["name"]
	}
	return s.list(columns, rows)
}
