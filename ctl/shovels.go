package ctl

import (
	"context"
	"encoding/json"

	"github.com/spf13/cobra"
)

// shovelColumns are those of shovel_status.
var shovelColumns = []string{
	"name", "vhost", "node", "type", "state", "timestamp", "src_uri", "src_queue", "src_exchange", "dest_uri", "dest_queue", "dest_exchange", "blocked_status",
	"remaining", "forwarded", "pending", "waiting", "reason",
}

func shovelVerbs(t *tool) []*cobra.Command {
	return []*cobra.Command{
		t.command(verb{
			use: "set_parameter COMPONENT NAME VALUE", short: "Make or replace a runtime parameter of a vhost, such as a shovel", min: 3, max: 3,
			long: "Make or replace a runtime parameter: a shovel (component shovel), an operator policy (operator_policy) or the limits of\n" +
				"the vhost (vhost-limits). VALUE is JSON.",
			run: func(ctx context.Context, s *session, args []string) error {
				if !json.Valid([]byte(args[2])) {
					return usage("the value is no JSON")
				}
				s.say(`Setting runtime parameter "%s" for component "%s" to "%s" in vhost "%s" ...`, args[1], args[0], args[2], s.opt.vhost)
				return found(s.put(ctx, path("parameters", args[0], s.opt.vhost, args[1]), map[string]json.RawMessage{"value": json.RawMessage(args[2])}), noVhost(s.opt.vhost))
			},
		}),
		t.command(verb{
			use: "clear_parameter COMPONENT NAME", short: "Delete a runtime parameter of a vhost", min: 2, max: 2,
			run: func(ctx context.Context, s *session, args []string) error {
				s.say(`Clearing runtime parameter "%s" for component "%s" on vhost "%s" ...`, args[1], args[0], s.opt.vhost)
				return found(s.delete(ctx, path("parameters", args[0], s.opt.vhost, args[1])), errorf(ExitData, "Parameter does not exist"))
			},
		}),
		t.command(verb{
			use: "shovel_status [COLUMN...]", short: "List the shovels of all vhosts, and what they do", max: -1,
			run: func(ctx context.Context, s *session, args []string) error {
				columns, err := columnsOf(args, shovelColumns, "name", "vhost", "node", "state", "src_uri", "dest_uri", "forwarded", "pending", "reason")
				if err != nil {
					return err
				}
				s.say("Shovel status ...")
				var rows []row
				if err := s.get(ctx, path("shovels"), &rows); err != nil {
					return err
				}
				return s.list(columns, rows)
			},
		}),
		t.command(verb{
			use: "delete_shovel NAME", short: "Delete a shovel", min: 1, max: 1,
			run: func(ctx context.Context, s *session, args []string) error {
				s.say(`Deleting shovel %s in vhost %s ...`, args[0], s.opt.vhost)
				return found(s.delete(ctx, path("shovels", "vhost", s.opt.vhost, args[0])), noShovel(args[0], s.opt.vhost))
			},
		}),
		t.command(verb{
			use: "restart_shovel NAME", short: "Have a shovel connect anew", min: 1, max: 1,
			run: func(ctx context.Context, s *session, args []string) error {
				s.say(`Restarting shovel %s in vhost %s ...`, args[0], s.opt.vhost)
				return found(s.delete(ctx, path("shovels", "vhost", s.opt.vhost, args[0], "restart")), noShovel(args[0], s.opt.vhost))
			},
		}),
	}
}

func noShovel(name, vhost string) *Error {
	return errorf(ExitData, "Shovel with the given name '%s' was not found on the target node's cluster, virtual host '%s', or is not running", name, vhost)
}
