package ctl

import (
	"context"
	"encoding/json"

	"github.com/spf13/cobra"
)

// limitsOf are the limits of a vhost or a user, as the API lists them.
type limitsOf struct {
	Vhost string                 `json:"vhost"`
	User  string                 `json:"user"`
	Value map[string]json.Number `json:"value"`
}

// text is the limits in JSON, in the order of their names, as rabbitmqctl shows them.
func (l *limitsOf) text() (string, error) {
	raw, err := json.Marshal(l.Value)
	return string(raw), err
}

// allLimits names all limits of a user.
const allLimits = "all"

func limitVerbs(t *tool) []*cobra.Command {
	return append(vhostLimitVerbs(t), userLimitVerbs(t)...)
}

func vhostLimitVerbs(t *tool) []*cobra.Command {
	var global bool
	list := t.command(verb{
		use: "list_vhost_limits", short: "Show the limits of a vhost, or of all vhosts that have some",
		run: func(ctx context.Context, s *session, _ []string) error {
			if global {
				s.say("Listing limits for all vhosts ...")
				return s.listLimits(ctx, "vhost", path("vhost-limits"), func(l *limitsOf) string { return l.Vhost })
			}
			s.say(`Listing limits for vhost "%s" ...`, s.opt.vhost)
			return s.showLimits(ctx, path("vhost-limits", s.opt.vhost), "", noVhost(s.opt.vhost))
		},
	})
	list.Flags().BoolVar(&global, "global", false, "the limits of all vhosts")
	return []*cobra.Command{
		t.command(verb{
			use: "set_vhost_limits DEFINITION", short: "Replace the limits of a vhost: max-connections and max-queues",
			long: "Replace the limits of a vhost by those of a JSON object, like {\"max-connections\":100,\"max-queues\":50}.\n" +
				"What is open stays open. A negative number limits nothing.",
			min: 1, max: 1,
			run: func(ctx context.Context, s *session, args []string) error {
				body, err := limitDefinition(args[0])
				if err != nil {
					return err
				}
				s.say(`Setting vhost limits to "%s" for vhost "%s" ...`, args[0], s.opt.vhost)
				return found(s.put(ctx, path("warren", "vhost-limits", s.opt.vhost), body), noVhost(s.opt.vhost))
			},
		}),
		t.command(verb{
			use: "clear_vhost_limits", short: "Remove all limits of a vhost",
			run: func(ctx context.Context, s *session, _ []string) error {
				s.say(`Clearing vhost "%s" limits ...`, s.opt.vhost)
				return found(s.delete(ctx, path("warren", "vhost-limits", s.opt.vhost)), noVhost(s.opt.vhost))
			},
		}),
		list,
	}
}

func userLimitVerbs(t *tool) []*cobra.Command {
	var global bool
	var user string
	list := t.command(verb{
		use: "list_user_limits", short: "Show the limits of a user, or of all users that have some",
		long: "Show the limits of a user, or of all users that have some. As in rabbitmqctl --user says whose limits;\n" +
			"who asks is taken from WARREN_CTL_USER here.",
		run: func(ctx context.Context, s *session, _ []string) error {
			if global {
				s.say("Listing limits for all users ...")
				return s.listLimits(ctx, "user", path("user-limits"), func(l *limitsOf) string { return l.User })
			}
			s.say(`Listing limits for user "%s" ...`, user)
			return s.showLimits(ctx, path("user-limits", user), "{}", noUser(user))
		},
	})
	// This hides the --user that says who asks.
	list.Flags().StringVar(&user, "user", "guest", "whose limits")
	list.Flags().BoolVar(&global, "global", false, "the limits of all users")
	return []*cobra.Command{
		t.command(verb{
			use: "set_user_limits USER DEFINITION", short: "Set limits of a user: max-connections and max-channels",
			long: "Set those limits of a user that a JSON object has, like {\"max-connections\":10,\"max-channels\":100}; others\n" +
				"stay as they are. What is open stays open. A negative number limits nothing.",
			min: 2, max: 2,
			run: func(ctx context.Context, s *session, args []string) error {
				body, err := limitDefinition(args[1])
				if err != nil {
					return err
				}
				s.say(`Setting user limits to "%s" for user "%s" ...`, args[1], args[0])
				return found(s.put(ctx, path("warren", "user-limits", args[0]), body), noUser(args[0]))
			},
		}),
		t.command(verb{
			use: "clear_user_limits USER LIMIT|all", short: "Remove a limit, or all limits, of a user",
			min: 2, max: 2,
			run: func(ctx context.Context, s *session, args []string) error {
				if args[1] == allLimits {
					s.say(`Clearing all limits for user "%s" ...`, args[0])
				} else {
					s.say(`Clearing "%s" limit for user "%s" ...`, args[1], args[0])
				}
				return found(s.delete(ctx, path("user-limits", args[0], args[1])), noUser(args[0]))
			},
		}),
		list,
	}
}

// noUser is the error for a user that does not exist.
func noUser(name string) *Error {
	return errorf(ExitNoUser, "User \"%s\" does not exist", name)
}

// limitDefinition checks that a definition is a JSON object. What may be in it is the
// node's affair.
func limitDefinition(text string) (json.RawMessage, error) {
	var object map[string]json.RawMessage
	if err := json.Unmarshal([]byte(text), &object); err != nil {
		return nil, errorf(ExitData, "Could not parse JSON document: %v", err)
	}
	if object == nil {
		return nil, errorf(ExitData, "Could not parse JSON document: %s is no object", text)
	}
	return json.RawMessage(text), nil
}

// listLimits lists the limits of several, each in JSON.
func (s *session) listLimits(ctx context.Context, column, from string, name func(*limitsOf) string) error {
	var list []limitsOf
	if err := s.get(ctx, from, &list); err != nil {
		return err
	}
	rows := make([]row, len(list))
	for i := range list {
		text, err := list[i].text()
		if err != nil {
			return err
		}
		rows[i] = row{column: name(&list[i]), "limits": text}
	}
	return s.list([]string{column, "limits"}, rows)
}

// showLimits prints the limits of one in JSON, or none if it has none.
func (s *session) showLimits(ctx context.Context, from, none string, missing *Error) error {
	var list []limitsOf
	if err := s.get(ctx, from, &list); err != nil {
		return found(err, missing)
	}
	text := none
	if len(list) > 0 {
		var err error
		if text, err = list[0].text(); err != nil {
			return err
		}
	}
	switch {
	case s.opt.formatter == formatJSON && text == "":
		s.printf("[]\n")
	case s.opt.formatter == formatJSON: // rabbitmqctl wraps a text like that
		s.printf("{\"message\":%q}\n", text)
	case text != "":
		s.printf("%s\n", text)
	}
	return nil
}
