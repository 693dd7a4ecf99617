package management

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"

	"github.com/warrenmq/warren/auth"
	"github.com/warrenmq/warren/broker"
	"github.com/warrenmq/warren/failpoint"
)

// users is the part of the broker that knows and changes users; its methods are documented
// there.
type users interface {
	Users() []*auth.User
	FindUser(ctx context.Context, name string) (*auth.User, error)
	PutUser(ctx context.Context, u auth.User) (created bool, err error)
	AddUser(ctx context.Context, u auth.User) error
	SetPassword(ctx context.Context, name string, hash auth.PasswordHash) error
	SetTags(ctx context.Context, name string, tags []string) error
	DeleteUser(ctx context.Context, name string) error
}

// UserJSON is the JSON form of a user, for administrators. The hash is in it as in
// RabbitMQ, whose tools carry users from cluster to cluster by it.
type UserJSON struct {
	Name             string           `json:"name"`
	PasswordHash     string           `json:"password_hash"`
	HashingAlgorithm string           `json:"hashing_algorithm"`
	Tags             []string         `json:"tags"`
	Limits           map[string]int64 `json:"limits"`
}

func (a *API) routeUsers() {
	a.handle("GET /api/whoami", func(_ *http.Request, u User) (any, error) {
		failpoint.PanicsForClient()
		return map[string]any{"name": u.Name, "tags": someTags(u.Tags)}, nil
	})
	a.handle("GET /api/users", a.admin(a.listUsers))
	a.handle("GET /api/users/without-permissions", a.admin(a.listUsersWithoutPermissions))
	a.handle("POST /api/users/bulk-delete", a.admin(a.deleteUsers))
	a.handle("GET /api/users/{user}", a.admin(a.getUser))
	a.handle("GET /api/users/{user}/queues", a.admin(a.listUsersQueues))
	a.handle("PUT /api/users/{user}", a.admin(a.putUser))
	a.handle("DELETE /api/users/{user}", a.admin(a.deleteUser))
	// One thing of a user at a time, for `warren ctl`; RabbitMQ's tools have Erlang for that.
	a.handle("PUT /api/warren/users/{user}", a.admin(a.addUser))
	a.handle("PUT /api/warren/users/{user}/tags", a.admin(a.setTags))
	a.handle("PUT /api/warren/users/{user}/password", a.admin(a.setPassword))
	a.handle("DELETE /api/warren/users/{user}/password", a.admin(a.clearPassword))
	a.handle("POST /api/warren/users/{user}/authenticate", a.admin(a.authenticateUser))
}

// admin lets only administrators do f.
func (a *API) admin(f func(*http.Request) (any, error)) func(*http.Request, User) (any, error) {
	return func(r *http.Request, u User) (any, error) {
		if !u.may(auth.TagAdministrator) {
			return nil, unauthorised("Not administrator user")
		}
		body, err := f(r)
		if err != nil {
			return nil, ofBroker(err)
		}
		return body, nil
	}
}

// made is the answer to a PUT: 201 for something new, 204 for a change.
func made(isNew bool, err error) (any, error) {
	if err == nil && isNew {
		return created{}, nil
	}
	return nil, err
}

func userJSON(u *auth.User) UserJSON {
	limits := map[string]int64{}
	u.Limits.Each(func(name string, l *auth.Limit) {
		if l.Set {
			limits[name] = l.Value
		}
	})
	return UserJSON{u.Name, string(u.PasswordHash), u.PasswordHash.Algorithm(), someTags(u.Tags), limits}
}

// someTags is an array in JSON even if there are none.
func someTags(tags []string) []string {
	if tags == nil {
		return []string{}
	}
	return tags
}

func (a *API) listUsers(r *http.Request) (any, error) {
	list := []UserJSON{}
	for _, u := range a.cfg.Broker.Users() {
		list = append(list, userJSON(u))
	}
	return paged(r, list)
}

func (a *API) listUsersWithoutPermissions(r *http.Request) (any, error) {
	permitted := map[string]bool{}
	for _, p := range a.cfg.Broker.Permissions("", "") {
		permitted[p.User] = true
	}
	list := []UserJSON{}
	for _, u := range a.cfg.Broker.Users() {
		if !permitted[u.Name] {
			list = append(list, userJSON(u))
		}
	}
	return paged(r, list)
}

func (a *API) getUser(r *http.Request) (any, error) {
	u, err := a.cfg.Broker.FindUser(r.Context(), r.PathValue("user"))
	if err != nil {
		return nil, err
	}
	return userJSON(u), nil
}

// listUsersQueues lists what a user has declared.
func (a *API) listUsersQueues(r *http.Request) (any, error) {
	u, err := a.cfg.Broker.FindUser(r.Context(), r.PathValue("user"))
	if err != nil {
		return nil, err
	}
	return a.queueList(r, a.cfg.Broker.QueuesDeclaredBy(u.Name))
}

// putUser makes or replaces a user. As in RabbitMQ, a user without a password in the
// request has none from then on.
func (a *API) putUser(r *http.Request) (any, error) {
	body, err := readObject(r)
	if err != nil {
		return nil, err
	}
	u := auth.User{Name: r.PathValue("user")}
	if u.PasswordHash, _, err = a.passwordOf(r, body); err != nil {
		return nil, err
	}
	if _, ok := body["tags"]; !ok {
		return nil, badRequest("tags_not_present")
	}
	if u.Tags, err = tagsOf(body); err != nil {
		return nil, err
	}
	return made(a.cfg.Broker.PutUser(r.Context(), u))
}

// passwordOf returns the hash of the password of a request, or the hash that it has.
func (a *API) passwordOf(r *http.Request, body map[string]any) (hash auth.PasswordHash, given bool, err error) {
	_, hasPassword := body["password"]
	_, hasHash := body["password_hash"]
	switch {
	case hasPassword && hasHash:
		return "", true, badRequest("both_password_and_password_hash_are_provided")
	case hasPassword:
		password, ok := body["password"].(string)
		if !ok {
			return "", true, badRequest("password should be a string")
		}
		hash, err = a.hash(r, password)
		return hash, true, err
	case !hasHash:
		return "", false, nil
	}
	text, ok := body["password_hash"].(string)
	if !ok {
		return "", true, badRequest("password_hash should be a string")
	}
	hash = auth.PasswordHash(text)
	if err := hash.Validate(); err != nil {
		return "", true, badRequest(err.Error())
	}
	if algorithm, ok := body["hashing_algorithm"]; ok {
		if name, isText := algorithm.(string); text != "" && (!isText || hash.CheckAlgorithm(name) != nil) {
			return "", true, badRequest(fmt.Sprintf("hashing_algorithm is %s, and the hash one of %s", term(algorithm), hash.Algorithm()))
		}
	}
	return hash, true, nil
}

// hash hashes a new password as this node is set to.
func (a *API) hash(r *http.Request, password string) (auth.PasswordHash, error) {
	hash, err := a.cfg.HashPassword(r.Context(), password, r.RemoteAddr)
	if _, busy := errors.AsType[*Busy](err); err != nil && !busy {
		return "", badRequest(err.Error())
	}
	return hash, err
}

// tagsOf returns the tags of a request: an array, or in the older form a text with commas.
func tagsOf(body map[string]any) ([]string, error) {
	switch v := body["tags"].(type) {
	case string:
		return auth.ParseTags(v), nil
	case []any:
		tags := make([]string, len(v))
		for i := range v {
			s, ok := v[i].(string)
			if !ok {
				return nil, badRequest("tags should be strings, actually was " + term(v[i]))
			}
			tags[i] = strings.TrimSpace(s)
		}
		return tags, nil
	}
	return nil, badRequest("tags should be a string or a list, actually was " + term(body["tags"]))
}

func (a *API) deleteUser(r *http.Request) (any, error) {
	return nil, a.cfg.Broker.DeleteUser(r.Context(), r.PathValue("user"))
}

// deleteUsers deletes those that exist of many.
func (a *API) deleteUsers(r *http.Request) (any, error) {
	body, err := readObject(r)
	if err == nil {
		err = missing(body, "users")
	}
	if err != nil {
		return nil, err
	}
	list, ok := body["users"].([]any)
	if !ok || slices.ContainsFunc(list, func(v any) bool { _, ok := v.(string); return !ok }) {
		return nil, badRequest("users should be a list of strings, actually was " + term(body["users"]))
	}
	for _, v := range list {
		name, _ := v.(string) // all are
		err := a.cfg.Broker.DeleteUser(r.Context(), name)
		if e, ok := errors.AsType[*broker.Error](err); err != nil && (!ok || e.Kind != broker.NotFound) {
			return nil, err
		}
	}
	return nil, nil
}

// missing refuses a body without all of the keys, in RabbitMQ's words.
func missing(body map[string]any, keys ...string) error {
	var lacks []string
	for _, k := range keys {
		if _, ok := body[k]; !ok {
			lacks = append(lacks, "{key_missing,"+k+"}")
		}
	}
	if len(lacks) == 0 {
		return nil
	}
	return badRequest("[" + strings.Join(lacks, ",") + "]")
}

// addUser makes a user that must not exist yet.
func (a *API) addUser(r *http.Request) (any, error) {
	body, err := readObject(r)
	if err != nil {
		return nil, err
	}
	u := auth.User{Name: r.PathValue("user")}
	if u.PasswordHash, _, err = a.passwordOf(r, body); err != nil {
		return nil, err
	}
	if _, ok := body["tags"]; ok {
		if u.Tags, err = tagsOf(body); err != nil {
			return nil, err
		}
	}
	if err := a.cfg.Broker.AddUser(r.Context(), u); err != nil {
		return nil, err
	}
	return created{}, nil
}

func (a *API) setTags(r *http.Request) (any, error) {
	body, err := readObject(r)
	if err == nil {
		err = missing(body, "tags")
	}
	if err != nil {
		return nil, err
	}
	tags, err := tagsOf(body)
	if err != nil {
		return nil, err
	}
	return nil, a.cfg.Broker.SetTags(r.Context(), r.PathValue("user"), tags)
}

func (a *API) setPassword(r *http.Request) (any, error) {
	body, err := readObject(r)
	if err != nil {
		return nil, err
	}
	hash, given, err := a.passwordOf(r, body)
	if err != nil {
		return nil, err
	}
	if !given {
		return nil, missing(body, "password")
	}
	return nil, a.cfg.Broker.SetPassword(r.Context(), r.PathValue("user"), hash)
}

func (a *API) clearPassword(r *http.Request) (any, error) {
	return nil, a.cfg.Broker.SetPassword(r.Context(), r.PathValue("user"), "")
}

// authenticateUser tells whether somebody could log in: {"authenticated":true|false}.
func (a *API) authenticateUser(r *http.Request) (any, error) {
	body, err := readObject(r)
	if err == nil {
		err = missing(body, "password")
	}
	if err != nil {
		return nil, err
	}
	password, ok := body["password"].(string)
	if !ok {
		return nil, badRequest("password should be a string")
	}
	// Where the user comes from is not known here; this asks about the password, which may not be guessed here either.
	_, err = a.cfg.Login(r.Context(), r.PathValue("user"), password, net.JoinHostPort("127.0.0.1", "0"))
	if held, ok := errors.AsType[*HeldUp](err); ok {
		return nil, held
	}
	if busy, ok := errors.AsType[*Busy](err); ok {
		return nil, busy
	}
	return map[string]bool{"authenticated": err == nil}, nil
}
