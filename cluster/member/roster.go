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
		r.live = make(map[string]entry)
	}
	r.live[n.Name] = e
}

func (r *roster) drop(n *memberlist.Node) {
	r.mu.Lock()
	defer r.mu.Unlock()
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
	for _, e := range r.live {
		if e.known && e.info.Node == id {
			return true
		}
	}
	return false
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
