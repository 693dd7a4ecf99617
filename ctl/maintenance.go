package ctl

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
)

// drainPatience is how much longer than its node the verb waits, and drainDefault for how long if the node knows.
const (
	drainPatience = 20 * time.Second
	drainDefault  = 2 * time.Minute
)

func maintenanceVerbs(t *tool) []*cobra.Command {
	return []*cobra.Command{
		drainVerb(t),
		t.command(verb{
			use: "revive [NODE]", short: "End the maintenance of a node: it accepts clients again, and its leaders move back", max: 1,
			long: "End what drain began: the node listens for clients again, and the queues that are at home there come back by and by. The node\n" +
				"is the one that is asked, if none is named. A restart ends maintenance too.",
			run: func(ctx context.Context, s *session, args []string) error {
				s.say("Reviving %s ...", nodeOf(args))
				return found(s.delete(ctx, maintenancePath(args)), noNode(args))
			},
		}),
	}
}

func drainVerb(t *tool) *cobra.Command {
	var limit time.Duration
	var strict bool
	cmd := t.command(verb{
		use: "drain [NODE]", short: "Put a node into maintenance: other nodes take over its queues, its clients are disconnected", max: 1,
		long: "Put a node into maintenance, as before it is stopped: it is not ready, gets no new queues, waits until no queue would lose its quorum with\n" +
			"it, closes its listeners, hands over the queues that it leads and the catalog, lets publishers have their confirms and closes\n" +
			"all connections (320). It stays in the cluster, with its replicas. The node is the one that is asked, if none is named. The exit\n" +
			"code is 0 also if something stayed, which is said, unless --strict is given.",
		run: func(ctx context.Context, s *session, args []string) error { return drain(ctx, s, args, limit, strict) },
	})
	cmd.Flags().DurationVar(&limit, "for", 0, "how long it may take, such as 60s (the node's --drain-timeout if not given)")
	cmd.Flags().BoolVar(&strict, "strict", false, "fail if queues or the catalog stay with the node")
	return cmd
}

func drain(ctx context.Context, s *session, args []string, limit time.Duration, strict bool) error {
	if limit < 0 {
		return usage("--for is negative")
	}
	s.say("Draining %s ...", nodeOf(args))
	at, wait := maintenancePath(args), drainDefault
	if limit > 0 {
		at += "?" + url.Values{"for": {strconv.FormatFloat(limit.Seconds(), 'f', -1, 64)}}.Encode()
		wait = limit
	}
	// The option --timeout is for answers that come at once.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), wait+drainPatience)
	defer cancel()
	var left struct {
		Moved        int  `json:"queues_moved"`
		Stayed       int  `json:"queues_stayed"`
		LeadsCatalog bool `json:"leads_catalog"`
		Clients      int  `json:"clients"`
		Unanswered   int  `json:"clients_unanswered"`
	}
	if err := s.do(ctx, http.MethodPut, at, nil, &left); err != nil {
		return found(err, noNode(args))
	}
	s.printf("%d queues moved, %d clients sent away\n", left.Moved, left.Clients)
	var stays []string
	if left.Stayed > 0 {
		stays = append(stays, fmt.Sprintf("%d queues are still led there", left.Stayed))
	}
	if left.LeadsCatalog {
		stays = append(stays, "so is the catalog")
	}
	if left.Unanswered > 0 {
		stays = append(stays, fmt.Sprintf("%d clients do not know the fate of all they have published", left.Unanswered))
	}
	if len(stays) == 0 {
		return nil
	}
	if strict {
		return errorf(ExitSoftware, "%s", strings.Join(stays, ", "))
	}
	s.printf("%s\n", strings.Join(stays, ", "))
	return nil
}

func maintenancePath(args []string) string {
	if len(args) == 0 {
		return path("warren", "maintenance")
	}
	return path("warren", "nodes", args[0], "maintenance")
}

func nodeOf(args []string) string {
	if len(args) == 0 {
		return "the node that is asked"
	}
	return "node " + args[0]
}

func noNode(args []string) *Error {
	return errorf(ExitData, "there is no %s", nodeOf(args))
}
