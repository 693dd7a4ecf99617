package ctl

import (
	"context"
	"errors"

	"github.com/spf13/cobra"
)

// permissionKind is permissions or topic permissions, in the words of rabbitmqctl.
type permissionKind struct {
	path              string // in the management API
	list, listUser    string // verbs
	columns           []string
	what, listingWhat string
}

var permissionKinds = []permissionKind{
	{"permissions", "list_permissions", "list_user_permissions", []string{"configure", "write", "read"}, "the permissions of users", "permissions"},
	{"topic-permissions", "list_topic_permissions", "list_user_topic_permissions", []string{"exchange", "write", "read"}, "the topic permissions of users", "topic permissions"},
}

func permissionVerbs(t *tool) []*cobra.Command {
	const patterns = "The patterns are regular expressions in Go's syntax that match anywhere in a name; '' matches nothing."
	verbs := []*cobra.Command{
		t.command(verb{
			use: "set_permissions USER CONFIGURE WRITE READ", short: "Set the permissions of a user in a vhost",
			long: "Say which exchanges and queues of a vhost a user may configure, write to and read from.\n" + patterns, min: 4, max: 4,
			run: func(ctx context.Context, s *session, args []string) error {
				s.say(`Setting permissions for user "%s" in vhost "%s" ...`, args[0], s.opt.vhost)
				err := s.put(ctx, path("permissions", s.opt.vhost, args[0]), map[string]string{"configure": args[1], "write": args[2], "read": args[3]})
				return s.whichIsGone(ctx, err, args[0])
			},
		}),
		t.command(verb{
			use: "clear_permissions USER", short: "Remove a user's permissions in a vhost, which it then cannot open", min: 1, max: 1,
			run: func(ctx context.Context, s *session, args []string) error {
				s.say(`Clearing permissions for user "%s" in vhost "%s" ...`, args[0], s.opt.vhost)
				return s.whichIsGone(ctx, s.delete(ctx, path("permissions", s.opt.vhost, args[0])), args[0])
			},
		}),
		t.command(verb{
			use: "set_topic_permissions USER EXCHANGE WRITE READ", short: "Set the topic permissions of a user: which routing keys of a topic exchange it may use",
			long: "Say with which keys a user may publish to a topic exchange and bind to it. {username} and {vhost} stand for the names.\n" + patterns, min: 4, max: 4,
			run: func(ctx context.Context, s *session, args []string) error {
				s.say(`Setting topic permissions on "%s" for user "%s" in vhost "%s" ...`, args[1], args[0], s.opt.vhost)
				err := s.put(ctx, path("topic-permissions", s.opt.vhost, args[0]), map[string]string{"exchange": args[1], "write": args[2], "read": args[3]})
				return s.whichIsGone(ctx, err, args[0])
			},
		}),
		t.command(verb{
			use: "clear_topic_permissions USER [EXCHANGE]", short: "Remove a user's topic permissions for an exchange, or for all in a vhost: all routing keys are then allowed", min: 1, max: 2,
			long: "Let a user use all keys of a topic exchange again or, without EXCHANGE, of all in a vhost. The default exchange has no topics: '' is refused.",
			run: func(ctx context.Context, s *session, args []string) error {
				if len(args) == 1 {
					s.say(`Clearing topic permissions for user "%s" in vhost "%s" ...`, args[0], s.opt.vhost)
				} else {
					s.say(`Clearing topic permissions on "%s" for user "%s" in vhost "%s" ...`, args[1], args[0], s.opt.vhost)
				}
				return s.whichIsGone(ctx, s.delete(ctx, path(append([]string{"topic-permissions", s.opt.vhost}, args...)...)), args[0])
			},
		}),
	}
	for _, k := range permissionKinds {
		verbs = append(verbs,
			t.command(verb{use: k.list, short: "List " + k.what + " in a vhost", run: func(ctx context.Context, s *session, _ []string) error {
				s.say(`Listing %s for vhost "%s" ...`, k.listingWhat, s.opt.vhost)
				return s.listAll(ctx, path("vhosts", s.opt.vhost, k.path), append([]string{"user"}, k.columns...), noVhost(s.opt.vhost))
			}}),
			t.command(verb{use: k.listUser + " USER", short: "List " + k.what + ", for one user in all vhosts", min: 1, max: 1, run: func(ctx context.Context, s *session, args []string) error {
				s.say(`Listing %s for user "%s" ...`, k.listingWhat, args[0])
				return s.listAll(ctx, path("users", args[0], k.path), append([]string{"vhost"}, k.columns...), noUser(args[0]))
			}}))
	}
	return verbs
}

// listAll prints what a path has; missing is the error if there is no such path.
func (s *session) listAll(ctx context.Context, from string, columns []string, missing *Error) error {
	var rows []row
	if err := s.get(ctx, from, &rows); err != nil {
		return found(err, missing)
	}
	return s.list(columns, rows)
}

// endsGone is how the API says that the user or the vhost of a permission does not exist.
const endsGone = "vhost_or_user_not_found"

// whichIsGone finds out what err means: that the user does not exist, or the vhost, or if
// both do, that there was nothing to take, which is fine.
func (s *session) whichIsGone(ctx context.Context, err error, user string) error {
	e, ok := errors.AsType[*Error](err)
	if !isNotFound(err) && (!ok || e.Text != endsGone) {
		return err
	}
	for _, end := range []struct {
		path string
		gone *Error
	}{{path("users", user), noUser(user)}, {path("vhosts", s.opt.vhost), noVhost(s.opt.vhost)}} {
		var ignored row
		if err := s.get(ctx, end.path, &ignored); err != nil {
			return found(err, end.gone)
		}
	}
	if isNotFound(err) {
		return nil
	}
	return err
}
