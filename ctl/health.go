package ctl

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
)

// checkup is the answer of a health check.
type checkup struct {
	Status    string          `json:"status"`
	Reason    string          `json:"reason"`
	Alarms    []statusAlarm   `json:"alarms"`
	Ports     []int           `json:"ports"`
	Protocols []string        `json:"protocols"`
	VHosts    []string        `json:"virtual-hosts"`
	Queues    []criticalQueue `json:"queues"`
	Expired   []struct {
		Protocol  string   `json:"protocol"`
		Port      int      `json:"port"`
		ExpiresOn []string `json:"certfile_expires_on"`
		// Authorities are those of the CA file.
		Authorities []string `json:"cacertfile_expires_on"`
	} `json:"expired"`
}

// criticalQueue is a queue, or of type "process" the catalog.
type criticalQueue struct {
	ReadableName string `json:"readable_name"`
	Type         string `json:"type"`
}

// check is one health check of a node.
type check struct {
	banner, passed string
	path           string
	// lines says what is wrong; nil: the reason says all.
	lines func(c *checkup) []string
}

func healthVerbs(t *tool) []*cobra.Command {
	simple := func(use, short string, c check) *cobra.Command {
		return t.command(verb{use: use, short: short, run: func(ctx context.Context, s *session, _ []string) error {
			asked := c
			asked.banner = fmt.Sprintf(c.banner, s.name)
			return s.check(ctx, asked)
		}})
	}
	return []*cobra.Command{
		simple("check_alarms", "Fail if a node of the cluster is short of memory or disk", check{
			"Asking node %s to report any known resource alarms ...", "No alarms are in effect in the cluster", path("health", "checks", "alarms"), alarmLines,
		}),
		simple("check_local_alarms", "Fail if the node is short of memory or disk", check{
			"Asking node %s to report any local resource alarms ...", "The node reported no local alarms", path("health", "checks", "local-alarms"), alarmLines,
		}),
		simple("check_virtual_hosts", "Fail while the node is opening its queues", check{
			"Checking if all virtual hosts are running on node %s ...", "All virtual hosts are running", path("health", "checks", "virtual-hosts"),
			func(c *checkup) []string { return []string{c.Reason + ": " + strings.Join(c.VHosts, ", ")} },
		}),
		simple("check_if_node_is_quorum_critical", "Fail if queues would lose their quorum if the node stopped", check{
			"Checking if node %s is critical for quorum of any quorum queues ...", "The node reported no quorum queues with minimum quorum",
			path("health", "checks", "node-is-quorum-critical"), criticalLines,
		}),
		simple("check_if_node_is_ready", "Fail if the node is not ready to serve clients, and say why", check{
			"Asking node %s if it is ready ...", "The node is ready to serve clients", path("health", "checks", "ready-to-serve-clients"), nil,
		}),
		listenerVerb(t, "check_port_listener PORT", "port-listener", "port", func(c *checkup) string { return "ports: " + joinInts(c.Ports) }),
		listenerVerb(t, "check_protocol_listener PROTOCOL", "protocol-listener", "protocol", func(c *checkup) string {
			return "protocols: " + strings.Join(c.Protocols, ", ")
		}),
		certificateVerb(t),
		t.command(verb{
			use: "check_port_connectivity", short: "Fail if a listener of the node cannot be connected to from here", run: checkConnectivity,
		}),
	}
}

func alarmLines(c *checkup) (lines []string) {
	for _, a := range c.Alarms {
		lines = append(lines, alarmLine(a))
	}
	return lines
}

func criticalLines(c *checkup) (lines []string) {
	for _, q := range c.Queues {
		lines = append(lines, q.ReadableName+" would lose quorum if the node is stopped")
	}
	return lines
}

func joinInts(list []int) string {
	slices.Sort(list)
	words := make([]string, len(list))
	for i, n := range list {
		words[i] = strconv.Itoa(n)
	}
	return strings.Join(words, ", ")
}

func listenerVerb(t *tool, use, what, kind string, others func(c *checkup) string) *cobra.Command {
	return t.command(verb{
		use: use, short: "Fail if the node has no listener for this " + kind, min: 1, max: 1,
		run: func(ctx context.Context, s *session, args []string) error {
			return s.check(ctx, check{
				fmt.Sprintf("Asking node %s if there's an active listener for %s %s ...", s.name, kind, args[0]),
				fmt.Sprintf("A listener for %s %s is running.", kind, args[0]), path("health", "checks", what, args[0]),
				func(c *checkup) []string {
					return []string{fmt.Sprintf("No listener for %s %s is active. Found listeners that use the following %s", kind, args[0], others(c))}
				},
			})
		},
	})
}

func certificateVerb(t *tool) *cobra.Command {
	var within uint
	var unit string
	cmd := t.command(verb{
		use: "check_certificate_expiration", short: "Fail if a certificate of the node expires within four weeks, or --within",
		run: func(ctx context.Context, s *session, _ []string) error {
			if !slices.Contains([]string{"days", "weeks", "months", "years"}, unit) {
				return usage("unit '%s' is not supported. Please use one of: days, weeks, months, years", unit)
			}
			return s.check(ctx, check{
				fmt.Sprintf("Checking certificate expiration on node %s ...", s.name), fmt.Sprintf("No certificates are expiring within %d %s.", within, unit),
				path("health", "checks", "certificate-expiration", strconv.FormatUint(uint64(within), 10), unit),
				func(c *checkup) (lines []string) {
					for _, e := range c.Expired {
						if len(e.ExpiresOn) > 0 {
							lines = append(lines, fmt.Sprintf("the certificate of %s on port %d expires at %s", e.Protocol, e.Port, strings.Join(e.ExpiresOn, ", ")))
						}
						if len(e.Authorities) > 0 {
							lines = append(lines, fmt.Sprintf("an authority (CA) of %s on port %d expires at %s", e.Protocol, e.Port, strings.Join(e.Authorities, ", ")))
						}
					}
					return lines
				},
			})
		},
	})
	cmd.Flags().UintVar(&within, "within", 4, "period of time to look ahead")
	cmd.Flags().StringVar(&unit, "unit", "weeks", "days, weeks, months or years")
	return cmd
}

// check asks for a health check and prints what came of it. One that fails is an error with the exit code 69, as in RabbitMQ's tools.
func (s *session) check(ctx context.Context, c check) error {
	s.say("%s", c.banner)
	ok, answer, err := s.ask(ctx, c.path)
	if err != nil {
		return err
	}
	if ok {
		s.passed(c.passed)
		return nil
	}
	lines := []string{answer.Reason}
	if c.lines != nil {
		lines = c.lines(answer)
	}
	return s.failed(strings.Join(lines, "\n"))
}

// ask asks for a health check.
func (s *session) ask(ctx context.Context, path string) (ok bool, answer *checkup, err error) {
	resp, raw, err := s.send(ctx, http.MethodGet, path, nil)
	if err != nil {
		return false, nil, err
	}
	answer = new(checkup)
	switch err := json.Unmarshal(raw, answer); {
	case err == nil && resp.StatusCode == http.StatusOK:
		return true, answer, nil
	case err == nil && resp.StatusCode == http.StatusServiceUnavailable && answer.Status == "failed":
		return false, answer, nil
	}
	return false, nil, s.refused(resp, raw)
}

// passed and failed end a check, in JSON if that is asked for.
func (s *session) passed(text string) {
	switch {
	case s.opt.formatter == formatJSON:
		s.printf("%s\n", `{"result":"ok"}`)
	case !s.opt.silent:
		s.printf("%s\n", text)
	}
}

func (s *session) failed(text string) error {
	if s.opt.formatter == formatJSON {
		raw, err := json.Marshal(map[string]string{"result": "error", "message": text})
		if err != nil {
			return err
		}
		s.printf("%s\n", raw)
	}
	if err := s.flush(); err != nil {
		return err
	}
	return errorf(ExitUnavailable, "%s", text)
}

// concerns tells whether a listener at this address can be there for who asks from here.
func (s *session) concerns(address string) bool { return s.isHere() || !isLoopback(address) }

// isHere tells whether the node is asked on its own machine.
func (s *session) isHere() bool {
	u, err := url.Parse(s.opt.url)
	return err == nil && (strings.HasPrefix(s.opt.url, unixScheme) || isLoopback(u.Hostname()))
}

func isLoopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// connectTimeout bounds one connection of check_port_connectivity.
const connectTimeout = 5 * time.Second

// checkConnectivity connects to each listener of the node, and closes the connection at once. From another machine one of the node's own machine, as
// profiles often have, cannot be connected to, and is not meant to be.
func checkConnectivity(ctx context.Context, s *session, _ []string) error {
	s.say("Testing TCP connections to all active listeners on the node ...")
	var info statusCluster
	if err := s.get(ctx, path("warren", "cluster"), &info); err != nil {
		return err
	}
	var node statusNode
	if err := s.get(ctx, path("nodes", info.Node), &node); err != nil {
		return err
	}
	var ports []int
	var lines []string
	for _, l := range node.Listeners {
		if !s.concerns(l.Interface) {
			continue
		}
		d := net.Dialer{Timeout: connectTimeout}
		conn, err := d.DialContext(ctx, "tcp", net.JoinHostPort(l.Interface, strconv.Itoa(l.Port)))
		if err != nil {
			lines = append(lines, fmt.Sprintf("Interface: %s, port: %d, protocol: %s: %v", l.Interface, l.Port, l.Protocol, err))
			continue
		}
		_ = conn.Close() // nothing was said
		ports = append(ports, l.Port)
	}
	if lines != nil {
		return s.failed("Connection to ports of the following listeners failed:\n" + strings.Join(lines, "\n"))
	}
	s.passed(fmt.Sprintf("Successfully connected to ports %s on node %s.", joinInts(ports), info.Node))
	return nil
}
