package management

import (
	"io"
	"net/http"
	"slices"

	"github.com/warrenmq/warren/auth"
)

// sentBody is the body of a request. Reading it ends with a refusal when who sends it may not do any more what the request was let in with: else they
// could keep the end of a body back, for as long as a body may take, and act after they have lost the right to.
type sentBody struct {
	io.ReadCloser

	still func() error
	// refused is why it has ended, nil if it has not.
	refused error
}

// Read implements io.Reader.
func (b *sentBody) Read(p []byte) (int, error) {
	if b.refused != nil {
		return 0, b.refused
	}
	n, err := b.ReadCloser.Read(p)
	if b.refused = b.still(); b.refused != nil {
		return 0, b.refused
	}
	return n, err
}

// watchBody gives the request a body that ends with what the user may do. Without a body, and for the control socket, there is nothing to wait for: nil.
func (a *API) watchBody(r *http.Request, u User) *sentBody {
	if r.ContentLength == 0 || a.cfg.Renew == nil || r.Context().Value(operatorKey{}) != nil {
		return nil
	}
	b := &sentBody{ReadCloser: r.Body, still: func() error { return a.still(u) }}
	r.Body = b
	return b
}

// still refuses a user who was deleted since the login, or has lost one of the tags that mean something here.
func (a *API) still(u User) error {
	now, err := a.cfg.Renew(u.Login)
	if err != nil {
		return unauthorised("Login failed")
	}
	for _, tag := range []string{auth.TagAdministrator, auth.TagMonitoring, auth.TagPolicymaker, auth.TagManagement} {
		if u.may(tag) && !slices.Contains(now.Tags, tag) {
			return unauthorised("Not " + tag + " user")
		}
	}
	return nil
}
