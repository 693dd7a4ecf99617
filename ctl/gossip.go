package ctl

import (
	"context"
	"slices"
	"strings"

	"github.com/spf13/cobra"
)

// gossipKeys are those of one node.
type gossipKeys struct {
	Node       string   `json:"node"`
	Encryption string   `json:"encryption"`
	Keys       []string `json:"keys"`
	Unknown    bool     `json:"unknown"`
}

// compareKeys returns the list, and why it is not certain that all nodes have the same keys, "" if it is.
func compareKeys(nodes []gossipKeys) (rows []row, problem string) {
	var first *gossipKeys // of the nodes that are known
	var unknown []string
	same := true
	for i, n := range nodes {
		r := row{"node": n.Node, "encryption": n.Encryption, "keys": strings.Join(n.Keys, " ")}
		switch {
		case n.Unknown:
			r["encryption"] = "unknown"
			unknown = append(unknown, n.Node)
		case first == nil:
			first = &nodes[i]
		default:
			same = same && slices.Equal(n.Keys, first.Keys)
		}
		rows = append(rows, r)
	}
	switch {
	case !same:
		problem = "the nodes do not have the same keys"
	case first != nil && len(first.Keys) > 0 && len(unknown) > 0:
		problem = "what keys these nodes have is not known, since they do not run: " + strings.Join(unknown, ", ")
	}
	return rows, problem
}

func gossipVerbs(t *tool) []*cobra.Command {
	return []*cobra.Command{t.command(verb{
		use: "gossip_keys", short: "Show the fingerprints of each node's gossip keys, the encrypting one first",
		long: "Show the fingerprints of each node's gossip keys, the encrypting one first.\n" +
			"The exit code is 70 if nodes do not have the same keys in the same order, or if some have keys and what one has is not known because it\n" +
			"does not run.",
		run: func(ctx context.Context, s *session, _ []string) error {
			var nodes []gossipKeys
			if err := s.get(ctx, path("warren", "gossip-keys"), &nodes); err != nil {
				return err
			}
			s.say("Listing gossip keys ...")
			rows, problem := compareKeys(nodes)
			if err := s.list([]string{"node", "encryption", "keys"}, rows); err != nil {
				return err
			}
			if problem == "" {
				return nil
			}
			if err := s.flush(); err != nil {
				return err
			}
			return errorf(ExitSoftware, "%s", problem)
		},
	})}
}
