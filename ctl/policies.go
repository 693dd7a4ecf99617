package ctl

import (
	"context"
	"encoding/json"

	"github.com/spf13/cobra"
)

// policyKind is policies or operator policies, in the words of rabbitmqctl.
type policyKind struct {
	path                    string
	set, list, clear        string // verbs
	setting, listing, clean string // what they say
	what, one               string // without and with its article
}

var policyKinds = []policyKind{
	{
		path: "policies", set: "set_policy", list: "list_policies", clear: "clear_policy", what: "policy", one: "a policy",
		setting: `Setting policy "%s" for pattern "%s" to "%s" with priority "%d" for vhost "%s" ...`,
		listing: `Listing policies for vhost "%s" ...`, clean: `Clearing policy "%s" on vhost "%s" ...`,
	},
	{
		path: "operator-policies", set: "set_operator_policy", list: "list_operator_policies", clear: "clear_operator_policy", what: "operator policy", one: "an operator policy",
		setting: `Setting operator policy override "%s" for pattern "%s" to "%s" with priority "%d" for vhost "%s" ...`,
		listing: `Listing operator policy overrides for vhost "%s" ...`, clean: `Clearing operator policy "%s" on vhost "%s" ...`,
	},
}

func policyVerbs(t *tool) (verbs []*cobra.Command) {
	for _, k := range policyKinds {
		verbs = append(verbs, k.setVerb(t),
			t.command(verb{
				use: k.list, short: "List each " + k.what + " of a vhost",
				run: func(ctx context.Context, s *session, _ []string) error { return k.listAll(ctx, s) },
			}),
			t.command(verb{
				use: k.clear + " NAME", short: "Delete " + k.one, min: 1, max: 1,
				run: func(ctx context.Context, s *session, args []string) error {
					s.say(k.clean, args[0], s.opt.vhost)
					err := s.delete(ctx, path(k.path, s.opt.vhost, args[0]))
					if s.opt.idempotently && isNotFound(err) {
						return nil
					}
					return k.missing(ctx, s, err, errorf(ExitSoftware, "Policy does not exist"))
				},
			}))
	}
	return verbs
}

// policyColumns are rabbitmqctl's.
var policyColumns = []string{"vhost", "name", "pattern", "apply-to", "definition", "priority"}

func (k *policyKind) setVerb(t *tool) *cobra.Command {
	var applyTo string
	var priority int64
	cmd := t.command(verb{
		use: k.set + " NAME PATTERN DEFINITION", short: "Create or replace " + k.one,
		long: "Create or replace " + k.one + ". The pattern is a regular expression that matches anywhere in the names of\n" +
			"queues and exchanges; the definition is a JSON object. It takes effect on what is there at once.",
		min: 3, max: 3,
		run: func(ctx context.Context, s *session, args []string) error {
			if !json.Valid([]byte(args[2])) {
				return errorf(ExitData, "JSON decoding error: the definition is no JSON: %s", args[2])
			}
			s.say(k.setting, args[0], args[1], args[2], priority, s.opt.vhost)
			err := s.put(ctx, path(k.path, s.opt.vhost, args[0]), map[string]any{
				"pattern": args[1], "definition": json.RawMessage(args[2]), "priority": priority, "apply-to": applyTo,
			})
			return found(err, noVhost(s.opt.vhost))
		},
	})
	cmd.Flags().StringVar(&applyTo, "apply-to", "all", "all, exchanges, queues, classic_queues, quorum_queues or streams")
	cmd.Flags().Int64Var(&priority, "priority", 0, "of several that match, the highest counts alone")
	return cmd
}

func (k *policyKind) listAll(ctx context.Context, s *session) error {
	s.say(k.listing, s.opt.vhost)
	var rows []row
	if err := s.get(ctx, path(k.path, s.opt.vhost), &rows); err != nil {
		return found(err, noVhost(s.opt.vhost))
	}
	return s.list(policyColumns, rows)
}

// missing tells whether a 404 was about the vhost or about what is in it.
func (k *policyKind) missing(ctx context.Context, s *session, err error, other *Error) error {
	if !isNotFound(err) {
		return err
	}
	var rows []row
	if isNotFound(s.get(ctx, path(k.path, s.opt.vhost), &rows)) {
		return noVhost(s.opt.vhost)
	}
	return other
}
