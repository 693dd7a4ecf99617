package management

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"

	"github.com/warrenmq/warren/auth"
	"github.com/warrenmq/warren/broker"
)

// User is who sent a request.
type User struct {
	Name string
	Tags []string
	// Login is what the broker knows of the user.
	Login broker.User
}

// may reports whether the user carries one of the tags.
func (u User) may(tags ...string) bool {
	return slices.ContainsFunc(tags, func(t string) bool { return slices.Contains(u.Tags, t) })
}

// manages: may use the API at all. Each of these tags includes the one before
// it, except that policymaker and monitoring stand beside each other.
func (u User) manages() bool {
	return u.may(auth.TagManagement, auth.TagPolicymaker, auth.TagMonitoring, auth.TagAdministrator)
}

// monitors: may see what belongs to others.
func (u User) monitors() bool { return u.may(auth.TagMonitoring, auth.TagAdministrator) }

// sees: may see what is a user's. Others are refused before that user is looked up, so that they do not learn who there is.
func (u User) sees(user string) bool { return u.monitors() || u.Name == user }

// monitor lets only users who may see what belongs to others do f.
func monitor(f func(*http.Request, User) (any, error)) func(*http.Request, User) (any, error) {
	return func(r *http.Request, u User) (any, error) {
		if !u.monitors() {
			return nil, unauthorised("Not monitor user")
		}
		return f(r, u)
	}
}

// authenticate returns the user of a request's basic authentication or, without that, of its
// client's certificate, or a refusal with 401.
func (a *API) authenticate(r *http.Request) (User, error) {
	u, err := a.login(r)
	if held, ok := errors.AsType[*HeldUp](err); ok {
		return User{}, held
	}
	if busy, ok := errors.AsType[*Busy](err); ok {
		return User{}, busy
	}
	if err != nil {
		return User{}, unauthorised("Login failed")
	}
	if !u.manages() {
		return User{}, unauthorised("Not management user")
	}
	return u, nil
}

// ForMonitors serves h to users who may see what belongs to others.
func (a *API) ForMonitors(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		u, err := a.authenticate(r)
		if err == nil && !u.monitors() {
			err = unauthorised("Not monitor user")
		}
		if err != nil {
			a.refuse(w, err)
			return
		}
		h.ServeHTTP(w, r)
	})
}

// Operator is the name under which the control socket's requests are logged. No user has it: it has all tags, and no
// permissions in virtual hosts.
const Operator = "control socket"

// operatorKey marks the context of a request that needs no login.
type operatorKey struct{}

// AsOperator returns the request as one of an administrator. It is for a socket that only who runs the node can open.
func AsOperator(r *http.Request) *http.Request {
	return r.WithContext(context.WithValue(r.Context(), operatorKey{}, true))
}

var errNoLogin = errors.New("no password and no certificate")

func (a *API) login(r *http.Request) (User, error) {
	if r.Context().Value(operatorKey{}) != nil {
		return User{Name: Operator, Tags: []string{auth.TagAdministrator}}, nil
	}
	name, password, ok := r.BasicAuth()
	scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	switch {
	case ok:
		return a.cfg.Login(r.Context(), name, password, r.RemoteAddr)
	case strings.EqualFold(scheme, "Bearer") && a.cfg.LoginByToken != nil:
		return a.cfg.LoginByToken(r.Context(), strings.TrimSpace(token), r.RemoteAddr)
	case r.Header.Get("Authorization") == "" && a.cfg.LoginByCertificate != nil && r.TLS != nil && len(r.TLS.VerifiedChains) > 0:
		return a.cfg.LoginByCertificate(r.Context(), r.TLS.VerifiedChains[0][0], r.RemoteAddr)
	}
	return User{}, errNoLogin
}
