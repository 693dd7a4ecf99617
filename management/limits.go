package management

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/warrenmq/warren/auth"
	"github.com/warrenmq/warren/broker"
)

// Limits is the part of the broker that knows and changes limits; its methods are
// documented there.
type Limits interface {
	HasUser(ctx context.Context, name string) (bool, error)
	VhostLimits() []broker.LimitsOf
	UserLimits() []broker.LimitsOf
	SetVhostLimits(ctx context.Context, vhost string, limits map[string]int64, replace bool) error
	ClearVhostLimits(ctx context.Context, vhost, limit string) error
	SetUserLimits(ctx context.Context, user string, limits map[string]int64) error
	ClearUserLimits(ctx context.Context, user, limit string) error
}

// LimitsJSON are the limits of a vhost or a user, as RabbitMQ shows them: either VHost or
// User is set.
type LimitsJSON struct {
	User  string           `json:"user,omitempty"`
	VHost string           `json:"vhost,omitempty"`
	Value map[string]int64 `json:"value"`
}

// allLimits is the name that RabbitMQ gives to all limits of a user.
const allLimits = "all"

func (a *API) routeLimits() {
	a.handle("GET /api/vhost-limits", a.listVhostLimits)
	a.handle("GET /api/vhost-limits/{vhost}", a.getVhostLimits)
	a.handle("PUT /api/vhost-limits/{vhost}/{name}", a.ofAdmin(a.putVhostLimit))
	a.handle("DELETE /api/vhost-limits/{vhost}/{name}", a.ofAdmin(a.deleteVhostLimit))
	a.handle("GET /api/user-limits", a.admin(a.listUserLimits))
	a.handle("GET /api/user-limits/{user}", a.getUserLimits)
	a.handle("PUT /api/user-limits/{user}/{name}", a.ofAdmin(a.putUserLimit))
	a.handle("DELETE /api/user-limits/{user}/{name}", a.ofAdmin(a.deleteUserLimit))
	// Several limits in one step, for `warren ctl`; RabbitMQ's tools have Erlang for that.
	a.handle("PUT /api/warren/vhost-limits/{vhost}", a.ofAdmin(a.putVhostLimits))
	a.handle("DELETE /api/warren/vhost-limits/{vhost}", a.ofAdmin(a.deleteVhostLimit))
	a.handle("PUT /api/warren/user-limits/{user}", a.ofAdmin(a.putUserLimits))
	a.handle("DELETE /api/warren/user-limits/{user}", a.ofAdmin(a.deleteUserLimit))
}

// ofAdmin lets only administrators do f.
func (a *API) ofAdmin(f func(*http.Request) error) func(*http.Request, User) (any, error) {
	return a.admin(func(r *http.Request) (any, error) { return nil, f(r) })
}

func (a *API) listVhostLimits(r *http.Request, u User) (any, error) {
	return paged(r, limitsJSON(a.cfg.Broker.VhostLimits(), func(name string) (LimitsJSON, bool) {
		return LimitsJSON{VHost: name}, u.monitors() || a.cfg.Broker.MayEnter(atBroker(u), name)
	}))
}

func (a *API) getVhostLimits(r *http.Request, u User) (any, error) {
	vhost, err := a.vhost(r, u)
	if err != nil {
		return nil, err
	}
	return limitsJSON(a.cfg.Broker.VhostLimits(), func(name string) (LimitsJSON, bool) {
		return LimitsJSON{VHost: name}, name == vhost
	}), nil
}

func (a *API) listUserLimits(r *http.Request) (any, error) {
	return paged(r, limitsJSON(a.cfg.Broker.UserLimits(), func(name string) (LimitsJSON, bool) {
		return LimitsJSON{User: name}, true
	}))
}

func (a *API) getUserLimits(r *http.Request, u User) (any, error) {
	user := r.PathValue("user")
	if !u.sees(user) {
		return nil, errNotAuthorised
	}
	if ok, err := a.cfg.Broker.HasUser(r.Context(), user); err != nil || !ok {
		return nil, or(err, errNotFound)
	}
	return limitsJSON(a.cfg.Broker.UserLimits(), func(name string) (LimitsJSON, bool) {
		return LimitsJSON{User: name}, name == user
	}), nil
}

// or is err, or other if there is none.
func or(err, other error) error {
	if err != nil {
		return ofBroker(err)
	}
	return other
}

// limitsJSON turns the limits into JSON whose owner of() shows.
func limitsJSON(all []broker.LimitsOf, of func(name string) (j LimitsJSON, show bool)) []LimitsJSON {
	list := []LimitsJSON{}
	for _, l := range all {
		if j, show := of(l.Name); show {
			j.Value = l.Limits
			list = append(list, j)
		}
	}
	return list
}

// vhostThere and userThere check that what a request changes exists.
func (a *API) vhostThere(r *http.Request) (string, error) {
	name := r.PathValue("vhost")
	if ok, err := a.cfg.Broker.HasVhost(r.Context(), name); err != nil || !ok {
		return "", or(err, errNoVhost)
	}
	return name, nil
}

func (a *API) userThere(r *http.Request) (string, error) {
	name := r.PathValue("user")
	if ok, err := a.cfg.Broker.HasUser(r.Context(), name); err != nil || !ok {
		return "", or(err, errNoUser)
	}
	return name, nil
}

var (
	errNoVhost = &refusal{http.StatusNotFound, "not_found", "vhost_not_found"}
	errNoUser  = &refusal{http.StatusNotFound, "not_found", "user_not_found"}
)

func (a *API) putVhostLimit(r *http.Request) error {
	vhost, err := a.vhostThere(r)
	if err != nil {
		return err
	}
	limits, err := vhostRules.one(r)
	if err != nil {
		return err
	}
	return ofBroker(a.cfg.Broker.SetVhostLimits(r.Context(), vhost, limits, false))
}

func (a *API) putVhostLimits(r *http.Request) error {
	vhost, err := a.vhostThere(r)
	if err != nil {
		return err
	}
	limits, err := vhostRules.all(r)
	if err != nil {
		return err
	}
	return ofBroker(a.cfg.Broker.SetVhostLimits(r.Context(), vhost, limits, true))
}

// deleteVhostLimit takes the limit that the path names, or all.
func (a *API) deleteVhostLimit(r *http.Request) error {
	vhost, err := a.vhostThere(r)
	if err != nil {
		return err
	}
	return ofBroker(a.cfg.Broker.ClearVhostLimits(r.Context(), vhost, r.PathValue("name")))
}

func (a *API) putUserLimit(r *http.Request) error {
	user, err := a.userThere(r)
	if err != nil {
		return err
	}
	limits, err := userRules.one(r)
	if err != nil {
		return err
	}
	return ofBroker(a.cfg.Broker.SetUserLimits(r.Context(), user, limits))
}

func (a *API) putUserLimits(r *http.Request) error {
	user, err := a.userThere(r)
	if err != nil {
		return err
	}
	limits, err := userRules.all(r)
	if err != nil {
		return err
	}
	return ofBroker(a.cfg.Broker.SetUserLimits(r.Context(), user, limits))
}

func (a *API) deleteUserLimit(r *http.Request) error {
	user, err := a.userThere(r)
	if err != nil {
		return err
	}
	name := r.PathValue("name")
	if name == allLimits {
		name = ""
	}
	return ofBroker(a.cfg.Broker.ClearUserLimits(r.Context(), user, name))
}

// limitRules are what may be set, and how RabbitMQ words the refusal of anything else.
type limitRules struct {
	names []string
	what  string // what the limits are part of
	text  string // of a refusal, around its reason
}

var (
	vhostRules = limitRules{[]string{auth.LimitConnections, auth.LimitQueues}, "limits", "Validation failed\n\n%s\n"}
	userRules  = limitRules{[]string{auth.LimitConnections, auth.LimitChannels}, "user-limits", "%s"}
)

// one reads {"value":N}, for the limit that the path names.
func (l *limitRules) one(r *http.Request) (map[string]int64, error) {
	body, err := readObject(r)
	if err != nil {
		return nil, err
	}
	v, ok := body["value"]
	if !ok {
		return nil, badRequest("[{key_missing,value}]")
	}
	return l.check(map[string]any{r.PathValue("name"): v})
}

// all reads {"max-connections":N, …}.
func (l *limitRules) all(r *http.Request) (map[string]int64, error) {
	body, err := readObject(r)
	if err != nil {
		return nil, err
	}
	return l.check(body)
}

func (l *limitRules) check(body map[string]any) (map[string]int64, error) {
	limits := map[string]int64{}
	var unknown []string
	for _, name := range slices.Sorted(maps.Keys(body)) {
		v := body[name]
		if !slices.Contains(l.names, name) {
			unknown = append(unknown, fmt.Sprintf("{<<%q>>,%s}", name, term(v)))
			continue
		}
		number, _ := v.(json.Number)
		n, err := strconv.ParseInt(string(number), 10, 64)
		if err != nil {
			return nil, badRequest(fmt.Sprintf(l.text, fmt.Sprintf("%s should be a number, actually was %s", name, term(v))))
		}
		limits[name] = n
	}
	if len(unknown) > 0 {
		return nil, badRequest(fmt.Sprintf(l.text, fmt.Sprintf("Unrecognised terms [%s] in %s", strings.Join(unknown, ","), l.what)))
	}
	return limits, nil
}

// term shows a JSON value as RabbitMQ's refusals do, objects and arrays as JSON.
func term(v any) string {
	if s, ok := v.(string); ok {
		return fmt.Sprintf("<<%q>>", s)
	}
	raw, err := json.Marshal(v)
	if err != nil {
		return fmt.Sprint(v)
	}
	return string(raw)
}

// errNotText refuses a body in which the decoder would put other bytes in the place of those that are no text.
var errNotText = badRequest("not_json")

// readObject reads the JSON object of a request, with numbers as they were written. No
// content is an empty object. The refusals are RabbitMQ's.
func readObject(r *http.Request) (map[string]any, error) {
	raw, err := io.ReadAll(r.Body)
	if _, large := errors.AsType[*http.MaxBytesError](err); large {
		return nil, badRequest("Exceeded HTTP request body size limit")
	}
	if err != nil {
		return nil, badRequest("body not read")
	}
	if raw = bytes.TrimSpace(raw); len(raw) == 0 {
		return map[string]any{}, nil
	}
	if !utf8.Valid(raw) {
		return nil, errNotText
	}
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.UseNumber()
	var v any
	if err := dec.Decode(&v); err != nil {
		return nil, badRequest("not_json")
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return nil, badRequest("not_json") // something follows
	}
	switch v := v.(type) {
	case map[string]any:
		return v, nil
	case nil:
		return map[string]any{}, nil
	case string:
		return nil, badRequest("invalid payload: the request body JSON-decoded to a string. Is the input doubly-JSON-encoded?")
	}
	return nil, badRequest("not_json")
}
