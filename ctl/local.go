package ctl

import (
	"bufio"
	"cmp"
	"context"
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
)

// localVerbs are about the node that is asked.
func localVerbs(t *tool) []*cobra.Command {
	return []*cobra.Command{
		t.command(verb{
			use: "server_version", short: "Show the version of the node",
			run: func(ctx context.Context, s *session, _ []string) error {
				n, err := s.ownNode(ctx)
				if err != nil {
					return err
				}
				s.say("Asking node %s for its version ...", n.Name)
				s.printf("%s\n", n.Version)
				return nil
			},
		}),
		t.command(verb{
			use: "listeners", short: "Show the listeners of the node",
			run: listListeners,
		}),
		t.command(verb{
			use: "environment", short: "Show the settings that are in effect on the node",
			run: environment,
		}),
		t.command(verb{
			use: "set_log_level LEVEL", short: "Set the node's log level to debug, info, warn or error, until it is restarted", min: 1, max: 1,
			run: func(ctx context.Context, s *session, args []string) error {
				s.say(`Setting log level to "%s" ...`, args[0])
				level := args[0]
				if level == "warning" { // rabbitmqctl's word
					level = "warn"
				}
				return s.put(ctx, path("warren", "log-level"), map[string]string{"level": level})
			},
		}),
		logTailVerb(t), logStreamVerb(t), memoryVerb(t),
		hashVerb(t),
		routeVerb(t),
	}
}

// ownNode is the node that answers.
func (s *session) ownNode(ctx context.Context) (*statusNode, error) {
	var c statusCluster
	if err := s.get(ctx, path("warren", "cluster"), &c); err != nil {
		return nil, err
	}
	var n statusNode
	if err := s.get(ctx, path("nodes", c.Node), &n); err != nil {
		return nil, found(err, noNode([]string{c.Node}))
	}
	return &n, nil
}

func listListeners(ctx context.Context, s *session, _ []string) error {
	n, err := s.ownNode(ctx)
	if err != nil {
		return err
	}
	s.say("Asking node %s to report its protocol listeners ...", n.Name)
	if s.opt.formatter != formatTable {
		rows := make([]row, len(n.Listeners))
		for i, l := range n.Listeners {
			rows[i] = row{"interface": l.Interface, "port": l.Port, "protocol": l.Protocol, "purpose": l.Purpose}
		}
		return s.list([]string{"interface", "port", "protocol", "purpose"}, rows)
	}
	for _, l := range n.Listeners {
		s.printf("Interface: %s, port: %d, protocol: %s, purpose: %s\n", l.Interface, l.Port, l.Protocol, l.Purpose)
	}
	return nil
}

func environment(ctx context.Context, s *session, _ []string) error {
	s.say("Application environment of the node ...")
	var rows []row
	if err := s.get(ctx, path("warren", "environment"), &rows); err != nil {
		return err
	}
	return s.list([]string{"name", "value", "variable"}, rows)
}

func hashVerb(t *tool) *cobra.Command {
	var hashing string
	cmd := t.command(verb{
		use: "hash_password [PASSWORD]", short: "Hash a password for a definitions file; no node is asked", max: 1,
		long: "Hash a password as users' are, with a new salt, for a file of definitions. No node is asked.\n\n" +
			"Without PASSWORD it is the first line of standard input, where other users of the machine cannot see it.",
		run: func(_ context.Context, s *session, args []string) error {
			password := ""
			if len(args) > 0 {
				password = args[0]
			} else if t.env.Stdin != nil {
				in := bufio.NewScanner(t.env.Stdin)
				in.Scan()
				password = in.Text()
			}
			if password == "" {
				return errorf(ExitData, "password cannot be an empty string")
			}
			hash, err := hashAs(cmp.Or(hashing, "sha256"), password)
			if err != nil {
				return err
			}
			s.say("Will hash password")
			s.printf("%s\n", string(hash))
			return nil
		},
	})
	hashingFlag(cmd, &hashing, "sha256")
	return cmd
}

func routeVerb(t *tool) *cobra.Command {
	var headers []string
	cmd := t.command(verb{
		use: "route EXCHANGE KEY", short: "Show which queues a message with a routing key would go to; nothing is published", min: 2, max: 2,
		long: `Say which queues a message with a routing key would go to, by bindings, exchanges and alternate exchanges as they are now. Nothing
is published. "" or amq.default is the default exchange.`,
		run: func(ctx context.Context, s *session, args []string) error {
			table := map[string]string{}
			for _, h := range headers {
				name, value, ok := strings.Cut(h, "=")
				if !ok {
					return usage("--header '%s' is not NAME=TEXT", h)
				}
				table[name] = value
			}
			exchange := args[0]
			if exchange == "" {
				exchange = "amq.default"
			}
			s.say("Where key '%s' goes from exchange '%s' in vhost '%s' ...", args[1], exchange, s.opt.vhost)
			var to struct {
				Queues []string `json:"queues"`
				Delay  int64    `json:"delay_ms"`
			}
			body := map[string]any{"routing_key": args[1], "properties": map[string]any{"headers": table}}
			if err := s.do(ctx, http.MethodPost, path("warren", "exchanges", s.opt.vhost, exchange, "route"), body, &to); err != nil {
				return found(err, errorf(ExitData, "no exchange '%s' in vhost '%s'", exchange, s.opt.vhost))
			}
			rows := make([]row, len(to.Queues))
			for i, q := range to.Queues {
				rows[i] = row{"queue": q}
			}
			if to.Delay > 0 {
				s.say("after %d ms", to.Delay)
			}
			if len(rows) == 0 {
				s.say("nowhere: it would be dropped, or returned if it is mandatory")
			}
			return s.list([]string{"queue"}, rows)
		},
	})
	cmd.Flags().StringArrayVar(&headers, "header", nil, "`NAME=TEXT` of a header; again for another one")
	return cmd
}

// reportVerbs have report, which is for whoever is to help.
func reportVerbs(t *tool) []*cobra.Command {
	return []*cobra.Command{t.command(verb{
		use: "report", short: "Show everything that may help to diagnose a problem; no messages, no passwords",
		run: report,
	})}
}

// report runs the verbs that look, one after the other. What one of them cannot say is a line of it.
func report(ctx context.Context, s *session, _ []string) error {
	if s.opt.formatter != formatTable {
		return usage("report has the form of tables only")
	}
	var vhosts []struct {
		Name string `json:"name"`
	}
	if err := s.get(ctx, path("vhosts"), &vhosts); err != nil {
		return err
	}
	part := func(name string, run func(context.Context, *session, []string) error, args ...string) {
		s.printf("\n# %s\n", name)
		if err := run(ctx, s, args); err != nil {
			s.printf("%v\n", fmt.Errorf("not shown: %w", err))
		}
	}
	quiet, chosen := s.opt.quiet, s.opt.vhost
	s.opt.quiet = true
	part("cluster_status", clusterStatus)
	part("environment", environment)
	part("list_vhosts", listVhosts)
	part("list_users", listUsers)
	part("list_connections", listConnections, "user", "vhost", "peer_host", "peer_port", "state", "channels", "node", "client_properties")
	for _, v := range vhosts {
		s.opt.vhost = v.Name
		at := " of vhost " + v.Name
		part("list_queues"+at, listQueues, "name", "type", "state", "leader", "members", "online", "messages", "messages_ready", "messages_unacknowledged", "messages_dlx", "messages_delayed", "consumers",
			"policy", "operator_policy", "arguments")
		part("list_exchanges"+at, listExchanges, exchangeColumns...)
		part("list_bindings"+at, listBindings)
		for i := range policyKinds {
			part(policyKinds[i].list+at, func(ctx context.Context, s *session, _ []string) error { return policyKinds[i].listAll(ctx, s) })
		}
	}
	s.opt.quiet, s.opt.vhost = quiet, chosen
	return nil
}

// logTailVerb shows the end of the log, as rabbitmq-diagnostics does.
func logTailVerb(t *tool) *cobra.Command {
	lines := 50
	cmd := t.command(verb{
		use: "log_tail", short: "Show the newest lines of the node's log",
		run: func(ctx context.Context, s *session, _ []string) error {
			var log struct{ Lines []string }
			if err := s.get(ctx, path("warren", "log")+"?lines="+strconv.Itoa(lines), &log); err != nil {
				return err
			}
			for _, l := range log.Lines {
				s.printf("%s\n", l)
			}
			return nil
		},
	})
	cmd.Flags().IntVarP(&lines, "number", "N", lines, "how many `lines`, 1000 at most")
	return cmd
}
