package management

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"reflect"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/warrenmq/warren/auth"
	"github.com/warrenmq/warren/policy"
)

// Policy is the JSON form of a policy or an operator policy.
type Policy struct {
	VHost      string         `json:"vhost"`
	Name       string         `json:"name"`
	Pattern    string         `json:"pattern"`
	ApplyTo    string         `json:"apply-to"`
	Definition map[string]any `json:"definition"`
	Priority   int64          `json:"priority"`
}

func (a *API) routePolicies() {
	for prefix, operator := range map[string]bool{"/api/policies": false, "/api/operator-policies": true} {
		handle := func(pattern string, f func(*http.Request, User, bool) (any, error)) {
			a.handle(pattern, func(r *http.Request, u User) (any, error) { return f(r, u, operator) })
		}
		handle("GET "+prefix, a.listAllPolicies)
		handle("GET "+prefix+"/{vhost}", a.listPolicies)
		handle("GET "+prefix+"/{vhost}/{name}", a.getPolicy)
		handle("PUT "+prefix+"/{vhost}/{name}", a.putPolicy)
		handle("DELETE "+prefix+"/{vhost}/{name}", a.deletePolicy)
	}
}

// mayMakePolicies: administrators everywhere; policymakers where they have a permission,
// and policies only.
func (a *API) mayMakePolicies(u User, vhost string, operator bool) bool {
	if u.may(auth.TagAdministrator) {
		return true
	}
	return !operator && u.may(auth.TagPolicymaker) && a.cfg.Broker.MayEnter(atBroker(u), vhost)
}

// policyVhost returns the vhost that the path names, if the user may make policies there.
func (a *API) policyVhost(r *http.Request, u User, operator bool) (string, error) {
	name := r.PathValue("vhost")
	if !a.mayMakePolicies(u, name, operator) {
		return "", errNotAuthorised
	}
	ok, err := a.cfg.Broker.HasVhost(r.Context(), name)
	if err != nil {
		return "", ofBroker(err)
	}
	if !ok {
		return "", errNotFound
	}
	return name, nil
}

// listAllPolicies lists those of every vhost that the user sees, as RabbitMQ does: to look at what applies takes no right to change it.
func (a *API) listAllPolicies(r *http.Request, u User, operator bool) (any, error) {
	list := []Policy{}
	for _, vhost := range a.cfg.Broker.Vhosts() {
		if a.sees(u, vhost) {
			list = appendPolicies(list, a.cfg.Broker.Policies(vhost, operator))
		}
	}
	return paged(r, list)
}

func (a *API) listPolicies(r *http.Request, u User, operator bool) (any, error) {
	vhost, err := a.vhost(r, u)
	if err != nil {
		return nil, err
	}
	return paged(r, appendPolicies([]Policy{}, a.cfg.Broker.Policies(vhost, operator)))
}

func (a *API) getPolicy(r *http.Request, u User, operator bool) (any, error) {
	vhost, err := a.policyVhost(r, u, operator)
	if err != nil {
		return nil, err
	}
	return sure(a, r, func() (any, error) {
		for _, p := range a.cfg.Broker.Policies(vhost, operator) {
			if p.Name == r.PathValue("name") {
				return appendPolicies(nil, []*policy.Policy{p})[0], nil
			}
		}
		return nil, errNotFound
	})
}

func appendPolicies(list []Policy, policies []*policy.Policy) []Policy {
	for _, p := range policies {
		list = append(list, Policy{
			VHost: p.VHost, Name: p.Name, Pattern: p.Pattern, ApplyTo: p.ApplyTo.String(), Definition: p.Definition.JSON(), Priority: p.Priority,
		})
	}
	return list
}

// putPolicy makes a policy. The names in the path count, whatever the body says.
func (a *API) putPolicy(r *http.Request, u User, operator bool) (any, error) {
	vhost, err := a.policyVhost(r, u, operator)
	if err != nil {
		return nil, err
	}
	spec, err := readPolicy(r)
	if err != nil {
		return nil, err
	}
	spec.VHost, spec.Name, spec.Operator = vhost, r.PathValue("name"), operator
	made, err := a.cfg.Broker.PutPolicy(r.Context(), spec)
	if invalid, ok := errors.AsType[*policy.Invalid](err); ok {
		return nil, badRequest(invalid.Error())
	}
	switch {
	case err != nil:
		return nil, ofBroker(err)
	case made:
		a.SettlePolicies(r.Context(), vhost)
		return created{}, nil
	}
	a.SettlePolicies(r.Context(), vhost)
	return nil, nil
}

// timeoutSettle bounds the wait for a change of policies to be in effect.
const timeoutSettle = time.Second

// SettlePolicies waits a moment until a change that was just made is in effect on the queues of all
// living nodes, so that whoever made it can rely on it; the log tells if it is not by then. A queue without a leader gets it
// with its next leader.
func (a *API) SettlePolicies(ctx context.Context, vhost string) {
	ctx, cancel := context.WithTimeout(ctx, timeoutSettle)
	defer cancel()
	revision := a.cfg.Broker.Revision()
	err := a.eachPeer(ctx, func(ctx context.Context, node string) error {
		return a.ask(ctx, node, peerRequest{Op: opSettle, VHost: vhost, Revision: revision}, &peerSettled{})
	})
	if err = errors.Join(err, a.cfg.Broker.SettlePolicies(ctx, vhost, revision)); err != nil {
		a.cfg.Logger.Info("a change of policies is not in effect everywhere yet", "vhost", vhost, "err", err)
	}
}

func readPolicy(r *http.Request) (spec policy.Spec, err error) {
	var body struct {
		Pattern    *string         `json:"pattern"`
		ApplyTo    json.RawMessage `json:"apply-to"`
		Definition json.RawMessage `json:"definition"`
		Priority   json.RawMessage `json:"priority"`
	}
	if err := readJSON(r, &body); err != nil {
		return spec, err
	}
	switch {
	case body.Pattern == nil:
		return spec, badRequest("key_missing: pattern")
	case body.Definition == nil:
		return spec, badRequest("key_missing: definition")
	}
	spec.Pattern = *body.Pattern
	if spec.ApplyTo, err = applyToOf(body.ApplyTo); err != nil {
		return spec, err
	}
	if spec.Definition, err = policy.ParseDefinition(body.Definition); err != nil {
		return spec, badRequest(err.Error())
	}
	if body.Priority != nil && (string(body.Priority) == "null" || json.Unmarshal(body.Priority, &spec.Priority) != nil) {
		return spec, badRequest((&policy.Invalid{Reasons: []string{"priority should be a number, actually was " + string(body.Priority)}}).Error())
	}
	return spec, nil
}

// applyToOf reads what a policy applies to: everything, if that is not said. As in RabbitMQ, "" and null are words for nothing; 0 stands for
// them, which the policy's own check refuses.
func applyToOf(raw json.RawMessage) (policy.ApplyTo, error) {
	if raw == nil {
		return policy.All, nil
	}
	var word *string
	if json.Unmarshal(raw, &word) != nil {
		return 0, badRequest("apply-to should be a string, actually was " + string(raw))
	}
	if word == nil {
		return 0, nil
	}
	return policy.ParseApplyTo(*word), nil
}

// readJSON decodes a request's body, which has to be a JSON object.
func readJSON(r *http.Request, to any) error {
	raw, err := io.ReadAll(r.Body)
	if err != nil {
		return badRequest("body: " + err.Error())
	}
	if !utf8.Valid(raw) {
		return errNotText
	}
	err = json.Unmarshal(raw, to)
	if wrong, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		if wrong.Field == "" {
			return badRequest("not_json: the body should be an object, actually was " + article(wrong.Value))
		}
		return badRequest(strings.TrimPrefix(wrong.Field, ".") + " should be " + article(jsonKind(wrong.Type.Kind())) + ", actually was " + article(wrong.Value))
	}
	if err != nil {
		return badRequest("not_json: " + err.Error())
	}
	return nil
}

// jsonKind is JSON's word for what a Go value is decoded from.
func jsonKind(k reflect.Kind) string {
	switch k {
	case reflect.String:
		return "string"
	case reflect.Bool:
		return "bool"
	case reflect.Slice, reflect.Array:
		return "array"
	case reflect.Struct, reflect.Map, reflect.Pointer:
		return "object"
	}
	return "number"
}

// article puts one before a word for a type.
func article(word string) string {
	if strings.ContainsRune("aeio", rune(word[0])) {
		return "an " + word
	}
	return "a " + word
}

func (a *API) deletePolicy(r *http.Request, u User, operator bool) (any, error) {
	vhost, err := a.policyVhost(r, u, operator)
	if err != nil {
		return nil, err
	}
	if err := a.cfg.Broker.DeletePolicy(r.Context(), vhost, r.PathValue("name"), operator); err != nil {
		return nil, ofBroker(err)
	}
	a.SettlePolicies(r.Context(), vhost)
	return nil, nil
}

// nameOrNil is the JSON form of the name of what may be missing.
func nameOrNil(name string) *string {
	if name == "" {
		return nil
	}
	return &name
}
