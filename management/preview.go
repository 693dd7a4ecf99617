package management

import (
	"cmp"
	"errors"
	"net/http"

	"github.com/warrenmq/warren/amqp"
	"github.com/warrenmq/warren/auth"
	"github.com/warrenmq/warren/broker"
	"github.com/warrenmq/warren/policy"
)

// previews is what the API needs of the broker to tell what a policy would do.
type previews interface {
	// PreviewPolicy says what a policy would apply to; the error is a *policy.Invalid.
	PreviewPolicy(s policy.Spec) (broker.PolicyPreview, error)
}

// mayWhat is the answer to whether a user may do something.
type mayWhat struct {
	Allowed bool   `json:"allowed"`
	Reason  string `json:"reason,omitempty"` // what a client would be told
}

func (a *API) routePreviews() {
	// The body is that of PUT /api/policies, with a name if it is to replace the policy of that name.
	a.handle("POST /api/warren/policies/{vhost}/preview", func(r *http.Request, u User) (any, error) { return a.previewPolicy(r, u, false) })
	a.handle("POST /api/warren/operator-policies/{vhost}/preview", func(r *http.Request, u User) (any, error) { return a.previewPolicy(r, u, true) })
	a.handle("GET /api/warren/permissions/{vhost}/{user}/check", a.admin(a.checkPermission))
}

func (a *API) previewPolicy(r *http.Request, u User, operator bool) (any, error) {
	vhost, err := a.policyVhost(r, u, operator)
	if err != nil {
		return nil, err
	}
	spec, err := readPolicy(r)
	if err != nil {
		return nil, err
	}
	spec.VHost, spec.Operator, spec.Name = vhost, operator, r.URL.Query().Get("name")
	look, err := a.cfg.Broker.PreviewPolicy(spec)
	if invalid, ok := errors.AsType[*policy.Invalid](err); ok {
		return nil, badRequest(invalid.Error())
	}
	return look, err
}

// checkPermission tells whether a user may configure, write or read a queue or an exchange, and what the refusal would be.
func (a *API) checkPermission(r *http.Request) (any, error) {
	vhost, user, err := a.permissionEnds(r, errNotFound)
	if err != nil {
		return nil, err
	}
	q := r.URL.Query()
	action, ok := map[string]auth.Action{"configure": auth.Configure, "write": auth.Write, "read": auth.Read}[q.Get("action")]
	if !ok {
		return nil, badRequest("action is none of configure, write, read")
	}
	kind := auth.Kind(cmp.Or(q.Get("kind"), string(auth.Queue)))
	if kind != auth.Queue && kind != auth.Exchange {
		return nil, badRequest("kind is neither queue nor exchange")
	}
	var p *auth.Permission
	for _, each := range a.cfg.Broker.Permissions(vhost, user) {
		p = each
	}
	if p == nil {
		return refusedWith(auth.RefuseVhost(vhost, user)), nil
	}
	if !p.Allows(action, kind, q.Get("name")) {
		return refusedWith(auth.Refuse(action, kind, q.Get("name"), vhost, user)), nil
	}
	return mayWhat{Allowed: true}, nil
}

// refusedWith is the answer with the text that a client would be told.
func refusedWith(err error) mayWhat {
	if e, ok := errors.AsType[*amqp.Error](err); ok {
		return mayWhat{Reason: e.Text}
	}
	return mayWhat{Reason: err.Error()}
}
