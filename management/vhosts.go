package management

import (
	"context"
	"errors"
	"net/http"

	"github.com/warrenmq/warren/broker"
	"github.com/warrenmq/warren/stats"
)

// vhosts is the part of the broker that knows and changes vhosts; its methods are documented
// there.
type vhosts interface {
	VhostInfos() []broker.VhostInfo
	PutVhost(ctx context.Context, name string, s broker.VhostSettings) (created bool, err error)
	DeleteVhost(ctx context.Context, name string) error
}

// VhostJSON is the JSON form of a vhost. What Metadata holds is there a second time, as in
// RabbitMQ.
type VhostJSON struct {
	Name             string        `json:"name"`
	Description      string        `json:"description"`
	Tags             []string      `json:"tags"`
	DefaultQueueType string        `json:"default_queue_type"`
	Protected        bool          `json:"protected_from_deletion"`
	Tracing          bool          `json:"tracing"` // never
	Metadata         vhostMetadata `json:"metadata"`
	*VhostTotals
}

type vhostMetadata struct {
	Description      string   `json:"description"`
	Tags             []string `json:"tags"`
	DefaultQueueType string   `json:"default_queue_type"`
}

func (a *API) routeVhosts() {
	a.handle("GET /api/vhosts", a.listVhosts)
	a.handle("GET /api/vhosts/{vhost}", a.getVhost)
	a.handle("PUT /api/vhosts/{vhost}", a.putVhost)
	a.handle("DELETE /api/vhosts/{vhost}", a.admin(a.deleteVhost))
	a.handle("POST /api/vhosts/{vhost}/deletion/protection", a.admin(func(r *http.Request) (any, error) { return nil, a.protectVhost(r, true) }))
	a.handle("DELETE /api/vhosts/{vhost}/deletion/protection", a.admin(func(r *http.Request) (any, error) { return nil, a.protectVhost(r, false) }))
	// RabbitMQ starts one again on a node where it has failed; here one that exists runs.
	a.handle("POST /api/vhosts/{vhost}/start/{node}", a.admin(func(r *http.Request) (any, error) {
		if ok, err := a.cfg.Broker.HasVhost(r.Context(), r.PathValue("vhost")); err != nil || !ok {
			return nil, or(err, errNotFound)
		}
		if _, ok := a.cfg.Cluster.NodeByName(r.PathValue("node")); !ok {
			return nil, errNotFound
		}
		return nil, nil
	}))
	// For `warren ctl`: who makes it gets no permission in it, and one that exists stays as
	// it is.
	a.handle("PUT /api/warren/vhosts/{vhost}", a.admin(a.addVhost))
	a.handle("PATCH /api/warren/vhosts/{vhost}", a.admin(a.updateVhost)) // for `warren ctl`, too: makes none
}

func vhostJSON(h *broker.VhostInfo) VhostJSON {
	tags := someTags(h.Tags)
	return VhostJSON{
		Name: h.Name, Description: h.Description, Tags: tags, DefaultQueueType: h.DefaultQueueType, Protected: h.Protected,
		Metadata: vhostMetadata{h.Description, tags, h.DefaultQueueType},
	}
}

func (a *API) listVhosts(r *http.Request, u User) (any, error) {
	list := []VhostJSON{}
	for _, h := range a.cfg.Broker.VhostInfos() {
		if a.sees(u, h.Name) {
			list = append(list, vhostJSON(&h))
		}
	}
	if !asked(r, "disable_stats") {
		a.addTotals(r.Context(), list)
	}
	return paged(r, list)
}

func (a *API) getVhost(r *http.Request, u User) (any, error) {
	name, err := a.vhost(r, u)
	if err != nil {
		return nil, err
	}
	lengthsSpan, err := spanOf(r, "lengths")
	if err != nil {
		return nil, err
	}
	rates, err := spanOf(r, "msg_rates")
	if err != nil {
		return nil, err
	}
	for _, h := range a.cfg.Broker.VhostInfos() {
		if h.Name == name {
			list := []VhostJSON{vhostJSON(&h)}
			a.addTotals(r.Context(), list)
			key := stats.Key{Kind: stats.VHost, Name: name}
			list[0].withPast(a.past(r.Context(), key, lengthsSpan))
			list[0].MessageStats.withPast(countersOfChannel, a.past(r.Context(), key, rates))
			return list[0], nil
		}
	}
	return nil, errNotFound // it went meanwhile
}

// putVhost makes or changes a vhost. As in RabbitMQ, who makes it may do everything in it.
func (a *API) putVhost(r *http.Request, u User) (any, error) {
	return a.admin(func(r *http.Request) (any, error) {
		name := r.PathValue("vhost")
		s, err := readVhost(r)
		if err != nil {
			return nil, err
		}
		isNew, err := a.cfg.Broker.PutVhost(r.Context(), name, s)
		if err == nil && isNew && u.Name != Operator && u.Login.Rights == nil { // the two have no user, and what they may do is not in the catalog
			_, err = a.cfg.Broker.PutPermission(r.Context(), name, u.Name, ".*", ".*", ".*")
		}
		return made(isNew, err)
	})(r, u)
}

func (a *API) addVhost(r *http.Request) (any, error) {
	name := r.PathValue("vhost")
	s, err := readVhost(r)
	if err != nil {
		return nil, err
	}
	s.New = true
	return made(a.cfg.Broker.PutVhost(r.Context(), name, s))
}

func (a *API) updateVhost(r *http.Request) (any, error) {
	s, err := readVhost(r)
	if err != nil {
		return nil, err
	}
	s.Existing = true
	_, err = a.cfg.Broker.PutVhost(r.Context(), r.PathValue("vhost"), s)
	return nil, err
}

func (a *API) protectVhost(r *http.Request, protect bool) error {
	_, err := a.cfg.Broker.PutVhost(r.Context(), r.PathValue("vhost"), broker.VhostSettings{Protected: &protect, Existing: true})
	return err
}

func (a *API) deleteVhost(r *http.Request) (any, error) {
	err := a.cfg.Broker.DeleteVhost(r.Context(), r.PathValue("vhost"))
	if e, ok := errors.AsType[*broker.Error](err); ok && e.Kind == broker.PreconditionFailed {
		return nil, &refusal{http.StatusPreconditionFailed, "precondition_failed", e.Text}
	}
	return nil, err
}

func readVhost(r *http.Request) (s broker.VhostSettings, err error) {
	body, err := readObject(r)
	if err != nil {
		return s, err
	}
	if body["tags"] != nil {
		tags, err := tagsOf(body)
		if err != nil {
			return s, err
		}
		s.Tags = &tags
	}
	for key, to := range map[string]**string{
		"description": &s.Description, "default_queue_type": &s.DefaultQueueType, "defaultqueuetype": &s.DefaultQueueType,
	} {
		if v, ok := body[key]; ok && v != nil {
			text, ok := v.(string)
			if !ok {
				return s, badRequest(key + " should be a string, actually was " + term(v))
			}
			*to = &text
		}
	}
	switch t := s.DefaultQueueType; {
	case t == nil:
	case *t == "":
		return s, badRequest("default_queue_type must not be an empty string")
	case *t == "undefined":
		*t = "" // as RabbitMQ 3 shows that there is none
	}
	tracing, err := flag(body, "tracing")
	if err != nil {
		return s, err
	}
	if tracing != nil && *tracing {
		return s, badRequest("tracing is not supported")
	}
	s.Protected, err = flag(body, "protected_from_deletion")
	return s, err
}

// flag returns what a key says, nil if it is not there. A word for it is good too, as in
// RabbitMQ.
func flag(body map[string]any, key string) (*bool, error) {
	v := body[key]
	if word, ok := v.(string); ok && (word == "true" || word == "false") {
		v = word == "true"
	}
	switch v := v.(type) {
	case nil:
		return nil, nil //nolint:nilnil // it is not there
	case bool:
		return &v, nil
	}
	return nil, badRequest("not_boolean: " + key + " is " + term(v))
}
