package ctl

import (
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
)

func TestLimitVerbs(t *testing.T) {
	const two = `{"max-connections":100, "max-queues":-1}`
	const listed = `[{"vhost":"/","value":{"max-queues":3,"max-connections":5}},{"vhost":"a\tb","value":{"max-queues":0}}]`
	const users = `[{"user":"guest","value":{"max-connections":2,"max-channels":7}}]`
	noUser := "Error:\nUser \"gone\" does not exist\n"
	checkVerbs(t, []verbCase{
		{
			args: []string{"set_vhost_limits", two}, method: "PUT", path: "/api/warren/vhost-limits/%2F", body: `{"max-connections":100,"max-queues":-1}`,
			status: 204, out: `Setting vhost limits to "` + two + `" for vhost "/" ...` + "\n",
		},
		{args: []string{"-q", "set_vhost_limits", "-p", "a/b", "{}"}, method: "PUT", path: "/api/warren/vhost-limits/a%2Fb", body: "{}", status: 204},
		{
			args: []string{"clear_vhost_limits", "-p", "v"}, method: "DELETE", path: "/api/warren/vhost-limits/v",
			status: 204, out: "Clearing vhost \"v\" limits ...\n",
		},
		{
			args: []string{"list_vhost_limits"}, method: "GET", path: "/api/vhost-limits/%2F", status: 200,
			answer: `[{"vhost":"/","value":{"max-queues":3,"max-connections":5}}]`,
			out:    "Listing limits for vhost \"/\" ...\n" + `{"max-connections":5,"max-queues":3}` + "\n",
		},
		{args: []string{"list_vhost_limits", "-q"}, method: "GET", path: "/api/vhost-limits/%2F", status: 200, answer: "[]"},
		{args: []string{"list_vhost_limits", "--formatter=json"}, method: "GET", path: "/api/vhost-limits/%2F", status: 200, answer: "[]", out: "[]\n"},
		{
			args: []string{"list_vhost_limits", "--global"}, method: "GET", path: "/api/vhost-limits", status: 200, answer: listed,
			out: "Listing limits for all vhosts ...\nvhost\tlimits\n/\t{\"max-connections\":5,\"max-queues\":3}\na\\tb\t{\"max-queues\":0}\n",
		},
		{
			args: []string{"list_vhost_limits", "--global", "--formatter", "json"}, method: "GET", path: "/api/vhost-limits", status: 200, answer: listed,
			out: "[\n" + `{"vhost":"/","limits":"{\"max-connections\":5,\"max-queues\":3}"},` + "\n" + `{"vhost":"a\tb","limits":"{\"max-queues\":0}"}` + "\n]\n",
		},
		{
			args: []string{"set_user_limits", "a b", `{"max-channels":3}`}, method: "PUT", path: "/api/warren/user-limits/a%20b", body: `{"max-channels":3}`,
			status: 204, out: `Setting user limits to "{"max-channels":3}" for user "a b" ...` + "\n",
		},
		{
			args: []string{"clear_user_limits", "u", "max-channels"}, method: "DELETE", path: "/api/user-limits/u/max-channels",
			status: 204, out: "Clearing \"max-channels\" limit for user \"u\" ...\n",
		},
		{
			args: []string{"clear_user_limits", "u", "all"}, method: "DELETE", path: "/api/user-limits/u/all",
			status: 204, out: "Clearing all limits for user \"u\" ...\n",
		},
		{
			args: []string{"list_user_limits"}, method: "GET", path: "/api/user-limits/guest", status: 200, answer: users,
			out: "Listing limits for user \"guest\" ...\n" + `{"max-channels":7,"max-connections":2}` + "\n",
		},
		{
			args: []string{"list_user_limits", "--formatter", "json"}, method: "GET", path: "/api/user-limits/guest", status: 200, answer: users,
			out: `{"message":"{\"max-channels\":7,\"max-connections\":2}"}` + "\n",
		},
		{args: []string{"list_user_limits", "-q", "--user", "a/b"}, method: "GET", path: "/api/user-limits/a%2Fb", status: 200, answer: "[]", out: "{}\n"},
		{
			args: []string{"list_user_limits", "--global", "-q"}, method: "GET", path: "/api/user-limits", status: 200, answer: users,
			out: "user\tlimits\nguest\t{\"max-channels\":7,\"max-connections\":2}\n",
		},
		{
			args: []string{"set_vhost_limits", `{"foo":"bar"}`}, method: "PUT", path: "/api/warren/vhost-limits/%2F", body: `{"foo":"bar"}`, status: 400,
			answer: `{"error":"bad_request","reason":"Validation failed\n\nUnrecognised terms [{<<\"foo\">>,<<\"bar\">>}] in limits\n"}`,
			code:   ExitSoftware, failed: "Error:\nValidation failed\n\nUnrecognised terms [{<<\"foo\">>,<<\"bar\">>}] in limits\n",
		},
		{args: []string{"set_vhost_limits", "-p", "w", "{}"}, method: "PUT", path: "/api/warren/vhost-limits/w", body: "{}", status: 404, code: ExitData, failed: "Virtual host 'w' does not exist"},
		{args: []string{"clear_vhost_limits", "-p", "w"}, method: "DELETE", path: "/api/warren/vhost-limits/w", status: 404, code: ExitData, failed: "Virtual host 'w' does not exist"},
		{args: []string{"list_vhost_limits", "-p", "w"}, method: "GET", path: "/api/vhost-limits/w", status: 404, code: ExitData, failed: "Virtual host 'w' does not exist"},
		{args: []string{"set_user_limits", "gone", "{}"}, method: "PUT", path: "/api/warren/user-limits/gone", body: "{}", status: 404, code: ExitNoUser, failed: noUser},
		{args: []string{"clear_user_limits", "gone", "all"}, method: "DELETE", path: "/api/user-limits/gone/all", status: 404, code: ExitNoUser, failed: noUser},
		{args: []string{"list_user_limits", "--user", "gone"}, method: "GET", path: "/api/user-limits/gone", status: 404, code: ExitNoUser, failed: noUser},
		{args: []string{"set_vhost_limits", "bad_value"}, code: ExitData, failed: "Error:\nCould not parse JSON document: "},
		{args: []string{"set_vhost_limits", `{"max-queues":1} {}`}, code: ExitData, failed: "Could not parse JSON document: "},
		{args: []string{"set_user_limits", "u", "[1]"}, code: ExitData, failed: "Could not parse JSON document: "},
		{args: []string{"set_user_limits", "u", "null"}, code: ExitData, failed: "Could not parse JSON document: null is no object"},
		{args: []string{"set_vhost_limits"}, code: ExitUsage, failed: "not enough arguments"},
		{args: []string{"set_vhost_limits", "v", "{}"}, code: ExitUsage, failed: "too many arguments"},
		{args: []string{"set_user_limits", "{}"}, code: ExitUsage, failed: "not enough arguments"},
		{args: []string{"clear_user_limits", "u"}, code: ExitUsage, failed: "not enough arguments"},
		{args: []string{"clear_vhost_limits", "v"}, code: ExitUsage, failed: "too many arguments"},
		{args: []string{"list_user_limits", "u"}, code: ExitUsage, failed: "too many arguments"},
	})
}

// The verb's own --user does not hide who asks.
func TestListUserLimitsAsks(t *testing.T) {
	var path, asks string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		path = r.URL.EscapedPath()
		asks, _, _ = r.BasicAuth()
		_, _ = io.WriteString(w, "[]")
	}))
	defer server.Close()
	vars := map[string]string{"WARREN_CTL_USER": "admin", "WARREN_CTL_URL": server.URL}
	cmd := Command(Env{Stdout: io.Discard, Lookup: func(name string) (string, bool) { v, ok := vars[name]; return v, ok }})
	cmd.SetArgs([]string{"list_user_limits", "--user", "u"})
	if err := cmd.Execute(); err != nil || asks != "admin" || path != "/api/user-limits/u" {
		t.Errorf("%s asks for %s: %v", asks, path, err)
	}
}
