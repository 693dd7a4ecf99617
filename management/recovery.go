package management

import (
	"context"
	"errors"
	"net/http"

	"github.com/warrenmq/warren/auth"
	"github.com/warrenmq/warren/cluster/recovery"
)

// recovers is what the API needs to let queues go on that have lost most of their replicas.
type recovers interface {
	// RecoverQueues plans it, and does it if the request says so. A *recovery.Error is a request that makes no sense as it is.
	RecoverQueues(ctx context.Context, r *recovery.Request) (*recovery.Report, error)
}

func (a *API) routeRecovery() { a.handle("POST /api/warren/recovery", a.recoverQueues) }

func (a *API) recoverQueues(r *http.Request, u User) (any, error) {
	if !u.may(auth.TagAdministrator) {
		return nil, errNotAuthorised
	}
	var req recovery.Request
	if err := readJSON(r, &req); err != nil {
		return nil, err
	}
	if req.Yes {
		a.cfg.Logger.Warn("administration", "user", u.Name, "from", r.RemoteAddr, "recover_queues", true, "lost", req.Lost, "vhost", req.VHost, "queue", req.Queue)
	}
	report, err := a.cfg.Cluster.RecoverQueues(r.Context(), &req)
	if e, ok := errors.AsType[*recovery.Error](err); ok {
		return nil, badRequest(e.Text)
	}
	return report, err
}
