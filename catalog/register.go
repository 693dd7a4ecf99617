package catalog

import (
	"context"
	"fmt"
	"time"

	"github.com/warrenmq/warren/transport"
)

// Bounds of looking around before a registration.
const (
	meetWait = 500 * time.Millisecond // for the links to the other nodes
	meetPoll = 10 * time.Millisecond
)

// Register proposes cmd with this process and those it is linked to filled in. It waits for the
// catalog's leader first; its errors are those of ReadIndex, Config.Starting and Propose.
func (c *Catalog) Register(ctx context.Context, cmd *RegisterNode) (Result, error) {
	// At the start the copy is as old as the last snapshot.
	if err := c.ReadIndex(ctx); err != nil {
		return Result{}, err
	}
	filled := *cmd
	filled.Process = c.cfg.Mesh.Peer(c.cfg.Local).Process
	last := uint64(0)
	if n := c.View().Node(c.cfg.Local); n != nil {
		last = n.Process
	}
	if err := c.cfg.Starting(filled.Process, last); err != nil {
		return Result{}, err
	}
	filled.Met = c.meet(ctx)
	return c.Propose(ctx, &filled)
}

// mayPropose reports why this replica, as the leader, does not propose a command of which the machine
// can not tell: what is up is no part of the state.
func (c *Catalog) mayPropose(cmd Command) error {
	if reg, ok := cmd.(*RegisterNode); ok {
		return c.nameFree(reg.ID)
	}
	return nil
}

// nameFree reports whether the storage id may be the node of its name. It replaces a storage
// that was lost; two that run, as with a configuration that was copied, would push each
// other out in turn.
func (c *Catalog) nameFree(id NodeID) error {
	if known := c.View().Node(id); known != nil && known.Superseded {
		return nil // the machine refuses it for good
	}
	n := c.View().NodeByName(nameOf(id))
	if n == nil || n.ID == id || n.ID != c.cfg.Local && (!c.cfg.Mesh.Peer(n.ID).Up || c.isDead(n.ID)) {
		return nil
	}
	return &transport.RemoteError{Code: codeNameInUse, Text: fmt.Sprintf("node '%s' is running with another storage", n.Name)}
}

// meet lists the processes this node is linked to. If it matters who is up, it waits a moment
// until each of the others is either linked or known not to run.
func (c *Catalog) meet(ctx context.Context) []Process {
	wait := c.View().fleeting.len() > 0
	deadline := time.Now().Add(meetWait)
	for {
		var met []Process
		unknown := false
		for n := range c.View().Nodes() {
			if n.ID == c.cfg.Local || n.Superseded {
				continue
			}
			p := c.cfg.Mesh.Peer(n.ID)
			switch {
			case p.Up && len(met) < metMax:
				met = append(met, Process{n.ID, p.Process})
			case !p.Up && !p.Refused:
				unknown = true
			}
		}
		if !wait || !unknown || time.Now().After(deadline) || !pause(ctx, meetPoll) {
			return met
		}
	}
}

// vouched returns how far back a registering process can vouch for the cluster: as far as
// any of the processes it has met, if they are registered, because those were up before it.
func (tx *txn) vouched(c *RegisterNode) uint64 {
	since := tx.index
	for _, p := range c.Met {
		n := tx.Node(p.Node)
		if n != nil && n.ID != c.ID && !n.Superseded && p.Number != 0 && n.Process == p.Number {
			since = min(since, n.Since)
		}
	}
	return since
}

// dropUnvouched deletes the exchanges that are not durable and were declared before the time
// that any node can vouch for: in between, all processes had ended. A node that is away may
// still run, cut off, so nothing goes before it has registered anew or is removed.
func (tx *txn) dropUnvouched() {
	first := uint64(0)
	for n := range tx.nodes.all() {
		if !n.Superseded && (first == 0 || n.Since < first) {
			first = n.Since
		}
	}
	for x := range tx.fleeting.all() {
		// One that is gone already went with another's bindings.
		if x.Renewed < first && tx.Exchange(x.Vhost, x.Name) != nil {
			tx.deleteExchange(tx.Exchange(x.Vhost, x.Name))
		}
	}
}
