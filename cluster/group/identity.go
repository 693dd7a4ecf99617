package group

import (
	"errors"
	"fmt"

	"github.com/warrenmq/warren/transport"
)

// keyReplica holds, in the stable part of a replica's log, the ReplicaID whose log it is. A founder's has none.
var keyReplica = []byte("WarrenReplica")

// errGeneration reports a trace that this start must neither use nor wipe.
var errGeneration = errors.New("trace of another replica")

// claim takes the replica's log. One of an earlier generation is not this replica's: what it has
// promised, it has promised under another name, and that name was removed from the group before the
// catalog gave a new one. So it is wiped, and that is durable before the new name is.
func (g *Group) claim() error {
	g.log = g.host.cfg.Store.Group(g.spec.ID)
	kept, err := traceGeneration(g.log, g.host.cfg.Local)
	switch {
	case err != nil:
		return fmt.Errorf("look for a trace of group %d: %w", g.spec.ID, err)
	case kept == g.spec.Generation:
		return nil
	case kept > g.spec.Generation:
		// The catalog never goes back, so this is a mistake; wiping would make a vote undone.
		return fmt.Errorf("%w: group %d has a log of generation %d here, the catalog says %d", errGeneration, g.spec.ID, kept, g.spec.Generation)
	}
	if err := g.host.cfg.Store.DeleteGroup(g.spec.ID); err != nil {
		return fmt.Errorf("wipe generation %d of group %d: %w", kept, g.spec.ID, err)
	}
	g.log = g.host.cfg.Store.Group(g.spec.ID)
	if err := g.log.Set(keyReplica, []byte(g.self)); err != nil {
		return fmt.Errorf("begin generation %d of group %d: %w", g.spec.Generation, g.spec.ID, err)
	}
	return nil
}

// traceGeneration returns whose log it is, 0 for a founder's and for one without a trace.
func traceGeneration(log Log, local transport.NodeID) (uint64, error) {
	b, err := log.Get(keyReplica)
	if err != nil || len(b) == 0 {
		if err != nil && err.Error() != "not found" { // as raft tells it
			return 0, err
		}
		return 0, nil
	}
	r := transport.ReplicaID(b)
	generation, ok := r.Generation()
	if !ok || generation == 0 || r.Node() != local {
		return 0, fmt.Errorf("%w: %q", errGeneration, b)
	}
	return generation, nil
}
