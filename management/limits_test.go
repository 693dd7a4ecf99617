package management

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/warrenmq/warren/broker"
)

// fakeLimits keeps limits by their owners, which exist.
type fakeLimits struct {
	*fakeBroker
	vhosts, users map[string]map[string]int64
}

func (f *fakeLimits) HasUser(_ context.Context, name string) (bool, error) {
	_, ok := f.users[name]
	return ok, nil
}

func (f *fakeLimits) VhostLimits() []broker.LimitsOf { return fakeList(f.vhosts) }
func (f *fakeLimits) UserLimits() []broker.LimitsOf  { return fakeList(f.users) }

func fakeList(of map[string]map[string]int64) (list []broker.LimitsOf) {
	for _, name := range slices.Sorted(maps.Keys(of)) {
		if len(of[name]) > 0 {
			list = append(list, broker.LimitsOf{Name: name, Limits: of[name]})
		}
	}
	return list
}

func (f *fakeLimits) SetVhostLimits(_ context.Context, vhost string, limits map[string]int64, replace bool) error {
	if replace {
		clear(f.vhosts[vhost])
	}
	maps.Copy(f.vhosts[vhost], limits)
	return nil
}

func (f *fakeLimits) SetUserLimits(_ context.Context, user string, limits map[string]int64) error {
	maps.Copy(f.users[user], limits)
	return nil
}

func (f *fakeLimits) ClearVhostLimits(_ context.Context, vhost, limit string) error {
	maps.DeleteFunc(f.vhosts[vhost], func(name string, _ int64) bool { return limit == "" || name == limit })
	return nil
}

func (f *fakeLimits) ClearUserLimits(_ context.Context, user, limit string) error {
	maps.DeleteFunc(f.users[user], func(name string, _ int64) bool { return limit == "" || name == limit })
	return nil
}

func TestLimits(t *testing.T) {
	f := newFakeCluster("a")
	f.apis["a"].cfg.Broker = &fakeLimits{
		&fakeBroker{vhosts: map[string][]string{"/": {"manager"}, "v": {}}},
		map[string]map[string]int64{"/": {}, "v": {}},
		map[string]map[string]int64{"guest": {}, "a/b": {}, "manager": {}},
	}
	refused := func(reason string) string { return `{"error":"bad_request","reason":"` + reason + `"}` }
	noAdmin := `{"error":"not_authorised","reason":"Not administrator user"}`
	notYours := `{"error":"not_authorised","reason":"User not authorised to access object"}`
	f.expect(t, []request{
		{"", "GET", "vhost-limits", "", 200, `[]`},
		{"", "PUT", "vhost-limits/%2F/max-connections", `{"value":5}`, 204, ``},
		{"", "PUT", "vhost-limits/%2F/max-queues", ` {"value":-1,"other":true} `, 204, ``},
		{"", "PUT", "vhost-limits/v/max-queues", `{"value":0}`, 204, ``},
		{"", "GET", "vhost-limits", "", 200, `[{"vhost":"/","value":{"max-connections":5,"max-queues":-1}},{"vhost":"v","value":{"max-queues":0}}]`},
		{"manager", "GET", "vhost-limits/", "", 200, `[{"vhost":"/","value":{"max-connections":5,"max-queues":-1}}]`},
		{"manager", "GET", "vhost-limits/v", "", 401, `{"error":"not_authorised","reason":"User not authorised to access object"}`},
		{"", "GET", "vhost-limits/v", "", 200, `[{"vhost":"v","value":{"max-queues":0}}]`},
		{"", "GET", "vhost-limits/gone", "", 404, `{"error":"Object Not Found","reason":"Not Found"}`},
		{"manager", "PUT", "vhost-limits/%2F/max-connections", `{"value":5}`, 401, noAdmin},
		{"monitor", "DELETE", "vhost-limits/%2F/max-connections", ``, 401, noAdmin},
		{"", "PUT", "vhost-limits/gone/max-queues", `{"value":5}`, 404, `{"error":"not_found","reason":"vhost_not_found"}`},
		{"", "PUT", "vhost-limits/%2F/max-queues", `{"value":"5"}`, 400, refused(`Validation failed\n\nmax-queues should be a number, actually was <<\"5\">>\n`)},
		{"", "PUT", "vhost-limits/%2F/max-queues", `{"value":1.5}`, 400, refused(`Validation failed\n\nmax-queues should be a number, actually was 1.5\n`)},
		{"", "PUT", "vhost-limits/%2F/max-queues", `{"value":null}`, 400, refused(`Validation failed\n\nmax-queues should be a number, actually was null\n`)},
		{"", "PUT", "vhost-limits/%2F/max-queues", `{"value":9223372036854775808}`, 400, refused(`Validation failed\n\nmax-queues should be a number, actually was 9223372036854775808\n`)},
		{"", "PUT", "vhost-limits/%2F/max-channels", `{"value":5}`, 400, refused(`Validation failed\n\nUnrecognised terms [{<<\"max-channels\">>,5}] in limits\n`)},
		{"", "PUT", "vhost-limits/%2F/max-queues", `{"val":5}`, 400, refused(`[{key_missing,value}]`)},
		{"", "PUT", "vhost-limits/%2F/max-queues", ``, 400, refused(`[{key_missing,value}]`)},
		{"", "PUT", "vhost-limits/%2F/max-queues", `null`, 400, refused(`[{key_missing,value}]`)},
		{"", "PUT", "vhost-limits/%2F/max-queues", `{"value":5`, 400, refused(`not_json`)},
		{"", "PUT", "vhost-limits/%2F/max-queues", `{"value":5}}`, 400, refused(`not_json`)},
		{"", "PUT", "vhost-limits/%2F/max-queues", `[5]`, 400, refused(`not_json`)},
		{"", "PUT", "vhost-limits/%2F/max-queues", `"{}"`, 400, refused(`invalid payload: the request body JSON-decoded to a string. Is the input doubly-JSON-encoded?`)},
		{"", "PUT", "vhost-limits/%2F/max-queues", strings.Repeat(" ", requestBytesMax+1), 400, refused(`Exceeded HTTP request body size limit`)},
		{"", "DELETE", "vhost-limits/%2F/max-queues", ``, 204, ``},
		{"", "DELETE", "vhost-limits/%2F/no-such-limit", ``, 204, ``},
		{"", "DELETE", "vhost-limits/gone/max-queues", ``, 404, `{"error":"not_found","reason":"vhost_not_found"}`},
		{"", "GET", "vhost-limits/%2F", "", 200, `[{"vhost":"/","value":{"max-connections":5}}]`},
		{"", "PUT", "warren/vhost-limits/%2F", `{"max-queues":7}`, 204, ``},
		{"", "GET", "vhost-limits/%2F", "", 200, `[{"vhost":"/","value":{"max-queues":7}}]`},
		{"", "PUT", "warren/vhost-limits/%2F", `{"max-queues":7,"max-quests":{"a":[1]}}`, 400, refused(`Validation failed\n\nUnrecognised terms [{<<\"max-quests\">>,{\"a\":[1]}}] in limits\n`)},
		{"manager", "DELETE", "warren/vhost-limits/%2F", ``, 401, noAdmin},
		{"", "DELETE", "warren/vhost-limits/%2F", ``, 204, ``},
		{"", "GET", "vhost-limits/%2F", "", 200, `[]`},
		{"", "POST", "vhost-limits/%2F", "", 405, `{"error":"Method Not Allowed","reason":"Method Not Allowed"}`},

		{"", "GET", "user-limits", "", 200, `[]`},
		{"", "PUT", "user-limits/guest/max-connections", `{"value":5}`, 204, ``},
		{"", "PUT", "user-limits/a%2Fb/max-channels", `{"value":0}`, 204, ``},
		{"", "GET", "user-limits", "", 200, `[{"user":"a/b","value":{"max-channels":0}},{"user":"guest","value":{"max-connections":5}}]`},
		{"", "GET", "user-limits/guest", "", 200, `[{"user":"guest","value":{"max-connections":5}}]`},
		{"monitor", "GET", "user-limits", "", 401, noAdmin},
		{"manager", "GET", "user-limits", "", 401, noAdmin},
		{"monitor", "GET", "user-limits/guest", "", 200, `[{"user":"guest","value":{"max-connections":5}}]`},
		{"monitor", "GET", "user-limits/gone", "", 404, `{"error":"Object Not Found","reason":"Not Found"}`},
		{"manager", "GET", "user-limits/guest", "", 401, notYours},
		{"manager", "GET", "user-limits/gone", "", 401, notYours},
		{"manager", "GET", "user-limits/manager", "", 200, `[]`},
		{"", "GET", "user-limits/gone", "", 404, `{"error":"Object Not Found","reason":"Not Found"}`},
		{"manager", "PUT", "user-limits/guest/max-connections", `{"value":5}`, 401, noAdmin},
		{"", "PUT", "user-limits/gone/max-channels", `{"value":5}`, 404, `{"error":"not_found","reason":"user_not_found"}`},
		{"", "PUT", "user-limits/guest/max-channels", `{"value":true}`, 400, refused(`max-channels should be a number, actually was true`)},
		{"", "PUT", "user-limits/guest/max-queues", `{"value":5}`, 400, refused(`Unrecognised terms [{<<\"max-queues\">>,5}] in user-limits`)},
		{"", "PUT", "warren/user-limits/guest", `{"max-channels":7}`, 204, ``},
		{"", "GET", "user-limits/guest", "", 200, `[{"user":"guest","value":{"max-channels":7,"max-connections":5}}]`},
		{"", "DELETE", "user-limits/guest/max-channels", ``, 204, ``},
		{"", "GET", "user-limits/guest", "", 200, `[{"user":"guest","value":{"max-connections":5}}]`},
		{"", "DELETE", "user-limits/guest/all", ``, 204, ``},
		{"", "DELETE", "warren/user-limits/a%2Fb", ``, 204, ``},
		{"", "DELETE", "user-limits/gone/all", ``, 404, `{"error":"not_found","reason":"user_not_found"}`},
		{"", "GET", "user-limits", "", 200, `[]`},
	})
}

// unsure does not know which users and vhosts there are.
type unsure struct{ Broker }

func (unsure) HasUser(context.Context, string) (bool, error) { return false, fmt.Errorf("no leader") }

func (unsure) HasVhost(context.Context, string) (bool, error) { return false, fmt.Errorf("no leader") }

func TestLimitsWithoutCatalog(t *testing.T) {
	f := newFakeCluster("a")
	f.apis["a"].cfg.Broker = unsure{}
	for _, p := range []string{"/api/vhost-limits/v/max-queues", "/api/user-limits/u/max-channels"} {
		if status, body, _ := f.do(t, "a", "admin", "DELETE", p); status != http.StatusServiceUnavailable {
			t.Errorf("%s: %d %s", p, status, body)
		}
	}
}
