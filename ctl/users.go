package ctl

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net/http"
	"strings"

	"github.com/spf13/cobra"

	"github.com/warrenmq/warren/auth"
)

// passwordBytesMax bounds a password that is read from standard input.
const passwordBytesMax = 64 << 10

func userVerbs(t *tool) []*cobra.Command {
	return append(passwordVerbs(t),
		t.command(verb{
			use: "delete_user USER", short: "Delete a user with its permissions, and close its connections", min: 1, max: 1,
			run: func(ctx context.Context, s *session, args []string) error {
				s.say(`Deleting user "%s" ...`, args[0])
				return s.gone(s.delete(ctx, path("users", args[0])), noUser(args[0]))
			},
		}),
		t.command(verb{
			use: "clear_password USER", short: "Remove a user's password, so that it cannot log in with one", min: 1, max: 1,
			run: func(ctx context.Context, s *session, args []string) error {
				s.say(`Clearing password for user "%s" ...`, args[0])
				return found(s.delete(ctx, path("warren", "users", args[0], "password")), noUser(args[0]))
			},
		}),
		t.command(verb{
			use: "set_user_tags USER [TAG...]", short: "Replace the tags of a user",
			long: "Replace the tags of a user. administrator, monitoring, policymaker and management open the management API,\n" +
				"impersonator lets a user publish under other names; others may be anything.",
			min: 1, max: -1,
			run: func(ctx context.Context, s *session, args []string) error {
				s.say(`Setting tags for user "%s" to [%s] ...`, args[0], strings.Join(args[1:], ", "))
				return found(s.put(ctx, path("warren", "users", args[0], "tags"), map[string]any{"tags": args[1:]}), noUser(args[0]))
			},
		}),
		t.command(verb{use: "list_users", short: "List users and their tags", run: listUsers}),
	)
}

// passwordVerbs are those that take a password.
func passwordVerbs(t *tool) []*cobra.Command {
	const how = "\n\nWithout PASSWORD it is the first line of standard input, where other users of the machine cannot see it."
	var hashed bool
	var hashing string
	body := func(s *session, args []string) (map[string]any, error) {
		password, err := s.password(t.env.Stdin, args)
		if err != nil {
			return nil, err
		}
		hash := auth.PasswordHash(password)
		switch {
		case hashed && hashing != "":
			return nil, usage("--pre-hashed-password and --hashing exclude each other")
		case hashing != "":
			if hash, err = hashAs(hashing, password); err != nil {
				return nil, err
			}
			fallthrough
		case hashed:
			return map[string]any{"password_hash": string(hash), "hashing_algorithm": hash.Algorithm()}, nil
		}
		return map[string]any{"password": password}, nil
	}
	add := t.command(verb{
		use: "add_user USER [PASSWORD]", short: "Create a user, without any permissions until set_permissions",
		long: "Create a user, without any permissions until set_permissions." + how, min: 1, max: 2,
		run: func(ctx context.Context, s *session, args []string) error {
			if args[0] == "" {
				return usage("user cannot be an empty string")
			}
			user, err := body(s, args[1:])
			if err != nil {
				return err
			}
			s.say(`Adding user "%s" ...`, args[0])
			err = s.put(ctx, path("warren", "users", args[0]), user)
			if e, ok := errors.AsType[*Error](err); ok && e.Text == "user '"+args[0]+"' already exists" {
				return errorf(e.Code, "User \"%s\" already exists", args[0])
			}
			if err != nil {
				return err
			}
			s.say("Done. Don't forget to grant the user permissions to some virtual hosts! See 'warren ctl help set_permissions' to learn more.")
			return nil
		},
	})
	change := t.command(verb{
		use: "change_password USER [PASSWORD]", short: "Change a user's password, for new logins",
		long: "Give a user another password. Connections that are open stay." + how, min: 1, max: 2,
		run: func(ctx context.Context, s *session, args []string) error {
			user, err := body(s, args[1:])
			if err != nil {
				return err
			}
			s.say(`Changing password for user "%s" ...`, args[0])
			return found(s.put(ctx, path("warren", "users", args[0], "password"), user), noUser(args[0]))
		},
	})
	for _, cmd := range []*cobra.Command{add, change} {
		cmd.Flags().BoolVar(&hashed, "pre-hashed-password", false, "PASSWORD is a hash: base64 of 4 bytes of salt and the SHA-256 of salt and password, or one of bcrypt")
		hashingFlag(cmd, &hashing, "the node's setting password-hashing")
	}
	return []*cobra.Command{add, change, t.command(verb{
		use: "authenticate_user USER [PASSWORD]", short: "Check a user's password",
		long: "Check a user's password. The exit code is 65 if it is wrong." + how, min: 1, max: 2,
		run: func(ctx context.Context, s *session, args []string) error {
			password, err := s.password(t.env.Stdin, args[1:])
			if err != nil {
				return err
			}
			return s.authenticate(ctx, args[0], password)
		},
	})}
}

// hashingFlag lets a password be hashed here.
func hashingFlag(cmd *cobra.Command, to *string, otherwise string) {
	cmd.Flags().StringVar(to, "hashing", "", "hash the password by sha256, bcrypt or bcrypt:COST; without it by "+otherwise)
}

func hashAs(hashing, password string) (auth.PasswordHash, error) {
	h, err := auth.ParseHashing(hashing)
	if err != nil {
		return "", usage("--hashing %v", err)
	}
	hash, err := h.Hash(password)
	if err != nil {
		return "", errorf(ExitData, "%v", err)
	}
	return hash, nil
}

// password is the argument, or else the first line of standard input.
func (s *session) password(stdin io.Reader, args []string) (string, error) {
	if len(args) > 0 {
		return args[0], nil
	}
	if stdin == nil {
		stdin = strings.NewReader("")
	}
	line, err := bufio.NewReader(io.LimitReader(stdin, passwordBytesMax)).ReadString('\n')
	if err != nil && !errors.Is(err, io.EOF) {
		return "", errorf(ExitSoftware, "standard input: %v", err)
	}
	if line == "" {
		return "", errorf(ExitData, "Password is not provided via argument or stdin")
	}
	return strings.TrimRight(line, "\r\n"), nil
}

func (s *session) authenticate(ctx context.Context, user, password string) error {
	s.say(`Authenticating user "%s" ...`, user)
	var answer struct {
		Authenticated bool `json:"authenticated"`
	}
	err := s.do(ctx, http.MethodPost, path("warren", "users", user, "authenticate"), map[string]string{"password": password}, &answer)
	if err != nil {
		return err
	}
	if !answer.Authenticated {
		return errorf(ExitData, "Error: failed to authenticate user \"%s\"", user)
	}
	if s.opt.formatter == formatTable {
		s.printf("Success\n")
	}
	return nil
}

func listUsers(ctx context.Context, s *session, _ []string) error {
	s.say("Listing users ...")
	var users []struct {
		Name string   `json:"name"`
		Tags []string `json:"tags"`
	}
	if err := s.get(ctx, path("users"), &users); err != nil {
		return err
	}
	rows := make([]row, len(users))
	for i, u := range users {
		rows[i] = row{"user": u.Name, "tags": s.bracketed(u.Tags)}
	}
	return s.list([]string{"user", "tags"}, rows)
}

// bracketed is a list of words as rabbitmqctl shows it: [a, b], an array in JSON.
func (s *session) bracketed(words []string) any {
	if s.opt.formatter == formatJSON {
		return words
	}
	return "[" + strings.Join(words, ", ") + "]"
}
