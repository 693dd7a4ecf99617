//go:build invariants

package group

import (
	"fmt"

	"github.com/hashicorp/raft"
)

// checkCommitted looks whether entries that a leader of their term applies are durable here: the leader is one of the
// quorum by which they were committed. A follower may apply what it has only staged.
func (g *Group) checkCommitted(logs []*raft.Log) {
	log, ok := g.log.(stager)
	in := g.running.Load()
	if !ok || in == nil || in.raft.State() != raft.Leader {
		return
	}
	term := in.raft.CurrentTerm()
	for _, l := range logs {
		if l.Term != term {
			continue
		}
		if yes, err := log.Durable(l.Index, nil); !yes && err == nil {
			panic(fmt.Sprintf("group %d: entry %d of term %d is committed and not durable at its leader", g.spec.ID, l.Index, l.Term))
		}
	}
}
