package ctl

import (
	"context"
	"slices"
	"strings"

	"github.com/spf13/cobra"
)

func gossipVerbs(t *tool) []*cobra.Command {
	return []*cobra.Command{t.command(verb{
		use: "gossip_keys", short: "Show the fingerprints of each node's gossip keys, the encrypting one first",
		long: "Show the fingerprints of each node's gossip keys, the encrypting one first.\n" +
			"The exit code is 70 if nodes do not have the same keys in the same order.",
		run: func(ctx context.Context, s *session, _ []string) error {
			var nodes []struct {
				Node       string   `json:"node"`
				Encryption string   `json:"encryption"`
				Keys       []string `json:"keys"`
			}
			if err := s.get(ctx, path("warren", "gossip-keys"), &nodes); err != nil {
				return err
			}
			s.say("Listing gossip keys ...")
			rows := make([]row, len(nodes))
			same := true
			for i, n := range nodes {
				rows[i] = row{"node": n.Node, "encryption": n.Encryption, "keys": strings.Join(n.Keys, " ")}
				same = same && slices.Equal(n.Keys, nodes[0].Keys)
			}
			if err := s.list([]string{"node", "encryption", "keys"}, rows); err != nil {
				return err
			}
			if !same {
				if err := s.flush(); err != nil {
					return err
				}
				return errorf(ExitSoftware, "the nodes do not have the same keys")
			}
			return nil
		},
	})}
}
