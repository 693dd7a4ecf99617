package management

import (
	"context"
	"encoding/json"
	"net/http"
	"time"

	"github.com/warrenmq/warren/auth"
)

// Drained is what a drained node tells.
type Drained struct {
	// Moved and Stayed count the queues whose leaders went elsewhere, and those that the node leads still.
	Moved  int `json:"queues_moved"`
	Stayed int `json:"queues_stayed"`
	// LeadsCatalog: so it does with the catalog.
	LeadsCatalog bool `json:"leads_catalog"`
	// Clients were sent away, of which Unanswered had not got all confirms in time.
	Clients    int `json:"clients"`
	Unanswered int `json:"clients_unanswered"`
}

// maintained is what the API needs to drain nodes.
type maintained interface {
	// Self is the id of this node.
	Self() string
	// NodeByName finds the id of a node of the cluster.
	NodeByName(name string) (id string, ok bool)
	// Maintain drains this node within limit, 0: the node's own, or revives it.
	Maintain(ctx context.Context, drain bool, limit time.Duration) (Drained, error)
}

// Bounds of a drain.
const (
	drainMax   = 24 * time.Hour
	drainAfter = 10 * time.Second // more than the limit, for the answer
	// drainUnknown bounds one whose limit only the other node knows.
	drainUnknown = time.Hour
)

func (a *API) routeMaintenance() {
	for _, path := range []string{"/api/warren/maintenance", "/api/warren/nodes/{node}/maintenance"} {
		a.handle("PUT "+path, func(r *http.Request, u User) (any, error) { return a.maintain(r, u, true) })
		a.handle("DELETE "+path, func(r *http.Request, u User) (any, error) {
			_, err := a.maintain(r, u, false)
			return nil, err
		})
	}
}

// maintain drains or revives a node, this one if none is named. The parameter for is in seconds.
func (a *API) maintain(r *http.Request, u User, drain bool) (*Drained, error) {
	if !u.may(auth.TagAdministrator) {
		return nil, errNotAuthorised
	}
	limit, err := seconds(r, "for", 0)
	if err != nil {
		return nil, err
	}
	if limit > drainMax {
		return nil, badRequest("for is more than a day")
	}
	id := a.cfg.Cluster.Self()
	if name := r.PathValue("node"); name != "" {
		var ok bool
		if id, ok = a.cfg.Cluster.NodeByName(name); !ok {
			return nil, errNotFound
		}
	}
	if id == a.cfg.Cluster.Self() {
		d, err := a.cfg.Cluster.Maintain(r.Context(), drain, limit)
		return &d, err
	}
	patience := drainUnknown
	if limit > 0 {
		patience = limit + drainAfter
	}
	ctx, cancel := context.WithTimeout(r.Context(), patience)
	defer cancel()
	var d Drained
	err = a.ask(ctx, id, peerRequest{Op: opMaintain, Drain: drain, LimitMS: limit.Milliseconds()}, &d)
	return &d, err
}

// answerMaintain is the side of the node itself.
func (a *API) answerMaintain(ctx context.Context, req *peerRequest) ([]byte, error) {
	limit := time.Duration(req.LimitMS) * time.Millisecond
	d, err := a.cfg.Cluster.Maintain(ctx, req.Drain, max(0, min(limit, drainMax)))
	if err != nil {
		return nil, err
	}
	return json.Marshal(d)
}
