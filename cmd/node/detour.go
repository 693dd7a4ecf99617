package main

import (
	"sync"
	"time"

	"github.com/warrenmq/warren/transport"
)

// detourEvery is how long a node is looked for at one of its two addresses before it is at the other one: an attempt takes 3 s where nobody is.
const detourEvery = 4 * time.Second

// detours say at which of two addresses a node is looked for, if gossip and the catalog tell different ones. Gossip hears of a new one first, but it may not
// get through, or not be encrypted and told anything by anybody: the node itself tells the catalog.
type detours struct {
	mu   sync.Mutex
	ways map[transport.NodeID]*way // of nodes that had two addresses when they were last looked for
}

// way is how a node is looked for.
type way struct {
	gossip, catalog string
	since           time.Time // when the search began at the present one of them; zero while the node is linked
	detour          bool      // to that of the catalog
}

// choose returns the address to use: the one that has served last, and of a node that is not linked the other one in turn.
func (d *detours) choose(id transport.NodeID, gossip, catalog string, linked bool, now time.Time) string {
	d.mu.Lock()
	defer d.mu.Unlock()
	if gossip == catalog {
		delete(d.ways, id)
		return gossip
	}
	w := d.ways[id]
	if w == nil || w.gossip != gossip || w.catalog != catalog {
		w = &way{gossip: gossip, catalog: catalog}
		if d.ways == nil {
			d.ways = map[transport.NodeID]*way{}
		}
		d.ways[id] = w
	}
	switch {
	case linked:
		w.since = time.Time{}
	case w.since.IsZero():
		w.since = now
	case now.Sub(w.since) >= detourEvery:
		w.since, w.detour = now, !w.detour
	}
	if w.detour {
		return catalog
	}
	return gossip
}
