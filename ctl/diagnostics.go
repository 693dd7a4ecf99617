package ctl

import (
	"cmp"
	"context"
	"regexp"
	"slices"

	"github.com/spf13/cobra"
)

// diagnosticVerbs are of rabbitmq-diagnostics.
func diagnosticVerbs(t *tool) []*cobra.Command {
	catalog := func(use string) *cobra.Command {
		return t.command(verb{use: use, short: "Fail while the catalog (the metadata store) has no leader", run: func(ctx context.Context, s *session, _ []string) error {
			return s.check(ctx, check{"Checking if the catalog has a leader ...", "The catalog has a leader", path("health", "checks", "metadata-store", "initialized"), nil})
		}})
	}
	return []*cobra.Command{
		leadersVerb(t), matchVerb(t),
		catalog("check_if_metadata_store_is_initialized"), catalog("check_if_metadata_store_is_initialized_with_data"),
		t.command(verb{
			use: "check_if_any_deprecated_features_are_used", short: "Fail if the cluster uses deprecated features",
			run: func(ctx context.Context, s *session, _ []string) error {
				s.say("Checking if any deprecated features are used ...")
				used, err := deprecated(ctx, s, path("deprecated-features", "used"))
				if err != nil {
					return err
				}
				if len(used) > 0 {
					return s.failed("deprecated features are used: " + cell(used[0]["name"]))
				}
				s.passed("No deprecated features are used")
				return nil
			},
		}),
		t.command(verb{
			use: "list_deprecated_features", short: "List deprecated features",
			run: func(ctx context.Context, s *session, _ []string) error {
				s.say("Listing deprecated features ...")
				rows, err := deprecated(ctx, s, path("deprecated-features"))
				if err != nil {
					return err
				}
				return s.list([]string{"name", "deprecation_phase"}, rows)
			},
		}),
	}
}

func deprecated(ctx context.Context, s *session, path string) (rows []row, err error) {
	err = s.get(ctx, path, &rows)
	return rows, err
}

// leadersVerb is RabbitMQ's check by name and vhost.
func leadersVerb(t *tool) *cobra.Command {
	var everywhere bool
	cmd := t.command(verb{
		use: "check_for_quorum_queues_without_an_elected_leader [PATTERN]", short: "Fail if quorum queues whose names match have no leader", max: 1,
		run: func(ctx context.Context, s *session, args []string) error {
			where := []string{"health", "checks", "quorum-queues-without-elected-leaders", "vhost", s.opt.vhost}
			if everywhere {
				where = append(where[:3], "all-vhosts")
			}
			if len(args) > 0 && args[0] != "" {
				where = append(where, "pattern", args[0])
			}
			return s.check(ctx, check{"Checking for quorum queues without an elected leader ...", "All of these quorum queues have a leader", path(where...), func(c *checkup) (lines []string) {
				for _, q := range c.Queues {
					lines = append(lines, q.ReadableName+" has no leader")
				}
				return lines
			}})
		},
	})
	cmd.Flags().BoolVar(&everywhere, "across-all-vhosts", false, "in all vhosts, and not in that of --vhost alone")
	return cmd
}

// matching is a policy of the management API.
type matching struct {
	Name, Pattern string
	ApplyTo       string `json:"apply-to"`
	Definition    any
	Priority      int
}

// matchVerb lists policies that fit an object, the one that is in force first.
func matchVerb(t *tool) *cobra.Command {
	var kind string
	cmd := t.command(verb{
		use: "list_policies_that_match NAME", short: "List the policies whose pattern and kind fit a queue or an exchange, the highest priority first", min: 1, max: 1,
		long: "List the policies whose pattern and kind fit a queue or an exchange, the highest priority first. One of them is in force,\n" +
			"which the column applied tells: one with a key that the object cannot do is passed over.",
		run: func(ctx context.Context, s *session, args []string) error {
			if kind != "queue" && kind != "exchange" {
				return usage("--object-type is queue or exchange, not '%s'", kind)
			}
			var object struct{ Type, Policy string }
			if err := s.get(ctx, path(kind+"s", s.opt.vhost, args[0]), &object); err != nil {
				return found(err, errorf(ExitData, "no %s '%s' in vhost '%s'", kind, args[0], s.opt.vhost))
			}
			fits := []string{"all", kind + "s"}
			if kind == "queue" {
				fits = append(fits, object.Type+"_queues")
			}
			s.say(`Listing policies that match %s "%s" in vhost "%s" ...`, kind, args[0], s.opt.vhost)
			var policies []matching
			if err := s.get(ctx, path("policies", s.opt.vhost), &policies); err != nil {
				return err
			}
			slices.SortStableFunc(policies, func(a, b matching) int { return cmp.Compare(b.Priority, a.Priority) })
			rows := []row{}
			for _, p := range policies {
				pattern, err := regexp.Compile(p.Pattern) // the node has taken it
				if err == nil && pattern.MatchString(args[0]) && slices.Contains(fits, p.ApplyTo) {
					rows = append(rows, row{
						"vhost": s.opt.vhost, "name": p.Name, "pattern": p.Pattern, "apply-to": p.ApplyTo, "definition": p.Definition, "priority": p.Priority, "applied": p.Name == object.Policy,
					})
				}
			}
			return s.list([]string{"vhost", "name", "pattern", "apply-to", "definition", "priority", "applied"}, rows)
		},
	})
	cmd.Flags().StringVar(&kind, "object-type", "queue", "queue or exchange")
	return cmd
}
