package member

import (
	"sync"

	"github.com/hashicorp/memberlist"
)

// roster is a copy of memberlist's live members, kept by its events. What
// memberlist.Members returns is changed by memberlist while it is read.
type roster struct {
	mu   sync.Mutex
	live map[string]entry // by memberlist's names: one for each start of a process
	// starts counts the members of live whose info is known, by node: a book that is full asks for each of its nodes.
	starts map[NodeID]int
}

// entry is a member. known is false while its info cannot be read.
type entry struct {
	info  Info
	known bool
	addr  string // of its gossip
}

func (r *roster) put(n *memberlist.Node) {
	e := entry{addr: n.Address()}
	info, err := decodeMeta(n.Meta, n.Addr.String())
	e.info, e.known = info, err == nil
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.live == nil {
		r.live, r.starts = make(map[string]entry), make(map[NodeID]int)
	}
	r.count(r.live[n.Name], -1)
	r.count(e, 1)
	r.live[n.Name] = e
}

// count adds to the starts of a member's node; r.mu is held.
func (r *roster) count(e entry, n int) {
	if !e.known {
		return
	}
	if r.starts[e.info.Node] += n; r.starts[e.info.Node] == 0 {
		delete(r.starts, e.info.Node)
	}
}

// full tells whether there is no room for a member that is not here.
func (r *roster) full(name string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	_, known := r.live[name]
	return !known && len(r.live) >= stateNodesMax
}

func (r *roster) drop(n *memberlist.Node) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.count(r.live[n.Name], -1)
	delete(r.live, n.Name)
}

// newest returns the info of each node's last start.
func (r *roster) newest() map[NodeID]Info {
	r.mu.Lock()
	defer r.mu.Unlock()
	newest := make(map[NodeID]Info)
	for _, e := range r.live {
		if e.known && newest[e.info.Node].Boot <= e.info.Boot {
			newest[e.info.Node] = e.info
		}
	}
	return newest
}

// has tells whether a node is live.
func (r *roster) has(id NodeID) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.starts[id] > 0
}

// addrs returns the gossip addresses of all.
func (r *roster) addrs() map[string]bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	addrs := make(map[string]bool)
	for _, e := range r.live {
		addrs[e.addr] = true
	}
	return addrs
}
