package main

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"
)

// replica is a row of quorum_status.
type replica struct {
	Node       string `json:"Node Name"`
	State      string `json:"Raft State"`
	Membership string
	Lag        any
	Planned    string
}

// whole waits until every queue has three replicas that vote, on some of nodes, with nothing planned, and says how long that took.
func (t *test) whole(ctx context.Context, nodes ...string) error {
	began := time.Now()
	var queues []string
	err := t.rig.Until(ctx, settleWait, func(ctx context.Context) error {
		out, err := t.ctl(ctx, nodes[0], "list_queues", "--silent", "name")
		if err != nil {
			return err
		}
		queues = strings.Fields(out)
		for _, q := range queues {
			if err := t.wholeQueue(ctx, q, nodes); err != nil {
				return err
			}
		}
		return nil
	})
	t.log.Info("replicas", "queues", len(queues), "on", strings.Join(nodes, " "), "seconds", int(time.Since(began).Seconds()), "err", err)
	return err
}

func (t *test) wholeQueue(ctx context.Context, queue string, nodes []string) error {
	out, err := t.ctl(ctx, nodes[0], "quorum_status", queue, "--formatter", "json", "--quiet")
	if err != nil {
		return err
	}
	var rows []replica
	if err := json.Unmarshal([]byte(out), &rows); err != nil {
		return fmt.Errorf("%q: %w", out, err)
	}
	bad := len(rows) != 3 || slices.ContainsFunc(rows, func(r replica) bool {
		return !slices.Contains(nodes, r.Node) || r.Membership != "voter" || r.Planned != "stays" || r.State != "leader" && r.State != "follower"
	})
	if bad {
		return fmt.Errorf("%s: %+v", queue, rows)
	}
	return nil
}
