package management

import (
	"context"
	"errors"
	"net/http"
	"regexp"
	"strconv"
	"time"

	"github.com/warrenmq/warren/cluster/replicas"
	"github.com/warrenmq/warren/policy"
)

// bulkWait bounds a request for many queues that says nothing else, forgetWait one for a node to be forgotten.
const bulkWait, forgetWait = time.Hour, 10 * time.Second

// bulkResult is what came of one queue, as `rabbitmq-queues grow` shows it.
type bulkResult struct {
	VHost string `json:"vhost"`
	Name  string `json:"name"`
	// Size is the number of members, "?" if it is not known.
	Size   any    `json:"size"`
	Result string `json:"result"`
}

func (a *API) routeGrow() {
	const node = " /api/queues/quorum/replicas/on/{node}/"
	a.handle("POST"+node+"grow", a.admin(func(r *http.Request) (any, error) {
		which, err := matchInBody(r)
		if err != nil {
			return nil, err
		}
		return bulk(r, func(ctx context.Context) ([]replicas.Result, error) {
			return a.cfg.Replicas.Grow(ctx, r.PathValue("node"), which)
		})
	}))
	a.handle("POST /api/warren/replicas/grow-to-count", a.admin(a.growToCount))
	a.handle("DELETE"+node+"shrink", a.admin(func(r *http.Request) (any, error) {
		return bulk(r, func(ctx context.Context) ([]replicas.Result, error) {
			return a.cfg.Replicas.Shrink(ctx, r.PathValue("node"))
		})
	}))
	a.handle("DELETE /api/warren/nodes/{node}", a.admin(a.forgetNode))
}

// bulk changes many queues within the seconds of the parameter "for", and lists what came of each.
func bulk(r *http.Request, change func(ctx context.Context) ([]replicas.Result, error)) (any, error) {
	wait, err := seconds(r, "for", bulkWait)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(r.Context(), min(wait, replicasWaitMax))
	defer cancel()
	results, err := change(ctx)
	if err != nil {
		return nil, ofReplicas(err)
	}
	list := make([]bulkResult, len(results))
	for i, res := range results {
		list[i] = bulkResult{VHost: res.VHost, Name: res.Name, Size: res.Size, Result: "ok"}
		if res.Err == nil {
			continue
		}
		list[i].Result = "error: " + res.Err.Error()
		if e, ok := errors.AsType[*replicas.Error](res.Err); ok {
			list[i].Result = "error: " + e.Text
			if e.Reason == replicas.Timeout {
				list[i].Size = "?"
			}
		}
	}
	return list, nil
}

// Bounds of a regular expression in a body: its text, and its program, in instructions.
const (
	patternBytesMax   = 4096
	patternProgramMax = 8192
)

// words reads members of a body that are strings. err is the first one that is not.
type words struct {
	body map[string]any
	err  error
}

func (w *words) str(name, otherwise string) string {
	v, there := w.body[name]
	s, ok := v.(string)
	switch {
	case !there:
		return otherwise
	case !ok && w.err == nil:
		w.err = badRequest(name + " should be a string, actually was " + term(v))
	}
	return s
}

// pattern reads a regular expression, nil if there is none.
func (w *words) pattern(name string) *regexp.Regexp {
	text := w.str(name, "")
	switch {
	case w.err != nil || text == "":
		return nil
	case len(text) > patternBytesMax:
		w.err = badRequest(name + " is too long")
		return nil
	}
	re, err := policy.Expression(text, patternProgramMax)
	if err != nil {
		w.err = badRequest(name + ": " + err.Error())
	}
	return re
}

// matchInBody reads which queues are meant.
func matchInBody(r *http.Request) (which replicas.Match, err error) {
	body, err := readObject(r)
	if err != nil {
		return which, err
	}
	return matchOf(body)
}

// matchOf reads which queues are meant by an object.
func matchOf(body map[string]any) (which replicas.Match, err error) {
	w := words{body: body}
	which.VHosts, which.Queues = w.pattern("vhost_pattern"), w.pattern("queue_pattern")
	strategy, membership := w.str("strategy", ""), w.str("membership", "promotable")
	switch {
	case w.err != nil:
		return which, w.err
	case body["strategy"] == nil:
		return which, badRequest("[{key_missing,strategy}]")
	case strategy != "all" && strategy != "even":
		return which, badRequest("strategy '" + strategy + "' is not recognised")
	case membership != "promotable" && membership != "voter":
		return which, badRequest("membership '" + membership + "' is not supported: every replica becomes a voter")
	}
	which.Even = strategy == "even"
	return which, nil
}

// replicasMax bounds how many replicas queues may be grown to.
const replicasMax = 64

// growToCount gives queues replicas until they have so many.
func (a *API) growToCount(r *http.Request) (any, error) {
	body, err := readObject(r)
	if err == nil {
		err = missing(body, "count")
	}
	if err != nil {
		return nil, err
	}
	count, err := integer(body, "count")
	if err != nil {
		return nil, err
	}
	if count < 1 || count > replicasMax {
		return nil, badRequest("count should be 1 to " + strconv.Itoa(replicasMax))
	}
	which, err := matchOf(body)
	if err != nil {
		return nil, err
	}
	return bulk(r, func(ctx context.Context) ([]replicas.Result, error) {
		return a.cfg.Replicas.GrowTo(ctx, int(count), which)
	})
}

// forgetNode takes a node out of the cluster: 204, or 202 if the catalog's group has not let go of it yet.
func (a *API) forgetNode(r *http.Request) (any, error) {
	ctx, cancel := context.WithTimeout(r.Context(), forgetWait)
	defer cancel()
	done, err := a.cfg.Replicas.Forget(ctx, r.PathValue("node"))
	switch {
	case err != nil:
		return nil, ofReplicas(err)
	case !done:
		return underWay{Status: "under_way", Reason: "the cluster has forgotten the node, and the catalog's group is about to let go of it"}, nil
	}
	return nil, nil
}
