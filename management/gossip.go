package management

import (
	"cmp"
	"context"
	"net/http"
	"slices"
	"sync"

	"github.com/warrenmq/warren/auth"
)

// GossipKeys tells of one node's keys of gossip.
type GossipKeys struct {
	Node       string   `json:"node"`
	Encryption string   `json:"encryption"` // "off", "accept" or "on"
	Keys       []string `json:"keys"`       // fingerprints, that of the key that seals first
	// Unknown: the node does not run, and what else is here says nothing.
	Unknown bool `json:"unknown,omitempty"`
}

func (a *API) routeGossip() {
	a.handle("GET /api/warren/gossip-keys", a.listGossipKeys)
}

// listGossipKeys asks all living nodes. One that does not answer is an error, and one that does not run is listed as unknown: a list without it would seem to
// say that all agree.
func (a *API) listGossipKeys(r *http.Request, u User) (any, error) {
	if !u.may(auth.TagAdministrator) {
		return nil, unauthorised("Not administrator user")
	}
	list := []GossipKeys{a.cfg.GossipKeys()}
	var mu sync.Mutex
	err := a.eachPeer(r.Context(), func(ctx context.Context, node string) error {
		var k GossipKeys
		if err := a.ask(ctx, node, peerRequest{Op: opGossipKeys}, &k); err != nil {
			return err
		}
		mu.Lock()
		defer mu.Unlock()
		list = append(list, k)
		return nil
	})
	if err != nil {
		return nil, err
	}
	for _, n := range a.cfg.Cluster.Nodes() {
		if !slices.ContainsFunc(list, func(k GossipKeys) bool { return k.Node == n.Name }) {
			list = append(list, GossipKeys{Node: n.Name, Keys: []string{}, Unknown: true})
		}
	}
	slices.SortFunc(list, func(x, y GossipKeys) int { return cmp.Compare(x.Node, y.Node) })
	return list, nil
}
