package management

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"slices"

	"github.com/warrenmq/warren/auth"
	"github.com/warrenmq/warren/broker"
)

// Parameter is the JSON form of a runtime parameter.
type Parameter struct {
	Value     any    `json:"value"`
	VHost     string `json:"vhost"`
	Component string `json:"component"`
	Name      string `json:"name"`
}

// The components that have parameters. RabbitMQ's other components are plugins.
const (
	componentOperator = "operator_policy"
	componentLimits   = "vhost-limits"
	limitsName        = "limits"
)

func (a *API) routeParameters() {
	maker := func(f func(*http.Request, User) (any, error)) func(*http.Request, User) (any, error) {
		return func(r *http.Request, u User) (any, error) {
			if !u.may(auth.TagAdministrator, auth.TagPolicymaker) {
				return nil, errNotAuthorised
			}
			return f(r, u)
		}
	}
	list := func(r *http.Request, u User) (any, error) {
		return paged(r, a.parameters(u, r.PathValue("component"), ""))
	}
	a.handle("GET /api/parameters", maker(list))
	a.handle("GET /api/parameters/{component}", maker(list))
	a.handle("GET /api/parameters/{component}/{vhost}", maker(func(r *http.Request, u User) (any, error) {
		vhost, err := a.vhost(r, u)
		if err != nil {
			return nil, err
		}
		return paged(r, a.parameters(u, r.PathValue("component"), vhost))
	}))
	one := func(r *http.Request, u User) (any, error) {
		vhost, err := a.vhost(r, u)
		if err != nil {
			return nil, err
		}
		return sure(a, r, func() (any, error) {
			for _, p := range a.parameters(u, r.PathValue("component"), vhost) {
				if p.Name == r.PathValue("name") {
					return p, nil
				}
			}
			return nil, errNotFound
		})
	}
	a.handle("GET /api/parameters/{component}/{vhost}/{name}", maker(one))
	a.handle("PUT /api/parameters/{component}/{vhost}/{name}", maker(a.putParameter))
	a.handle("DELETE /api/parameters/{component}/{vhost}/{name}", maker(func(r *http.Request, u User) (any, error) {
		if _, err := one(r, u); err != nil {
			return nil, err
		}
		switch r.PathValue("component") {
		case componentOperator:
			return a.deletePolicy(r, u, true)
		case componentShovel:
			return nil, a.deleteShovel(r, r.PathValue("vhost"), r.PathValue("name"))
		}
		return a.admin(func(r *http.Request) (any, error) {
			return nil, a.cfg.Broker.ClearVhostLimits(r.Context(), r.PathValue("vhost"), "")
		})(r, u)
	}))
	a.routeGlobalParameters(maker)
}

// putParameter makes or replaces an operator policy, a shovel or the limits of a vhost, as their own paths do, with the same refusals.
func (a *API) putParameter(r *http.Request, u User) (any, error) {
	vhost, err := a.vhost(r, u)
	if err != nil {
		return nil, err
	}
	switch component, name := r.PathValue("component"), r.PathValue("name"); {
	case component == "policy":
		return nil, badRequest("policies may not be set using this method")
	case component != componentOperator && component != componentLimits && component != componentShovel:
		return nil, badRequest("Validation failed\n\ncomponent " + component + " not found\n")
	case component == componentLimits && name != limitsName:
		return nil, badRequest("the limits of a vhost are the parameter '" + limitsName + "'")
	}
	var body struct {
		Value json.RawMessage `json:"value"`
	}
	if err := readJSON(r, &body); err != nil {
		return nil, err
	}
	if body.Value == nil {
		return nil, badRequest("[{key_missing,value}]")
	}
	r.Body = io.NopCloser(bytes.NewReader(body.Value))
	switch r.PathValue("component") {
	case componentOperator:
		return a.putPolicy(r, u, true)
	case componentShovel:
		return a.putShovel(r, u, vhost, r.PathValue("name"), body.Value)
	}
	return a.admin(func(r *http.Request) (any, error) {
		limits, err := vhostRules.all(r)
		if err != nil {
			return nil, err
		}
		isNew := !slices.ContainsFunc(a.cfg.Broker.VhostLimits(), func(l broker.LimitsOf) bool { return l.Name == vhost })
		return made(isNew, a.cfg.Broker.SetVhostLimits(r.Context(), vhost, limits, true))
	})(r, u)
}

// parameters are those that a user may see of a component, or with "" of all, in a vhost, or with "" in all.
func (a *API) parameters(u User, component, vhost string) []Parameter {
	list := []Parameter{}
	wanted := func(c, v string) bool {
		return (component == "" || component == c) && (vhost == "" || vhost == v) && (u.may(auth.TagAdministrator) || a.cfg.Broker.MayEnter(atBroker(u), v))
	}
	for _, v := range a.cfg.Broker.Vhosts() {
		if wanted(componentOperator, v) {
			for _, p := range appendPolicies(nil, a.cfg.Broker.Policies(v, true)) {
				value := map[string]any{"pattern": p.Pattern, "apply-to": p.ApplyTo, "definition": p.Definition, "priority": p.Priority}
				list = append(list, Parameter{value, v, componentOperator, p.Name})
			}
		}
	}
	for _, s := range a.cfg.Broker.Shovels() {
		if wanted(componentShovel, s.Vhost) {
			list = append(list, Parameter{json.RawMessage(s.Value), s.Vhost, componentShovel, s.Name})
		}
	}
	for _, l := range a.cfg.Broker.VhostLimits() {
		if wanted(componentLimits, l.Name) {
			list = append(list, Parameter{l.Limits, l.Name, componentLimits, limitsName})
		}
	}
	return list
}

// globalName is the only global parameter: the name that the cluster has been given.
const globalName = "cluster_name"

type globalParameter struct {
	Name  string `json:"name"`
	Value any    `json:"value"`
}

func (a *API) routeGlobalParameters(maker func(func(*http.Request, User) (any, error)) func(*http.Request, User) (any, error)) {
	named := func() globalParameter { return globalParameter{globalName, a.cfg.Cluster.ClusterName()} }
	a.handle("GET /api/global-parameters", maker(func(r *http.Request, _ User) (any, error) { return paged(r, []globalParameter{named()}) }))
	a.handle("GET /api/global-parameters/{name}", maker(func(r *http.Request, _ User) (any, error) {
		if r.PathValue("name") != globalName {
			return nil, errNotFound
		}
		return named(), nil
	}))
	a.handle("PUT /api/global-parameters/{name}", a.admin(func(r *http.Request) (any, error) {
		if r.PathValue("name") != globalName {
			return nil, badRequest("global parameter " + r.PathValue("name") + " means nothing here: there is " + globalName + " only")
		}
		body, err := readObject(r)
		if err != nil {
			return nil, err
		}
		return nil, a.nameCluster(r, body["value"])
	}))
	a.handle("DELETE /api/global-parameters/{name}", a.admin(func(r *http.Request) (any, error) {
		if r.PathValue("name") != globalName {
			return nil, errNotFound
		}
		return nil, badRequest("a cluster has a name")
	}))
	a.handle("GET /api/cluster-name", func(*http.Request, User) (any, error) {
		return map[string]string{"name": a.cfg.Cluster.ClusterName()}, nil
	})
	a.handle("PUT /api/cluster-name", a.admin(func(r *http.Request) (any, error) {
		body, err := readObject(r)
		if err == nil {
			err = missing(body, "name")
		}
		if err != nil {
			return nil, err
		}
		return nil, a.nameCluster(r, body["name"])
	}))
}

func (a *API) nameCluster(r *http.Request, v any) error {
	name, ok := v.(string)
	if !ok {
		return badRequest("the cluster's name should be a string, actually was " + term(v))
	}
	return a.cfg.Broker.NameCluster(r.Context(), name)
}
