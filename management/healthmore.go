package management

import (
	"fmt"
	"net/http"

	"github.com/warrenmq/warren/broker"
	"github.com/warrenmq/warren/policy"
)

// moreChecks are the checks that newer versions of RabbitMQ added, by their paths below health/checks.
func (a *API) moreChecks() map[string]func(*http.Request) (checkup, error) {
	passes := func(*http.Request) (checkup, error) { return healthy(), nil }
	checks := map[string]func(*http.Request) (checkup, error){
		"is-in-service":                        a.checkInService,
		"metadata-store/initialized":           a.checkCatalog,
		"metadata-store/initialized/with-data": a.checkCatalog, // there are always users in it
		"below-node-connection-limit":          passes,         // a node has none: users and vhosts do
		"node-is-mirror-sync-critical":         passes,         // nothing is mirrored but by quorum
		"reached-target-cluster-size":          a.checkSize,
	}
	for _, where := range []string{"/all-vhosts", "/vhost/{vhost}"} {
		checks["quorum-queues-without-elected-leaders"+where] = a.checkLeaders
		checks["quorum-queues-without-elected-leaders"+where+"/pattern/{pattern}"] = a.checkLeaders
	}
	return checks
}

// checkInService fails while this node is under maintenance.
func (a *API) checkInService(*http.Request) (checkup, error) {
	for _, n := range a.cfg.Cluster.Nodes() {
		if n.ID == a.cfg.Cluster.Local() && n.BeingDrained {
			return failed("the node is in maintenance mode"), nil
		}
	}
	return healthy(), nil
}

// checkSize fails while the cluster has fewer running nodes than found one together.
func (a *API) checkSize(*http.Request) (checkup, error) {
	running := 0
	for _, n := range a.cfg.Cluster.Nodes() {
		if n.Running {
			running++
		}
	}
	if target := a.cfg.Health.TargetSize(); running < target {
		return failed(fmt.Sprintf("%d of %d nodes run", running, target)), nil
	}
	return healthy(), nil
}

// checkCatalog fails while nobody leads the catalog.
func (a *API) checkCatalog(*http.Request) (checkup, error) {
	if a.cfg.Cluster.CatalogLeader() == "" {
		return failed("the catalog has no leader that this node knows"), nil
	}
	return healthy(), nil
}

// checkLeaders fails if replicated queues (here that is every durable one), of one vhost or all, with a name that fits the pattern, have no majority.
func (a *API) checkLeaders(r *http.Request) (checkup, error) {
	vhost := r.PathValue("vhost")
	if vhost != "" {
		if ok, err := a.cfg.Broker.HasVhost(r.Context(), vhost); err != nil || !ok {
			return checkup{}, or(err, errNotFound)
		}
	}
	pattern := r.PathValue("pattern")
	if len(pattern) > filterBytesMax {
		return checkup{}, badRequest("pattern is too long")
	}
	fits, err := policy.Expression(pattern, expressionMax)
	if err != nil {
		return checkup{}, badRequest("pattern is no regular expression: " + err.Error())
	}
	c := failed("There are quorum queues without an elected leader")
	names := only(a.cfg.Broker.QueueNames(vhost), func(q broker.QueueName) bool { return fits.MatchString(q.Name) })
	for _, q := range a.describeQueues(r.Context(), names, a.queueTable(r.Context()), nil, true) {
		if (q.Type == "quorum" || q.Durable) && (q.State == "down" || q.State == "minority") {
			c.Queues = append(c.Queues, CriticalQueue{"queue '" + q.Name + "' in vhost '" + q.VHost + "'", q.Name, q.VHost, "rabbit_" + q.Type + "_queue"})
		}
	}
	if c.Queues == nil {
		return healthy(), nil
	}
	return c, nil
}
