package management

import (
	"context"
	"errors"
	"net/http"

	"github.com/warrenmq/warren/auth"
	"github.com/warrenmq/warren/broker"
)

// permissions is the part of the broker that knows and changes permissions; its methods are
// documented there.
type permissions interface {
	Permissions(vhost, user string) []*auth.Permission
	PutPermission(ctx context.Context, vhost, user, configure, write, read string) (created bool, err error)
	DeletePermission(ctx context.Context, vhost, user string) error
	TopicPermissions(vhost, user string) []*auth.TopicPermission
	PutTopicPermission(ctx context.Context, vhost, user, exchange, write, read string) (created bool, err error)
	DeleteTopicPermission(ctx context.Context, vhost, user, exchange string) error
}

// PermissionJSON is the JSON form of what a user may do in a vhost.
type PermissionJSON struct {
	User      string `json:"user"`
	VHost     string `json:"vhost"`
	Configure string `json:"configure"`
	Write     string `json:"write"`
	Read      string `json:"read"`
}

// TopicPermissionJSON is the JSON form of what a user may do with the keys of an exchange.
type TopicPermissionJSON struct {
	User     string `json:"user"`
	VHost    string `json:"vhost"`
	Exchange string `json:"exchange"`
	Write    string `json:"write"`
	Read     string `json:"read"`
}

func (a *API) routePermissions() {
	for _, k := range []struct {
		name string
		list func(r *http.Request, vhost, user string) (any, error)
	}{
		{"permissions", func(r *http.Request, vhost, user string) (any, error) {
			return paged(r, a.permissionsJSON(vhost, user))
		}},
		{"topic-permissions", func(r *http.Request, vhost, user string) (any, error) {
			return paged(r, a.topicPermissionsJSON(vhost, user, ""))
		}},
	} {
		all := a.admin(func(r *http.Request) (any, error) { return k.list(r, "", "") })
		a.handle("GET /api/"+k.name, all)
		a.handle("GET /api/users/{user}/"+k.name, a.admin(func(r *http.Request) (any, error) {
			user := r.PathValue("user")
			if ok, err := a.cfg.Broker.HasUser(r.Context(), user); err != nil || !ok {
				return nil, or(err, errNotFound)
			}
			return k.list(r, "", user)
		}))
		a.handle("GET /api/vhosts/{vhost}/"+k.name, a.admin(func(r *http.Request) (any, error) {
			vhost := r.PathValue("vhost")
			if ok, err := a.cfg.Broker.HasVhost(r.Context(), vhost); err != nil || !ok {
				return nil, or(err, errNotFound)
			}
			return k.list(r, vhost, "")
		}))
	}
	a.handle("GET /api/permissions/{vhost}/{user}", a.admin(a.getPermission))
	a.handle("PUT /api/permissions/{vhost}/{user}", a.admin(a.putPermission))
	a.handle("DELETE /api/permissions/{vhost}/{user}", a.admin(a.deletePermission))
	a.handle("GET /api/topic-permissions/{vhost}/{user}", a.admin(a.getTopicPermissions))
	a.handle("GET /api/topic-permissions/{vhost}/{user}/{exchange}", a.admin(a.getTopicPermissions))
	a.handle("PUT /api/topic-permissions/{vhost}/{user}", a.admin(a.putTopicPermission))
	a.handle("DELETE /api/topic-permissions/{vhost}/{user}", a.admin(a.deleteTopicPermissions))
	a.handle("DELETE /api/topic-permissions/{vhost}/{user}/{exchange}", a.admin(a.deleteTopicPermissions))
}

func (a *API) permissionsJSON(vhost, user string) []PermissionJSON {
	list := []PermissionJSON{}
	for _, p := range a.cfg.Broker.Permissions(vhost, user) {
		list = append(list, PermissionJSON{p.User, p.Vhost, p.Pattern(auth.Configure), p.Pattern(auth.Write), p.Pattern(auth.Read)})
	}
	return list
}

func (a *API) topicPermissionsJSON(vhost, user, exchange string) []TopicPermissionJSON {
	list := []TopicPermissionJSON{}
	for _, p := range a.cfg.Broker.TopicPermissions(vhost, user) {
		if exchange == "" || p.Exchange == exchange {
			list = append(list, TopicPermissionJSON{p.User, p.Vhost, p.Exchange, p.Pattern(auth.Write), p.Pattern(auth.Read)})
		}
	}
	return list
}

// permissionEnds returns the vhost and the user that a path names, which exist: an up-to-date
// catalog was asked for those that this node does not know.
func (a *API) permissionEnds(r *http.Request, other error) (vhost, user string, err error) {
	vhost, user = r.PathValue("vhost"), r.PathValue("user")
	if ok, err := a.cfg.Broker.HasVhost(r.Context(), vhost); err != nil || !ok {
		return "", "", or(err, other)
	}
	if ok, err := a.cfg.Broker.HasUser(r.Context(), user); err != nil || !ok {
		return "", "", or(err, other)
	}
	return vhost, user, nil
}

var errNoVhostOrUser = badRequest("vhost_or_user_not_found")

func (a *API) getPermission(r *http.Request) (any, error) {
	vhost, user, err := a.permissionEnds(r, errNotFound)
	if err != nil {
		return nil, err
	}
	return sure(a, r, func() (any, error) {
		if list := a.permissionsJSON(vhost, user); len(list) > 0 {
			return list[0], nil
		}
		return nil, errNotFound
	})
}

func (a *API) putPermission(r *http.Request) (any, error) {
	vhost, user, err := a.permissionEnds(r, errNoVhostOrUser)
	if err != nil {
		return nil, err
	}
	p, err := readStrings(r, "configure", "write", "read")
	if err != nil {
		return nil, err
	}
	isNew, err := a.cfg.Broker.PutPermission(r.Context(), vhost, user, p[0], p[1], p[2])
	return made(isNew, endGone(err))
}

// endGone says of a permission whose vhost or user went meanwhile what permissionEnds says.
func endGone(err error) error {
	if e, ok := errors.AsType[*broker.Error](err); ok && e.Kind == broker.NotFound {
		return errNoVhostOrUser
	}
	return err
}

func (a *API) deletePermission(r *http.Request) (any, error) {
	return nil, a.cfg.Broker.DeletePermission(r.Context(), r.PathValue("vhost"), r.PathValue("user"))
}

// getTopicPermissions lists a user's entries in a vhost, for one exchange or for all.
func (a *API) getTopicPermissions(r *http.Request) (any, error) {
	vhost, user, err := a.permissionEnds(r, errNotFound)
	if err != nil {
		return nil, err
	}
	return sure(a, r, func() (any, error) {
		if list := a.topicPermissionsJSON(vhost, user, r.PathValue("exchange")); len(list) > 0 {
			return list, nil
		}
		return nil, errNotFound
	})
}

func (a *API) putTopicPermission(r *http.Request) (any, error) {
	vhost, user, err := a.permissionEnds(r, errNoVhostOrUser)
	if err != nil {
		return nil, err
	}
	p, err := readStrings(r, "exchange", "write", "read")
	if err != nil {
		return nil, err
	}
	isNew, err := a.cfg.Broker.PutTopicPermission(r.Context(), vhost, user, p[0], p[1], p[2])
	return made(isNew, endGone(err))
}

func (a *API) deleteTopicPermissions(r *http.Request) (any, error) {
	return nil, a.cfg.Broker.DeleteTopicPermission(r.Context(), r.PathValue("vhost"), r.PathValue("user"), r.PathValue("exchange"))
}

// readStrings reads the values of keys, all of which a request must have.
func readStrings(r *http.Request, keys ...string) ([]string, error) {
	body, err := readObject(r)
	if err == nil {
		err = missing(body, keys...)
	}
	if err != nil {
		return nil, err
	}
	values := make([]string, len(keys))
	for i, k := range keys {
		s, ok := body[k].(string)
		if !ok {
			return nil, badRequest(k + " should be a string, actually was " + term(body[k]))
		}
		values[i] = s
	}
	return values, nil
}
