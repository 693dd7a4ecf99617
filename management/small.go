package management

import (
	"net/http"
)

// program is what the API needs of the process around it.
type program interface {
	// ProductVersion is the version that clients are told.
	ProductVersion() string
}

// routeSmall registers what tools ask in passing.
func (a *API) routeSmall() {
	nothing := func(r *http.Request, _ User) (any, error) { return paged(r, []struct{}{}) }
	a.handle("GET /api/extensions", nothing)
	// Nothing is deprecated here.
	a.handle("GET /api/deprecated-features", nothing)
	a.handle("GET /api/deprecated-features/used", nothing)
	a.handle("GET /api/version", func(*http.Request, User) (any, error) { return a.cfg.Cluster.ProductVersion(), nil })
	a.handle("GET /api/auth/hash_password/{password}", a.admin(func(r *http.Request) (any, error) {
		hash, err := a.hash(r, r.PathValue("password"))
		return map[string]string{"ok": string(hash)}, err
	}))
	for _, path := range []string{"/api/reset", "/api/reset/{node}"} {
		a.handle("DELETE "+path, a.admin(func(*http.Request) (any, error) {
			return nil, badRequest("there is no database of statistics to reset: each node counts from its start, and rates are of the last seconds")
		}))
	}
	// As in RabbitMQ 4 nothing is published: the answer tells that the node works and has the vhost.
	a.in("GET /api/aliveness-test/{vhost}", func(*http.Request, User, string) (any, error) { return healthy(), nil })
	a.handle("GET /api/healthchecks/node", func(*http.Request, User) (any, error) { return a.nodeHealth(), nil })
	a.handle("GET /api/healthchecks/node/{node}", func(r *http.Request, _ User) (any, error) {
		if node := nodeNamed(r.PathValue("node")); node != a.localName() {
			return nil, badRequest("ask node '" + node + "' itself")
		}
		return a.nodeHealth(), nil
	})
}

// nodeHealth is RabbitMQ's old check of one node, 200 with either answer: whether it is short of memory or disk, or still opens queues.
func (a *API) nodeHealth() checkup {
	stats := a.cfg.Cluster.Stats()
	switch alarms := alarmsOf(a.localName(), &stats); {
	case len(alarms) > 0:
		return failed("resource alarm(s) in effect: " + alarms[0].Resource)
	case !a.cfg.Health.Hosting():
		return failed("the node still opens its queues")
	}
	return healthy()
}
