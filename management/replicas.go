package management

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/warrenmq/warren/cluster/replicas"
)

// Replicas changes which nodes have replicas of which queues: a [replicas.Operator], and what this node can tell of its own.
type Replicas interface {
	Add(ctx context.Context, vhost, queue, node string) (replicas.Change, error)
	Remove(ctx context.Context, vhost, queue, node string) (replicas.Change, error)
	// Wait tells whether a change is done before ctx ends.
	Wait(ctx context.Context, c replicas.Change) (done bool, err error)
	Grow(ctx context.Context, node string, which replicas.Match) ([]replicas.Result, error)
	GrowTo(ctx context.Context, count int, which replicas.Match) ([]replicas.Result, error)
	Shrink(ctx context.Context, node string) ([]replicas.Result, error)
	Find(ctx context.Context, vhost, queue string) (replicas.Queue, error)
	Prefer(ctx context.Context, vhost, queue, node string) (q replicas.Queue, to string, changed bool, err error)
	Forget(ctx context.Context, node string) (done bool, err error)

	// Replica describes this node's replica of a queue; ok is false if it runs none.
	Replica(queue uint64) (r Replica, ok bool)
	// MoveLeader gives the leadership of a queue that this node leads to another node, and returns when that one leads.
	MoveLeader(ctx context.Context, queue uint64, to string) error
}

// Bounds of waiting for a change of replicas.
const (
	// replicasPlan bounds the planning, replicasWait is how long a request without the parameter "for" waits for the end, as in RabbitMQ.
	replicasPlan, replicasWait = 10 * time.Second, 30 * time.Second
	replicasWaitMax            = 24 * time.Hour
)

// underWay is the answer to a change that goes on: 202.
type underWay struct {
	Status string `json:"status"`
	Reason string `json:"reason"`
	// Members are the nodes that shall have a replica in the end.
	Members []string `json:"members,omitempty"`
}

func (a *API) routeReplicas() {
	const queue = " /api/queues/quorum/{vhost}/{name}/replicas/"
	a.handle("POST"+queue+"add", a.admin(func(r *http.Request) (any, error) { return a.changeReplica(r, a.cfg.Replicas.Add) }))
	a.handle("DELETE"+queue+"delete", a.admin(func(r *http.Request) (any, error) { return a.changeReplica(r, a.cfg.Replicas.Remove) }))
}

// changeReplica adds or deletes a member of one queue: 204 when that is done, 202 if it goes on after the seconds of the parameter "for".
func (a *API) changeReplica(r *http.Request, change func(ctx context.Context, vhost, queue, node string) (replicas.Change, error)) (any, error) {
	wait, err := replicasPatience(r)
	if err != nil {
		return nil, err
	}
	node, err := nodeInBody(r)
	if err != nil {
		return nil, err
	}
	plan, cancel := context.WithTimeout(r.Context(), replicasPlan)
	defer cancel()
	c, err := change(plan, r.PathValue("vhost"), r.PathValue("name"), node)
	if err != nil {
		return nil, ofReplicas(err)
	}
	return a.awaitChange(r.Context(), c, wait)
}

func (a *API) awaitChange(ctx context.Context, c replicas.Change, wait time.Duration) (any, error) {
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	done, err := a.cfg.Replicas.Wait(ctx, c)
	switch {
	case err != nil:
		return nil, ofReplicas(err)
	case !done:
		return underWay{"under_way", "the replicas are being changed", c.Members}, nil
	}
	return nil, nil
}

// replicasPatience is how long a request wants to wait.
func replicasPatience(r *http.Request) (time.Duration, error) {
	wait, err := seconds(r, "for", replicasWait)
	if err == nil && wait > replicasWaitMax {
		err = badRequest("for is more than a day")
	}
	return wait, err
}

// nodeInBody reads {"node":"name"}.
func nodeInBody(r *http.Request) (string, error) {
	body, err := readObject(r)
	if err != nil {
		return "", err
	}
	switch node := body["node"].(type) {
	case string:
		return node, nil
	case nil:
		return "", badRequest("[{key_missing,node}]")
	default:
		return "", badRequest("node should be a name, actually was " + term(node))
	}
}

// ofReplicas gives refusals their HTTP form: what does not exist is 404, what the cluster's state forbids 409, where RabbitMQ says 503,
// at which proxies and clients would try the next node, and what never will be is 400. Other errors stay as they are.
func ofReplicas(err error) error {
	e, ok := errors.AsType[*replicas.Error](err)
	if !ok {
		return err
	}
	r := &refusal{http.StatusConflict, string(e.Reason), e.Text}
	switch e.Reason {
	case replicas.NoQueue:
		return errNotFound
	case replicas.NoNode:
		r.status = http.StatusNotFound
	case replicas.NotReplicated, replicas.Refused:
		r.status = http.StatusBadRequest
	case replicas.Timeout:
		r.status, r.Short = http.StatusServiceUnavailable, shortTimeout
	}
	return r
}
