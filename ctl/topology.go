package ctl

import (
	"context"
	"net/url"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
)

// Columns of the lists, by rabbitmqctl's names.
var (
	exchangeColumns = []string{"name", "type", "durable", "auto_delete", "internal", "arguments", "policy", "vhost"}
	bindingColumns  = []string{"source_name", "source_kind", "destination_name", "destination_kind", "routing_key", "arguments", "vhost"}
)

// bindingField is the name of a binding's column in the management API, unless that is the same.
var bindingField = map[string]string{"source_name": "source", "destination_name": "destination", "destination_kind": "destination_type"}

func topologyVerbs(t *tool) []*cobra.Command {
	return []*cobra.Command{
		t.command(verb{
			use: "list_exchanges [COLUMN...]", short: "List exchanges with the columns asked for: name and type by default",
			long: "List exchanges. The columns are " + strings.Join(exchangeColumns, ", ") + ".", max: -1,
			run: listExchanges,
		}),
		t.command(verb{
			use: "list_bindings [COLUMN...]", short: "List bindings with the columns asked for",
			long: "List bindings. The columns are " + strings.Join(bindingColumns, ", ") + "; all but vhost by default.", max: -1,
			run: listBindings,
		}),
		t.command(verb{
			use: "purge_queue QUEUE", short: "Delete the ready messages of a queue", min: 1, max: 1,
			run: func(ctx context.Context, s *session, args []string) error {
				s.say("Purging queue '%s' in vhost '%s' ...", args[0], s.opt.vhost)
				return found(s.delete(ctx, path("queues", s.opt.vhost, args[0], "contents")), noQueue(s, args[0]))
			},
		}),
		deleteQueueVerb(t), pauseVerb(t, "pause"), pauseVerb(t, "resume"),
	}
}

// pauseVerb is pause_queue or resume_queue, as lavinmqctl has them.
func pauseVerb(t *tool, verbName string) *cobra.Command {
	v := verb{use: verbName + "_queue QUEUE", short: "Resume deliveries from a paused queue", min: 1, max: 1}
	saying := "Resuming"
	if verbName == "pause" {
		v.short, saying = "Stop deliveries from a queue; it still accepts publishes and acknowledgements", "Pausing"
	}
	v.run = func(ctx context.Context, s *session, args []string) error {
		s.say("%s queue '%s' in vhost '%s' ...", saying, args[0], s.opt.vhost)
		return found(s.do(ctx, "PUT", path("queues", s.opt.vhost, args[0], verbName), nil, nil), noQueue(s, args[0]))
	}
	return t.command(v)
}

func listExchanges(ctx context.Context, s *session, args []string) error {
	columns, err := columnsOf(args, exchangeColumns, "name", "type")
	if err != nil {
		return err
	}
	s.say("Listing exchanges for vhost %s ...", s.opt.vhost)
	var rows []row
	if err := s.get(ctx, path("exchanges", s.opt.vhost), &rows); err != nil {
		return found(err, noVhost(s.opt.vhost))
	}
	return s.list(columns, rows)
}

func noQueue(s *session, name string) *Error {
	return errorf(ExitData, "no queue '%s' in vhost '%s'", name, s.opt.vhost)
}

func listBindings(ctx context.Context, s *session, args []string) error {
	columns, err := columnsOf(args, bindingColumns, bindingColumns[:len(bindingColumns)-1]...)
	if err != nil {
		return err
	}
	s.say("Listing bindings for vhost %s ...", s.opt.vhost)
	var rows []row
	if err := s.get(ctx, path("bindings", s.opt.vhost), &rows); err != nil {
		return found(err, noVhost(s.opt.vhost))
	}
	for _, r := range rows {
		for column, field := range bindingField {
			r[column] = r[field]
		}
		r["source_kind"] = "exchange"
	}
	return s.list(columns, rows)
}

func deleteQueueVerb(t *tool) *cobra.Command {
	var ifEmpty, ifUnused, force, delays bool
	cmd := t.command(verb{
		use: "delete_queue QUEUE", short: "Delete a queue with its messages", min: 1, max: 1,
		long: "Delete a queue with its messages. Dead letters that are on their way out of it go on, which its leader sees to. With --force it ends without\n" +
			"them if no node that can be reached has led it for ten seconds, as when its only replica is damaged or the nodes that have most of its\n" +
			"replicas are away or cut off, and so do those that were deleted under its name before and could not end. If deleting it was to dead-letter\n" +
			"its messages, they are lost with it then. Nodes that are away delete their replicas when they are back. That goes for queues of a deleted\n" +
			"vhost, too (-p), and with --delayed-exchange for what is left of deleted delayed exchanges of that name. Nodes name in their logs what cannot\n" +
			"end because a replica is damaged.",
		run: func(ctx context.Context, s *session, args []string) error {
			s.say("Deleting queue '%s' on vhost '%s' ...", args[0], s.opt.vhost)
			at := path("queues", s.opt.vhost, args[0])
			if options := queryOf(map[string]bool{"if-empty": ifEmpty, "if-unused": ifUnused, "force": force, "delayed-exchange": delays}); options != "" {
				at += "?" + options
			}
			none := noQueue(s, args[0])
			if delays {
				none = errorf(ExitData, "no queue of a deleted delayed exchange '%s' in vhost '%s'", args[0], s.opt.vhost)
			}
			return s.gone(s.delete(ctx, at), none)
		},
	})
	cmd.Flags().BoolVarP(&ifEmpty, "if-empty", "e", false, "only if it has no messages")
	cmd.Flags().BoolVarP(&ifUnused, "if-unused", "u", false, "only if it has no consumers")
	cmd.Flags().BoolVar(&force, "force", false, "also if it has no leader: give up the dead letters on their way out of it")
	cmd.Flags().BoolVar(&delays, "delayed-exchange", false, "with --force: QUEUE is the name of a deleted delayed exchange, whose queue ends")
	return cmd
}

// queryOf is a query that sets those that are true.
func queryOf(flags map[string]bool) string {
	q := url.Values{}
	for name, set := range flags {
		if set {
			q.Set(name, strconv.FormatBool(true))
		}
	}
	return q.Encode()
}
