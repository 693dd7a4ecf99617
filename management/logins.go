package management

import (
	"context"
	"fmt"
	"math"
	"net/http"
	"time"
)

// HeldUp refuses a login without looking at the password, since too many failed before.
type HeldUp struct{ Wait time.Duration }

// Busy refuses what takes a processor for a while, since too much of that waits.
type Busy struct{ Reason string }

func (b *Busy) Error() string { return b.Reason }

func (h *HeldUp) Error() string { return "too many failed logins, wait " + h.Wait.String() }

func (h *HeldUp) seconds() int { return int(math.Ceil(h.Wait.Seconds())) }

// Logins are those of a node since it was started.
type Logins struct {
	Protocols []LoginCounts `json:"protocols"`
	Sources   []LoginSource `json:"sources"` // that have failed lately, the newest first
}

// LoginCounts count the logins by one protocol, with RabbitMQ's names.
type LoginCounts struct {
	Protocol string `json:"protocol"` // amqp091 or http
	Attempts uint64 `json:"auth_attempts"`
	Failed   uint64 `json:"auth_attempts_failed"`
	Accepted uint64 `json:"auth_attempts_succeeded"`
	Held     uint64 `json:"auth_attempts_held_up"` // not looked at, since too many had failed before
}

// LoginSource is somebody whose logins fail.
type LoginSource struct {
	Address    string `json:"remote_address"` // a network of 64 bits for IPv6
	User       string `json:"username"`
	Failures   int    `json:"auth_attempts_failed"` // since the last success
	LastMillis int64  `json:"last_failure"`         // ms since 1970
}

type loggedIn interface {
	// Logins are this node's; ResetLogins forgets them, and lets in who is held up.
	Logins() Logins
	ResetLogins()
}

func (a *API) routeLogins() {
	for path, part := range map[string]func(l Logins) any{
		"":        func(l Logins) any { return l.Protocols },
		"/source": func(l Logins) any { return l.Sources },
	} {
		a.handle("GET /api/auth/attempts/{node}"+path, monitor(func(r *http.Request, _ User) (any, error) {
			l, err := a.loginsOf(r.Context(), r.PathValue("node"), false)
			return part(l), err
		}))
		a.handle("DELETE /api/auth/attempts/{node}"+path, a.admin(func(r *http.Request) (any, error) {
			_, err := a.loginsOf(r.Context(), r.PathValue("node"), true)
			return nil, err
		}))
	}
}

// loginsOf asks a node for its logins, or to forget them.
func (a *API) loginsOf(ctx context.Context, node string, reset bool) (l Logins, err error) {
	id, ok := a.cfg.Cluster.NodeByName(nodeNamed(node))
	if !ok {
		return l, errNotFound
	}
	req := peerRequest{Op: opLogins, Reset: reset}
	if id == a.cfg.Cluster.Self() {
		return a.ownLogins(&req), nil
	}
	ctx, cancel := context.WithTimeout(ctx, timeoutPeers)
	defer cancel()
	if err := a.ask(ctx, id, req, &l); err != nil {
		return l, fmt.Errorf("logins: %w", err)
	}
	return l, nil
}

func (a *API) ownLogins(req *peerRequest) Logins {
	if req.Reset {
		a.cfg.Cluster.ResetLogins()
	}
	return a.cfg.Cluster.Logins()
}
