package management

import (
	"errors"
	"net/http"
	"strings"
)

// unaudited are the changes that are no administration: what applications do with messages, and questions that are asked by POST.
var unaudited = map[string]bool{
	"POST /api/exchanges/{vhost}/{exchange}/publish":      true,
	"POST /api/queues/{vhost}/{name}/get":                 true,
	"POST /api/warren/exchanges/{vhost}/{exchange}/route": true,
	"POST /api/warren/policies/{vhost}/preview":           true,
	"POST /api/warren/operator-policies/{vhost}/preview":  true,
}

// audit logs a change that a user made or was refused: who, from where, what, on what, and how it ended. Bodies are not logged: passwords are
// in them.
func (a *API) audit(pattern string, r *http.Request, u User, err error) {
	if method, _, _ := strings.Cut(pattern, " "); method == http.MethodGet || unaudited[pattern] {
		return
	}
	a.record(r, u, err)
}

// errFault is what the line says of a request that a fault of the node ended (package contain).
var errFault = errors.New("a fault of this node ended the request; what it asks for may be done in part")

// audited carries out a request and audits it, also if f panics.
func (a *API) audited(pattern string, r *http.Request, u User, f func(*http.Request, User) (any, error)) (body any, err error) {
	err = errFault
	defer func() { a.audit(pattern, r, u, err) }()
	sent := a.watchBody(r, u)
	body, err = f(r, u)
	if sent != nil && sent.refused != nil {
		return nil, sent.refused
	}
	return body, err
}

// record writes the line of audit.
func (a *API) record(r *http.Request, u User, err error) {
	attrs := []any{"user", u.Name, "from", r.RemoteAddr, "method", r.Method, "path", r.RequestURI, "result", "done"}
	if err != nil {
		attrs[len(attrs)-1] = "failed"
		if _, ok := errors.AsType[*refusal](ofBroker(err)); ok {
			attrs[len(attrs)-1] = "refused"
		}
		attrs = append(attrs, "err", err)
	}
	a.cfg.Logger.Info("administration", attrs...)
}
