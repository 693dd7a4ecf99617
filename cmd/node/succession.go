package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/warrenmq/warren/cluster/bootstrap"
	"github.com/warrenmq/warren/cluster/recovery"
	"github.com/warrenmq/warren/transport"
)

// errRenewed ends a node that is to be built anew from its folder, in the same process.
var errRenewed = errors.New("the node begins anew")

const (
	// renewDelay is how long a node still is there for the answers that it has just given.
	renewDelay = 300 * time.Millisecond
	// timeoutRenew bounds how long clients are told that a node begins anew.
	timeoutRenew = 2 * time.Second
	// requestBytesMax bounds a request on the control socket that is answered before the node is ready.
	requestBytesMax = 64 << 10
	// fateWait bounds the question to a node to which there is no link.
	fateWait = 500 * time.Millisecond
)

// successions is this node's part in recoveries of the catalog.
type successions struct {
	recovery.Local
	one     sync.Mutex // conducts one at a time
	renewed atomic.Bool
}

// openSuccessions answers the nodes of this cluster that recover its catalog (docs/adr/0034-lost-cluster.md).
func (n *running) openSuccessions() {
	n.successions.Local = recovery.Local{
		Identity: n.identity, Part: partCatalog,
		Copy: func() recovery.Copy {
			if c := n.catalog.Load(); c != nil {
				return c
			}
			return nil
		},
		Met:    n.gossipNodes,
		Linked: func(id transport.NodeID) bool { return n.mesh.Peer(id).Up },
		Call:   n.mesh.Call,
		Renew:  n.renew,
	}
	n.mesh.HandleCall(recovery.MethodSuccession, n.successions.Handle)
	n.mesh.HandleCall(recovery.MethodSeed, n.successions.HandleSeed)
}

// renew builds this node anew, after the answers that are on their way.
func (n *running) renew(why string) {
	if n.successions.renewed.Swap(true) {
		return
	}
	n.log.Warn("this node begins anew", "because", why)
	time.AfterFunc(renewDelay, func() { n.expel(errRenewed) }) // which does nothing to a node that has ended
}

// RecoverCluster has the cluster go on without the nodes that are lost for good, if its catalog has lost its majority with them.
func (n *running) RecoverCluster(ctx context.Context, r *recovery.ClusterRequest) (*recovery.ClusterReport, error) {
	if !n.successions.one.TryLock() {
		return nil, &recovery.Error{Text: "this node is recovering the cluster already"}
	}
	defer n.successions.one.Unlock()
	report, err := recovery.RecoverCluster(ctx, recovery.Party{Local: &n.successions.Local}, r)
	switch {
	case errors.Is(err, recovery.ErrUndecided):
		n.log.Error("this node ends, to find out what its disk has", "err", err)
		n.renew("it has to look what its disk has")
	case err == nil && report.Next != "":
		n.renew("the cluster goes on in its next life, by an operator's word")
	}
	return report, err
}

// serveRecoverCluster answers on the control socket, also while the node waits for a catalog that has no leader.
func (n *running) serveRecoverCluster(w http.ResponseWriter, r *http.Request) {
	answer := func(status int, v any) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		if err := json.NewEncoder(w).Encode(v); err != nil {
			n.log.Debug("answer not written", "err", err)
		}
	}
	refused := func(status int, short string, err error) {
		answer(status, map[string]string{"error": short, "reason": err.Error()})
	}
	raw, err := io.ReadAll(http.MaxBytesReader(w, r.Body, requestBytesMax))
	var req recovery.ClusterRequest
	if err == nil {
		err = json.Unmarshal(raw, &req)
	}
	if err != nil {
		refused(http.StatusBadRequest, "bad_request", fmt.Errorf("the request is not understood: %w", err))
		return
	}
	n.log.Warn("administration", "user", "operator on this machine", "from", "control socket", "recover_cluster", true, "lost", req.Lost, "yes", req.Yes)
	// An operator who goes away does not leave it half done.
	report, err := n.RecoverCluster(context.WithoutCancel(r.Context()), &req)
	if refusal, ok := errors.AsType[*recovery.Error](err); ok {
		n.log.Warn("the cluster is not recovered", "because", refusal.Text)
		refused(http.StatusBadRequest, "bad_request", err)
		return
	}
	if err != nil {
		refused(http.StatusServiceUnavailable, "unavailable", err)
		return
	}
	answer(http.StatusOK, report)
}

// askFates asks the nodes to which there is no link what became of the cluster: they may have gone on in its next life.
// lost tells why that is without this storage, "" if it is not.
func (n *running) askFates(ctx context.Context) (lost string) {
	var work sync.WaitGroup
	var mu sync.Mutex
	promised := n.identity.Succession()
	addrs := map[transport.NodeID]string{} // of whom to ask
	// Who has gone on in the next life is no member of this cluster any more, and may have moved: it is heard of in the lobby.
	for _, v := range n.gossip.Visitors() {
		addrs[v.Node] = v.ClusterAddr
	}
	for _, id := range n.acquainted(promised) {
		if addr, known := n.resolve(id); known {
			addrs[id] = addr
		}
	}
	for id, addr := range addrs {
		if id == n.identity.NodeID() || n.mesh.Peer(id).Up && promised == nil {
			continue
		}
		work.Go(func() {
			ctx, cancel := context.WithTimeout(ctx, fateWait)
			defer cancel()
			answer, err := n.mesh.CallAddr(ctx, addr, bootstrap.MethodStatus, nil)
			if err != nil {
				return
			}
			why, err := n.successions.Consider(promised, answer)
			if err != nil {
				n.log.Warn("what another node says of the cluster cannot be used", "peer", string(id), "err", err)
			}
			mu.Lock()
			defer mu.Unlock()
			lost += why
		})
	}
	work.Wait()
	return lost
}

// acquainted are all nodes of the cluster that this one has heard of.
func (n *running) acquainted(promised *bootstrap.Succession) (all []transport.NodeID) {
	seen := map[transport.NodeID]bool{}
	add := func(id transport.NodeID) {
		if !seen[id] {
			seen[id] = true
			all = append(all, id)
		}
	}
	for node := range n.catalog.Load().View().Nodes() {
		if !node.Superseded {
			add(node.ID)
		}
	}
	if m, ok := n.identity.Membership(); ok {
		for _, id := range m.Founding {
			add(id)
		}
	}
	for _, id := range n.gossipNodes() {
		add(id)
	}
	if promised != nil {
		for _, id := range promised.Members {
			add(id)
		}
	}
	return all
}
