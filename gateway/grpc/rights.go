package grpc

import (
	"context"
	"errors"
	"slices"
	"strings"

	"google.golang.org/grpc/codes"

	"github.com/warrenmq/warren/auth"
	"github.com/warrenmq/warren/broker"
)

// watcherTags are those of users who may see more than what a client of AMQP does.
var watcherTags = []string{auth.TagManagement, auth.TagPolicymaker, auth.TagMonitoring, auth.TagAdministrator}

// may tells whether the caller has one of the tags.
func (c caller) may(tags ...string) bool {
	return slices.ContainsFunc(tags, func(t string) bool { return slices.Contains(c.user.Tags, t) })
}

// needs refuses callers that have none of the tags.
func needs(ctx context.Context, tags ...string) error {
	if c := callerOf(ctx); !c.may(tags...) {
		return refuse(codes.PermissionDenied, "ACCESS_REFUSED", "user '%s' has none of the tags %s", c.user.Name, strings.Join(tags, ", "))
	}
	return nil
}

// looks checks that the caller may look around in a virtual host, and gives its name. As over HTTP it takes a permission there or a tag
// of those who see everything, and is no connection that counts: an operator can look into what is full.
func (s *Server) looks(ctx context.Context, vhost string) (string, error) {
	if err := needs(ctx, watcherTags...); err != nil {
		return "", err
	}
	return s.vhost(ctx, vhost, callerOf(ctx).may(auth.TagMonitoring, auth.TagAdministrator))
}

// vhost gives the name of a virtual host that exists, and that the caller may enter if it does not see everything.
func (s *Server) vhost(ctx context.Context, name string, seesAll bool) (string, error) {
	if err := checkName("vhost", name); err != nil {
		return "", err
	}
	name = vhostOf(name)
	ok, err := s.broker.HasVhost(ctx, name)
	user := callerOf(ctx).user
	if err == nil && ok && !seesAll && !s.broker.MayEnter(user, name) {
		err = s.broker.UpToDate(ctx) // an old copy of the catalog refuses nobody
	}
	switch {
	case err != nil:
		return "", err
	case !ok:
		return "", broker.Errorf(broker.NotAllowed, "vhost %s not found", name)
	case !seesAll && !s.broker.MayEnter(user, name):
		return "", broker.Errorf(broker.NotAllowed, "access to vhost '%s' refused for user '%s'", name, user.Name)
	}
	return name, nil
}

// audited does what changes something, and logs it: who, from where, what, on what, and how it ended, as the management API does.
func audited[T any](ctx context.Context, s *Server, method string, on []any, do func() (T, error)) (resp T, err error) {
	err = errFault
	defer func() { s.audit(ctx, method, on, err) }()
	return do()
}

// errFault is what the line says of a call that a fault of the node ended (package contain).
var errFault = errors.New("a fault of this node ended the call; what it asks for may be done in part")

// audit writes the line of a call that has ended.
func (s *Server) audit(ctx context.Context, method string, on []any, err error) {
	c, result := callerOf(ctx), "done"
	switch {
	case refused(err):
		result = "refused"
	case err != nil:
		result = "failed"
	}
	attrs := []any{"user", c.user.Name, "from", c.peer.String(), "method", protocolName, "path", method, "result", result}
	for _, what := range on {
		if name, ok := what.(string); ok {
			what = brief(name) // nobody has looked at it if the call was refused before
		}
		attrs = append(attrs, what)
	}
	if err != nil {
		attrs = append(attrs, "err", err)
	}
	s.log.Info("administration", attrs...)
}

// refused tells whether an error is an answer, and no trouble of the cluster.
func refused(err error) bool {
	if e, ok := errors.AsType[*broker.Error](err); ok {
		return e.Kind != broker.Internal && e.Kind != broker.Unavailable && e.Kind != broker.TimedOut
	}
	_, ok := errors.AsType[*refusal](err)
	return ok
}
