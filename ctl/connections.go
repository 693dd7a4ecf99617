package ctl

import (
	"context"
	"net/http"
	"strings"
	"time"

	"github.com/spf13/cobra"
)

// connectionColumns are those that list_connections knows, by rabbitmqctl's names, which are those of the management API but for pid.
var connectionColumns = []string{
	"pid", "name", "port", "host", "peer_port", "peer_host", "ssl", "ssl_protocol", "ssl_cipher", "peer_cert_subject", "peer_cert_issuer",
	"peer_cert_validity", "state", "channels", "protocol", "auth_mechanism", "user", "vhost", "timeout", "frame_max", "channel_max",
	"client_properties", "connected_at", "recv_oct", "send_oct", "node", "user_provided_name",
}

func connectionVerbs(t *tool) []*cobra.Command {
	return []*cobra.Command{
		t.command(verb{
			use: "list_connections [COLUMN...]", short: "List clients' connections with the columns asked for: user, peer_host, peer_port and state by default",
			long: "List clients' connections at all nodes. The columns are " + strings.Join(connectionColumns, ", ") + ".\n" +
				"A connection's pid is its name, which close_connection takes.", max: -1,
			run: listConnections,
		}),
		t.command(verb{
			use: "close_connection NAME REASON", short: "Close a client's connection, with a reason for the client", min: 2, max: 2,
			run: func(ctx context.Context, s *session, args []string) error {
				s.say("Closing connection %s, reason: %s ...", args[0], args[1])
				return s.gone(s.closeConnection(ctx, args[0], args[1]), errorf(ExitData, "no connection '%s'", args[0]))
			},
		}),
		closeAllVerb(t),
		t.command(verb{
			use: "close_all_user_connections USER REASON", short: "Close all connections of a user", min: 2, max: 2,
			run: func(ctx context.Context, s *session, args []string) error {
				s.say("Closing connections of user %s, reason: %s ...", args[0], args[1])
				return s.closeAll(ctx, args[1], 0, 0, func(c *openConnection) bool { return c.User == args[0] })
			},
		}),
	}
}

func listConnections(ctx context.Context, s *session, args []string) error {
	columns, err := columnsOf(args, connectionColumns, "user", "peer_host", "peer_port", "state")
	if err != nil {
		return err
	}
	s.say("Listing connections ...")
	var rows []row
	if err := s.get(ctx, path("connections"), &rows); err != nil {
		return err
	}
	for _, r := range rows {
		r["pid"] = r["name"]
	}
	return s.list(columns, rows)
}

func closeAllVerb(t *tool) *cobra.Command {
	var global bool
	var delay, limit int
	cmd := t.command(verb{
		use: "close_all_connections REASON", short: "Close all connections to a vhost, or to all", min: 1, max: 1, patient: true,
		run: func(ctx context.Context, s *session, args []string) error {
			if delay < 0 || limit < 0 {
				return usage("--per-connection-delay and --limit cannot be negative")
			}
			where := "of vhost " + s.opt.vhost
			if global {
				where = "of all vhosts"
			}
			s.say("Closing connections %s, reason: %s ...", where, args[0])
			return s.closeAll(ctx, args[0], limit, time.Duration(delay)*time.Millisecond, func(c *openConnection) bool {
				return global || c.VHost == s.opt.vhost
			})
		},
	})
	cmd.Flags().BoolVar(&global, "global", false, "those to all vhosts")
	cmd.Flags().IntVar(&delay, "per-connection-delay", 0, "`milliseconds` to wait between two")
	cmd.Flags().IntVar(&limit, "limit", 0, "close so many at most; 0: all")
	return cmd
}

// openConnection is what closing asks of a connection.
type openConnection struct {
	Name  string `json:"name"`
	User  string `json:"user"`
	VHost string `json:"vhost"`
}

// closeAll closes the chosen connections, limit of them at most if that is not 0.
func (s *session) closeAll(ctx context.Context, reason string, limit int, delay time.Duration, chosen func(*openConnection) bool) error {
	var all []openConnection
	if err := s.get(ctx, path("connections")+"?columns=name,user,vhost", &all); err != nil {
		return err
	}
	closed := 0
	for i := range all {
		if !chosen(&all[i]) {
			continue
		}
		if limit > 0 && closed == limit {
			break
		}
		if closed > 0 && delay > 0 {
			select {
			case <-ctx.Done():
				return errorf(ExitTimeout, "%d connections were closed in time", closed)
			case <-time.After(delay):
			}
		}
		if err := s.closeConnection(ctx, all[i].Name, reason); err != nil && !isNotFound(err) { // it may have gone by itself
			return err
		}
		closed++
	}
	s.printf("Closed %d connections\n", closed)
	return nil
}

func (s *session) closeConnection(ctx context.Context, name, reason string) error {
	return s.doWith(ctx, http.MethodDelete, path("connections", name), http.Header{"X-Reason": {reason}})
}
