package ctl

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/spf13/cobra"
)

// recoverPatience is how long the verb waits: every queue has half a minute to get its leader, many at a time.
const recoverPatience = 10 * time.Minute

// recoverColumns are those of recover_queues.
var recoverColumns = []string{"vhost", "name", "state", "keep", "survivors", "lost", "messages", "sent_again", "why"}

func recoveryVerbs(t *tool) []*cobra.Command {
	var lost []string
	var yes bool
	cmd := t.command(verb{
		use: "recover_queues --lost NODE[,NODE] [QUEUE]", short: "Recover queues that have permanently lost a majority of their replicas", max: 1,
		long: "Let queues go on that have lost the majority of their replicas for good, from the newest replica that is left: all of the cluster, or\n" +
			"one of the virtual host. Without --yes it only tells what it would do. WHAT ONLY THE LOST NODES HAD IS GONE, also if it was\n" +
			"confirmed, and what they have must never come back: stop them, or take them off the network, before. Dead letters that were on\n" +
			"their way out of a recovered queue are sent again, and may arrive twice; sent_again tells how many. Read docs/operations.md,\n" +
			"\"Lost majority\", before. The exit code is 70 if a queue was not recovered.",
		run: func(ctx context.Context, s *session, args []string) error {
			return recoverQueues(ctx, s, args, lost, yes)
		},
	})
	cluster := t.command(verb{
		use: "recover_cluster --lost NODE[,NODE]", short: "Recover a cluster that has permanently lost a majority of its catalog's voters", patient: true,
		long: "Let a cluster go on without nodes that are lost for good, if its catalog has lost its majority with them. It is asked on a node that goes\n" +
			"on, by the socket in its data folder, also while that node waits for the catalog. Without --yes it only tells what it would do. All\n" +
			"other nodes have to be there. WHAT ONLY THE LOST NODES HAD IS GONE: declarations, users and policies of the last moments, and queues\n" +
			"without any other replica. The lost nodes must never come back: stop them, or take them off the network, before. All nodes begin anew, with\n" +
			"their queues, and cut their clients off. Read docs/operations.md, \"Lost catalog\", before.",
		run: func(ctx context.Context, s *session, _ []string) error { return recoverCluster(ctx, s, lost, yes) },
	})
	cluster.PreRun = func(*cobra.Command, []string) {
		url, _ := t.env.Lookup("WARREN_CTL_URL")
		if t.given("url") {
			url = t.opt.url
		}
		t.opt.local = t.opt.local || !strings.HasPrefix(url, unixScheme)
	}
	for _, c := range []*cobra.Command{cmd, cluster} {
		c.Flags().StringSliceVar(&lost, "lost", nil, "the nodes that are gone for good")
		c.Flags().BoolVar(&yes, "yes", false, "do it")
	}
	return []*cobra.Command{cmd, cluster}
}

// clusterColumns are those of recover_cluster.
var clusterColumns = []string{"node", "state", "term", "index", "voter", "keep"}

func recoverCluster(ctx context.Context, s *session, lost []string, yes bool) error {
	if len(lost) == 0 {
		return usage("--lost names the nodes that are gone for good")
	}
	if yes {
		s.say("Recovering the cluster without %s ...", strings.Join(lost, ", "))
	} else {
		s.say("The cluster without %s; nothing is done without --yes ...", strings.Join(lost, ", "))
	}
	var report struct {
		Cluster, Next, Keep string
		Lost                []string
		Survivors           []struct {
			Node        string
			Term, Index uint64
			Voter       bool
		}
		Queues struct{ All, Minority, Gone int }
	}
	req := map[string]any{"lost": lost, "yes": yes}
	if err := s.do(ctx, http.MethodPost, path("warren", "recovery", "cluster"), req, &report); err != nil {
		return err
	}
	var rows []row
	for _, v := range report.Survivors {
		rows = append(rows, row{"node": v.Node, "state": "goes_on", "term": v.Term, "index": v.Index, "voter": v.Voter, "keep": v.Node == report.Keep})
	}
	for _, n := range report.Lost {
		rows = append(rows, row{"node": n, "state": "lost", "term": 0, "index": 0, "voter": false, "keep": false})
	}
	if err := s.list(clusterColumns, rows); err != nil {
		return err
	}
	q := report.Queues
	s.say("Of %d queues %d lose most of their replicas and can be recovered, %d lose all.", q.All, q.Minority, q.Gone)
	if yes {
		s.say("Cluster %s goes on as %s. Its nodes begin anew; when they are ready (await_startup):\nwarren ctl recover_queues --lost %s",
			report.Cluster, report.Next, strings.Join(lost, ","))
	}
	return nil
}

// recovered is what the API tells of one queue.
type recovered struct {
	VHost     string   `json:"vhost"`
	Name      string   `json:"name"`
	Delays    bool     `json:"delays"`
	Lost      []string `json:"lost"`
	Survivors []struct {
		Node  string `json:"node"`
		Term  uint64 `json:"term"`
		Index uint64 `json:"index"`
		Voter bool   `json:"voter"`
	} `json:"survivors"`
	Keep     string `json:"keep"`
	State    string `json:"state"`
	Why      string `json:"why"`
	Messages uint64 `json:"messages"`
	Again    uint64 `json:"sent_again"`
}

func (q *recovered) row() row {
	name := q.Name
	if q.Delays {
		name = "exchange " + name
	}
	var survivors []string
	for _, r := range q.Survivors {
		text := fmt.Sprintf("%s:%d/%d", r.Node, r.Term, r.Index)
		if !r.Voter {
			text += ":no-voter"
		}
		survivors = append(survivors, text)
	}
	return row{
		"vhost": q.VHost, "name": name, "state": q.State, "keep": q.Keep, "survivors": strings.Join(survivors, " "),
		"lost": strings.Join(q.Lost, " "), "messages": q.Messages, "sent_again": q.Again, "why": q.Why,
	}
}

func recoverQueues(ctx context.Context, s *session, args, lost []string, yes bool) error {
	if len(lost) == 0 {
		return usage("--lost names the nodes that are gone for good")
	}
	req := map[string]any{"lost": lost, "yes": yes}
	if len(args) > 0 {
		req["vhost"], req["queue"] = s.opt.vhost, args[0]
	}
	if yes {
		s.say("Recovering queues that have lost most of their replicas with %s ...", strings.Join(lost, ", "))
	} else {
		s.say("Queues that have lost most of their replicas with %s; nothing is done without --yes ...", strings.Join(lost, ", "))
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), recoverPatience)
	defer cancel()
	var report struct {
		Queues []recovered `json:"queues"`
	}
	if err := s.do(ctx, http.MethodPost, path("warren", "recovery"), req, &report); err != nil {
		if e, ok := errors.AsType[*Error](err); ok && strings.Contains(e.Text, "catalog has no leader") {
			e.Text += "\nQueues are recovered by a working catalog. If most of its voters are among the lost nodes, recover_cluster comes first."
		}
		return err
	}
	rows := make([]row, len(report.Queues))
	left := 0
	for i := range report.Queues {
		rows[i] = report.Queues[i].row()
		if st := report.Queues[i].State; yes && st != "recovered" && st != "deleted" {
			left++
		}
	}
	if err := s.list(recoverColumns, rows); err != nil {
		return err
	}
	if left > 0 {
		if err := s.flush(); err != nil {
			return err
		}
		return errorf(ExitSoftware, "%d of %d queues were not recovered", left, len(rows))
	}
	return nil
}
