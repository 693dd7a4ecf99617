package catalog

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/warrenmq/warren/transport"
)

// A disk that hangs ends neither a process nor its links, and a leader whose raft waits for it goes on sending heartbeats, so that nobody looks for
// another one. So the leader's own node does (docs/adr/0054-leaderships-leave-a-hung-disk.md).
const (
	// hungWarning is how old a write is when its node is no candidate.
	hungWarning = time.Second
	// hungMax is how old a write of the leader is when another voter is to lead.
	hungMax = 2 * time.Second
	// hungLook is between two looks.
	hungLook = 100 * time.Millisecond
	// hungAgain is the pause before what did not succeed is tried once more.
	hungAgain = time.Second
)

var errHung = &transport.RemoteError{Code: transport.CodeRaft, Text: "the disk of this node's catalog does not answer"}

// writes knows how long the store has been at its present write.
type writes struct {
	before func() // Config.BeforeWrite

	mu    sync.Mutex
	under int       // ways
	since time.Time // the newest progress
}

// do calls write, and notes how long it takes.
func (w *writes) do(write func() error) error {
	w.mu.Lock()
	if w.under == 0 {
		w.since = time.Now()
	}
	w.under++
	w.mu.Unlock()
	defer func() {
		w.mu.Lock()
		w.under--
		w.since = time.Now()
		w.mu.Unlock()
	}()
	if w.before != nil {
		w.before()
	}
	return write()
}

// outstanding returns for how long nothing that is being written has got on, 0 if nothing is.
func (w *writes) outstanding() time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.under == 0 {
		return 0
	}
	return time.Since(w.since)
}

// watchDisk has another voter lead while this leader's disk hangs, until Close.
func (c *Catalog) watchDisk() {
	for pause(c.ctx, hungLook) {
		if c.Leading() && c.writes.outstanding() >= hungMax {
			c.flee()
			pause(c.ctx, hungAgain)
		}
	}
}

// flee has the voter with the longest log elected, which it is without this node. Nothing is waited for here as Yield does: what is under way may be taken by the
// new leader or not, as if this node had died, and this replica hears of it when its disk answers.
func (c *Catalog) flee() {
	hangs := c.writes.outstanding()
	voters := c.voters()
	all := slices.DeleteFunc(c.positions(voters), func(p position) bool { return p.id == c.cfg.Local })
	if len(all) < len(voters)/2+1 {
		return // they could elect nobody
	}
	if slices.ContainsFunc(all, func(p position) bool { return p.leader != "" && p.leader != c.cfg.Local }) {
		return // somebody leads
	}
	slices.SortFunc(all, byLog)
	for _, p := range all {
		if c.handTo(p.id) {
			c.log.Warn("the catalog's disk does not answer, another node leads", "for", hangs.Round(time.Millisecond), "to", string(p.id))
			return
		}
	}
}

// handTo has a voter elected and tells whether it says so.
func (c *Catalog) handTo(id NodeID) bool {
	ctx, cancel := context.WithTimeout(c.ctx, yieldElect)
	defer cancel()
	if err := c.cfg.Mesh.InjectAt(ctx, transport.Replica(id, 0), transport.CatalogGroup); err != nil {
		c.log.Debug("a voter cannot be asked to lead the catalog", "node", string(id), "err", err)
		return false
	}
	for pause(ctx, yieldTick) {
		if p := c.askPosition(ctx, id); p != nil && p.leader == id {
			return true
		}
	}
	return false
}
