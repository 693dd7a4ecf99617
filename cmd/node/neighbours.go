package main

import (
	"iter"
	"slices"
	"sync"

	"github.com/warrenmq/warren/catalog"
	"github.com/warrenmq/warren/transport"
)

// neighbours says to whom this node keeps links and whom it watches: the nodes of the catalog; links also to the founders while the catalog does
// not know them yet, and to whom gossip has heard of. Who was replaced or has left is none of them, although it was a founder or gossip remembers it: another
// storage may have its address, and would refuse links to the former one for ever. If it runs, it links to others by itself, and hears what became of it.
type neighbours struct {
	local    transport.NodeID
	founders []transport.NodeID
	known    func() iter.Seq[*catalog.Node]
	left     func(transport.NodeID) bool // whether the catalog has known a node and does not any more
	heard    func() []transport.NodeID
	links    interface{ SetPeers([]transport.NodeID) }
	watch    interface {
		Gone([]transport.NodeID)
		SetPeers([]transport.NodeID)
	}

	// mu makes the last to look the last to tell: the catalog and gossip change at the same time when a node starts, and one that was told
	// what was before the catalog's first node would watch nobody until something else changes.
	mu sync.Mutex
}

// refresh looks who there is.
func (n *neighbours) refresh() {
	n.mu.Lock()
	defer n.mu.Unlock()
	met := map[transport.NodeID]bool{}
	var peers, gone []transport.NodeID
	add := func(id transport.NodeID) {
		if id != n.local && !met[id] {
			met[id] = true
			peers = append(peers, id)
		}
	}
	for node := range n.known() {
		if node.Superseded {
			gone = append(gone, node.ID)
		} else {
			add(node.ID)
		}
	}
	watched := len(peers)
	for _, id := range slices.Concat(n.founders, n.heard()) {
		if !n.left(id) && !slices.Contains(gone, id) {
			add(id)
		}
	}
	n.links.SetPeers(peers)
	n.watch.Gone(gone)
	n.watch.SetPeers(peers[:watched:watched])
}
