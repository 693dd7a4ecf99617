package ctl

import (
	"context"
	"net/http"
	"strings"

	"github.com/spf13/cobra"
)

// vhostColumns are those that list_vhosts knows, by their names in the management API.
var vhostColumns = []string{"name", "description", "tags", "default_queue_type", "protected_from_deletion", "tracing"}

func vhostVerbs(t *tool) []*cobra.Command {
	return []*cobra.Command{
		addVhostVerb(t),
		updateVhostVerb(t),
		t.command(verb{
			use: "enable_vhost_deletion_protection VHOST", short: "Protect a vhost from being deleted", min: 1, max: 1,
			run: func(ctx context.Context, s *session, args []string) error {
				s.say(`Protecting virtual host "%s" from deletion ...`, args[0])
				return found(s.do(ctx, http.MethodPost, path("vhosts", args[0], "deletion", "protection"), nil, nil), noVhost(args[0]))
			},
		}),
		t.command(verb{
			use: "disable_vhost_deletion_protection VHOST", short: "Allow a vhost to be deleted again", min: 1, max: 1,
			run: func(ctx context.Context, s *session, args []string) error {
				s.say(`Removing deletion protection of virtual host "%s" ...`, args[0])
				return found(s.delete(ctx, path("vhosts", args[0], "deletion", "protection")), noVhost(args[0]))
			},
		}),
		t.command(verb{
			use: "delete_vhost VHOST", short: "Delete a vhost with everything in it, including messages, and close its connections", min: 1, max: 1,
			run: func(ctx context.Context, s *session, args []string) error {
				s.say(`Deleting vhost "%s" ...`, args[0])
				return s.gone(s.delete(ctx, path("vhosts", args[0])), noVhost(args[0]))
			},
		}),
		t.command(verb{
			use: "list_vhosts [COLUMN...]", short: "List vhosts with the columns asked for: name by default",
			long: "List vhosts. The columns are " + strings.Join(vhostColumns, ", ") + ".", max: -1,
			run: listVhosts,
		}),
	}
}

func addVhostVerb(t *tool) *cobra.Command {
	var description, tags, queueType string
	cmd := t.command(verb{
		use: "add_vhost VHOST", short: "Create a vhost; an existing one is left unchanged", min: 1, max: 1,
		long: "Make a vhost, in which nobody may do anything before set_permissions. One that exists stays as it is.",
		run: func(ctx context.Context, s *session, args []string) error {
			if args[0] == "" {
				return usage("vhost cannot be an empty string")
			}
			s.say(`Adding vhost "%s" ...`, args[0])
			body := map[string]any{"description": description, "tags": tags}
			if queueType != "" {
				body["default_queue_type"] = queueType
			}
			return s.put(ctx, path("warren", "vhosts", args[0]), body)
		},
	})
	cmd.Flags().StringVarP(&description, "description", "d", "", "what it is for")
	cmd.Flags().StringVar(&tags, "tags", "", "words with commas between them")
	cmd.Flags().StringVar(&queueType, "default-queue-type", "", "type of durable queues that name none: classic or quorum")
	return cmd
}

func updateVhostVerb(t *tool) *cobra.Command {
	var description, tags, queueType string
	var cmd *cobra.Command
	cmd = t.command(verb{
		use: "update_vhost_metadata VHOST", short: "Change the metadata of a vhost; what is not given is left unchanged", min: 1, max: 1,
		run: func(ctx context.Context, s *session, args []string) error {
			body := map[string]any{}
			for flag, field := range map[string]struct{ key, value string }{
				"description": {"description", description}, "tags": {"tags", tags}, "default-queue-type": {"default_queue_type", queueType},
			} {
				if cmd.Flags().Changed(flag) {
					body[field.key] = field.value
				}
			}
			if len(body) == 0 {
				return usage("nothing to change: give --description, --tags or --default-queue-type")
			}
			s.say(`Updating metadata of virtual host "%s" ...`, args[0])
			return found(s.do(ctx, http.MethodPatch, path("warren", "vhosts", args[0]), body, nil), noVhost(args[0]))
		},
	})
	cmd.Flags().StringVarP(&description, "description", "d", "", "what it is for")
	cmd.Flags().StringVar(&tags, "tags", "", "words with commas between them")
	cmd.Flags().StringVar(&queueType, "default-queue-type", "", "type of durable queues that name none: classic or quorum")
	return cmd
}

func listVhosts(ctx context.Context, s *session, args []string) error {
	columns, err := columnsOf(args, vhostColumns, "name")
	if err != nil {
		return err
	}
	s.say("Listing vhosts ...")
	var rows []row
	if err := s.get(ctx, path("vhosts"), &rows); err != nil {
		return err
	}
	for _, r := range rows {
		tags := []string{}
		list, _ := r["tags"].([]any) // shown as none if it is nothing
		for _, tag := range list {
			tags = append(tags, cell(tag))
		}
		r["tags"] = s.bracketed(tags)
	}
	return s.list(columns, rows)
}
