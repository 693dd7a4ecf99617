package management

import (
	"cmp"
	"context"
	"net/http"
	"slices"
	"strings"

	"github.com/warrenmq/warren/broker"
)

// closings is what the API needs of the node's [broker.Broker] to show deleted queues that have not ended.
type closings interface {
	// Closings describes them. What some nodes know is returned with the errors of the others.
	Closings(ctx context.Context) ([]broker.ClosingQueue, error)
}

func (a *API) routeClosings() {
	a.handle("GET /api/warren/closing-queues", a.listClosings)
	a.handle("GET /api/warren/closing-queues/{vhost}", a.listClosings)
}

// listClosings shows the deleted queues that have not ended, of one vhost or of all; of a deleted vhost, to those who may see all.
func (a *API) listClosings(r *http.Request, u User) (any, error) {
	vhost := r.PathValue("vhost")
	if vhost != "" && !u.monitors() {
		if _, err := a.vhost(r, u); err != nil {
			return nil, err
		}
	}
	all, err := a.cfg.Broker.Closings(r.Context())
	if err != nil {
		a.cfg.Logger.Warn("what some nodes know of deleted queues is missing", "err", err)
	}
	all = slices.DeleteFunc(all, func(q broker.ClosingQueue) bool {
		return vhost != "" && q.VHost != vhost || !u.monitors() && !a.cfg.Broker.MayEnter(atBroker(u), q.VHost)
	})
	slices.SortFunc(all, func(x, y broker.ClosingQueue) int {
		return cmp.Or(strings.Compare(x.VHost, y.VHost), strings.Compare(x.Queue, y.Queue), cmp.Compare(x.ID, y.ID))
	})
	return paged(r, all)
}
