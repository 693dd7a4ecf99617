package ctl

import (
	"context"
	"strings"

	"github.com/spf13/cobra"
)

// flagColumns are those that list_feature_flags knows, by their names in the management API.
var flagColumns = []string{"name", "state", "stability", "provided_by", "desc", "doc_url", "level"}

func flagVerbs(t *tool) []*cobra.Command {
	return []*cobra.Command{
		t.command(verb{
			use: "list_feature_flags [COLUMN...]", short: "List feature flags, and whether the cluster uses them: name and state by default",
			long: "List what the nodes' programs know, and whether the cluster uses it. The columns are " + strings.Join(flagColumns, ", ") + ".", max: -1,
			run: func(ctx context.Context, s *session, args []string) error {
				columns, err := columnsOf(args, flagColumns, "name", "state")
				if err != nil {
					return err
				}
				s.say("Listing feature flags ...")
				var rows []row
				if err := s.get(ctx, path("feature-flags"), &rows); err != nil {
					return err
				}
				return s.list(columns, rows)
			},
		}),
		t.command(verb{
			use: "enable_feature_flag all|NAME", short: "Enable the features that all nodes support, now; older versions are refused from then on", min: 1, max: 1,
			long: "Use what all nodes' programs know, now, rather than when they have known it for --upgrade-settle. It is refused while a node is\n" +
				"away or older. From then on older programs are refused: there is no way back.",
			run: func(ctx context.Context, s *session, args []string) error {
				if args[0] == "all" {
					s.say("Enabling all feature flags ...")
				} else {
					s.say(`Enabling feature flag "%s" ...`, args[0])
				}
				return s.put(ctx, path("feature-flags", args[0], "enable"), nil)
			},
		}),
	}
}
