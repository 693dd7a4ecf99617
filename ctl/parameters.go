package ctl

import (
	"context"

	"github.com/spf13/cobra"
)

func parameterVerbs(t *tool) []*cobra.Command {
	return []*cobra.Command{
		t.command(verb{
			use: "set_cluster_name NAME", short: "Set the cluster's display name; its id does not change", min: 1, max: 1,
			run: func(ctx context.Context, s *session, args []string) error {
				s.say("Setting cluster name to %s ...", args[0])
				return s.put(ctx, path("cluster-name"), map[string]string{"name": args[0]})
			},
		}),
		t.command(verb{
			use: "list_parameters", short: "List the runtime parameters of a vhost: its operator policies, shovels and limits",
			run: func(ctx context.Context, s *session, _ []string) error {
				s.say(`Listing runtime parameters for vhost "%s" ...`, s.opt.vhost)
				var all, rows []row
				if err := s.get(ctx, path("vhosts", s.opt.vhost), &row{}); err != nil {
					return found(err, noVhost(s.opt.vhost))
				}
				if err := s.get(ctx, path("parameters"), &all); err != nil {
					return err
				}
				for _, r := range all {
					if r["vhost"] == s.opt.vhost {
						rows = append(rows, r)
					}
				}
				return s.list([]string{"component", "name", "value"}, rows)
			},
		}),
		t.command(verb{
			use: "list_global_parameters", short: "List the global runtime parameters: the cluster's name",
			run: func(ctx context.Context, s *session, _ []string) error {
				s.say("Listing global runtime parameters ...")
				var rows []row
				if err := s.get(ctx, path("global-parameters"), &rows); err != nil {
					return err
				}
				return s.list([]string{"name", "value"}, rows)
			},
		}),
	}
}
