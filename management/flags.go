package management

import (
	"context"
	"errors"
	"net/http"

	"github.com/warrenmq/warren/amqp"
	"github.com/warrenmq/warren/auth"
	"github.com/warrenmq/warren/cluster/level"
)

// Cluster is what the API needs of the cluster's catalog.
type Cluster interface {
	levels
	nodes
	program
	loggedIn
	maintained
	recovers
}

type levels interface {
	// Level is the level of the cluster.
	Level() int
	// RaiseLevel takes the cluster to a level now. An *amqp.Error says which nodes do not know it.
	RaiseLevel(ctx context.Context, to int) error
}

// featureFlag is a level as RabbitMQ describes a feature flag.
type featureFlag struct {
	Name       string `json:"name"`
	State      string `json:"state"` // enabled, or disabled
	Stability  string `json:"stability"`
	ProvidedBy string `json:"provided_by"`
	Desc       string `json:"desc"`
	DocURL     string `json:"doc_url"`
	// Level is the number; RabbitMQ has none.
	Level int `json:"level"`
}

// allFlags stands for every flag in the path that enables one, as in rabbitmqctl.
const allFlags = "all"

func (a *API) routeFlags() {
	a.handle("GET /api/feature-flags", func(_ *http.Request, _ User) (any, error) {
		at := a.cfg.Cluster.Level()
		var list []featureFlag
		for _, l := range level.All() {
			f := featureFlag{Name: l.Name, State: "disabled", Stability: "stable", ProvidedBy: "warren", Desc: l.Desc, Level: l.Number}
			if l.Number <= at {
				f.State = "enabled"
			}
			if l.Number == level.First {
				f.Stability = "required"
			}
			list = append(list, f)
		}
		return list, nil
	})
	a.handle("PUT /api/feature-flags/{name}/enable", func(r *http.Request, u User) (any, error) {
		if !u.may(auth.TagAdministrator) {
			return nil, errNotAuthorised
		}
		to, ok := level.Now, true
		if name := r.PathValue("name"); name != allFlags {
			to, ok = level.Number(name)
		}
		if !ok {
			return nil, badRequest("unsupported")
		}
		err := a.cfg.Cluster.RaiseLevel(r.Context(), to)
		if e, ok := errors.AsType[*amqp.Error](err); ok {
			return nil, badRequest(e.Text)
		}
		return nil, err
	})
}
