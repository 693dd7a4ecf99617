package management

import (
	"context"
	"net/http"
	"time"

	"github.com/warrenmq/warren/cluster/replicas"
	"github.com/warrenmq/warren/steward"
)

// Steward is what the API needs to let nodes leave and to balance leaders. Errors are *replicas.Error if something is refused.
type Steward interface {
	Leave(ctx context.Context, node string, leaves bool) error
	Progress(node string) (steward.Progress, error)
	Dismiss(ctx context.Context, node string) error
	// Balance gives queues of a kind (all, classic, quorum or stream) that match other homes.
	Balance(ctx context.Context, kind string, which replicas.Match) ([]steward.Share, int, error)
}

// balanced is the answer to a rebalance.
type balanced struct {
	Moved int             `json:"moved"`
	Nodes []steward.Share `json:"nodes"`
}

const (
	leaveWait   = 10 * time.Second
	balanceWait = 10 * time.Minute
)

func (a *API) routeSteward() {
	const path = " /api/warren/nodes/{node}/decommission"
	leave := func(leaves bool) func(*http.Request) (any, error) {
		return func(r *http.Request) (any, error) {
			ctx, cancel := context.WithTimeout(r.Context(), leaveWait)
			defer cancel()
			if err := a.cfg.Steward.Leave(ctx, r.PathValue("node"), leaves); err != nil {
				return nil, ofReplicas(err)
			}
			return a.progress(r)
		}
	}
	a.handle("PUT"+path, a.admin(leave(true)))
	a.handle("DELETE"+path, a.admin(leave(false)))
	a.handle("GET"+path, a.admin(a.progress))
	a.handle("POST"+path+"/end", a.admin(func(r *http.Request) (any, error) {
		ctx, cancel := context.WithTimeout(r.Context(), leaveWait)
		defer cancel()
		if err := a.cfg.Steward.Dismiss(ctx, r.PathValue("node")); err != nil {
			return nil, ofReplicas(err)
		}
		return nil, nil
	}))
	a.handle("POST /api/rebalance/queues", a.admin(a.rebalance))
}

func (a *API) progress(r *http.Request) (any, error) {
	p, err := a.cfg.Steward.Progress(r.PathValue("node"))
	if err != nil {
		return nil, ofReplicas(err)
	}
	return p, nil
}

// rebalance evens out which nodes should lead: of all queues, or of those that the body names by vhost_pattern, queue_pattern and type.
func (a *API) rebalance(r *http.Request) (any, error) {
	body, err := readObject(r)
	if err != nil {
		return nil, err
	}
	w := words{body: body}
	which := replicas.Match{VHosts: w.pattern("vhost_pattern"), Queues: w.pattern("queue_pattern")}
	kind := w.str("type", "all")
	switch {
	case w.err != nil:
		return nil, w.err
	case kind != "all" && kind != "classic" && kind != "quorum" && kind != "stream":
		return nil, badRequest("type '" + kind + "' is not recognised")
	}
	ctx, cancel := context.WithTimeout(r.Context(), balanceWait)
	defer cancel()
	shares, moved, err := a.cfg.Steward.Balance(ctx, kind, which)
	if err != nil {
		return nil, ofReplicas(err)
	}
	return balanced{moved, shares}, nil
}
