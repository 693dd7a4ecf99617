package management

import (
	"context"
	"errors"
	"net/http"

	"github.com/warrenmq/warren/broker"
	"github.com/warrenmq/warren/policy"
)

// Broker is what the API needs of the node's [broker.Broker], by topic.
type Broker interface {
	changes
	figures
	outboxes
	closings
	shovels
	Limits
	redrives
	previews
	topology
	users
	permissions
	vhosts

	// HasVhost reports whether there is a virtual host; MayEnter, whether the user has a
	// permission in it.
	HasVhost(ctx context.Context, name string) (bool, error)
	MayEnter(u broker.User, vhost string) bool
	// UpToDate brings the node's copy of the catalog, which everything is looked up in, up to date. The error is a *broker.Error.
	UpToDate(ctx context.Context) error

	// NameCluster gives the cluster a name for people.
	NameCluster(ctx context.Context, name string) error

	// Vhosts lists the names of the vhosts.
	Vhosts() []string

	// Policies lists the policies, or the operator policies, of a vhost.
	Policies(vhost string, operator bool) []*policy.Policy
	// PutPolicy makes or replaces one. The error is a *policy.Invalid or a *broker.Error.
	PutPolicy(ctx context.Context, s policy.Spec) (created bool, err error)
	// DeletePolicy deletes one; the error is a *broker.Error with NotFound if there is none.
	DeletePolicy(ctx context.Context, vhost, name string, operator bool) error
	// Revision is that of the node's copy of the catalog. SettlePolicies waits until the
	// policies of a vhost at a revision are in effect on the queues that this node leads.
	Revision() uint64
	SettlePolicies(ctx context.Context, vhost string, revision uint64) error

	// FindQueue describes one; the error is a *broker.Error with NotFound if there is none.
	FindQueue(ctx context.Context, vhost, name string) (broker.QueueInfo, error)

	// Peek looks at messages for a user and takes none; the error is a *broker.Error.
	Peek(ctx context.Context, u broker.User, vhost, name string, p broker.Peek) (broker.Peeked, error)

	// PublishOnce publishes a message for a user and waits for its confirm; the error is a
	// *broker.Error.
	PublishOnce(ctx context.Context, u broker.User, vhost string, p broker.Publish) (routed bool, confirm broker.Confirm, err error)
}

// vhost returns the vhost that the path names, which exists and which the user may
// see: one with a permission of the user's, or any for those who see everything.
func (a *API) vhost(r *http.Request, u User) (string, error) {
	name := r.PathValue("vhost")
	ok, err := a.cfg.Broker.HasVhost(r.Context(), name)
	switch {
	case err != nil:
		return "", ofBroker(err)
	case !ok:
		return "", errNotFound
	}
	return sure(a, r, func() (string, error) {
		if !u.monitors() && !a.cfg.Broker.MayEnter(atBroker(u), name) {
			return "", errNotAuthorised
		}
		return name, nil
	})
}

// sure finds something in the node's copy of the catalog. That it is not there, or not for this user, is said of an up-to-date copy only: then find is called again.
func sure[T any](a *API, r *http.Request, find func() (T, error)) (T, error) {
	found, err := find()
	if !errors.Is(err, errNotFound) && !errors.Is(err, errNotAuthorised) {
		return found, err
	}
	if err := a.cfg.Broker.UpToDate(r.Context()); err != nil {
		return found, ofBroker(err)
	}
	return find()
}

var errNotAuthorised = unauthorised("User not authorised to access object")
