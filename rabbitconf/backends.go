package rabbitconf

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// The longest that Warren waits for a server of logins, and that what it says counts.
const (
	httpTimeoutMax = 8 * time.Second
	httpTTLMax     = time.Hour
)

// backends are what knows users.
func (t *translator) backends() {
	for _, e := range t.takeAll("http_dispatch.auth_backends.") {
		t.todo(e, "the management API has the backends of the other ports")
	}
	behind := t.first("auth_cache.cached_backend", "auth_cache.cached_backend.authn")
	t.note(behind, "it takes the place of the cache in auth_backends: what a server says is always remembered")
	cached := backendName(behind)
	var order []string
	var from []Entry
	entries := t.takeAll("auth_backends.")
	slices.SortStableFunc(entries, func(a, b Entry) int { return cmp.Compare(rank(a.Key), rank(b.Key)) })
	for _, e := range entries {
		name := backendName(e)
		if name == "cache" {
			name = cached
		}
		_, part, _ := strings.Cut(strings.TrimPrefix(e.Key, "auth_backends."), ".")
		switch {
		case part == "authz" && name == "internal" && len(order) > 0 && order[len(order)-1] == "http":
			order[len(order)-1] = "http/internal"
			from = append(from, e)
		case part == "authz" && len(order) > 0 && order[len(order)-1] == name:
			from = append(from, e)
		case part == "authz":
			t.todo(e, "permissions are looked for where the login is, or in the cluster after a login by HTTP (http/internal)")
		case name == "internal" || name == "http":
			if !slices.Contains(order, name) {
				order = append(order, name)
			}
			from = append(from, e)
		case name == "oauth2":
			t.set("token-scopes", "on", e)
		default:
			t.todo(e, "Warren does not have it")
		}
	}
	if slices.Equal(order, []string{"internal"}) {
		for _, e := range from {
			t.note(e, isDefault)
		}
	} else if len(order) > 0 {
		t.set("auth-backends", strings.Join(order, ","), from...)
	}
	t.loginServer(slices.ContainsFunc(order, func(s string) bool { return strings.HasPrefix(s, "http") }))
}

// rank is the number of a backend: those with higher ones are asked later.
func rank(key string) int {
	number, _, _ := strings.Cut(strings.TrimPrefix(key, "auth_backends."), ".")
	n, _ := strconv.Atoi(number) // what is none comes first
	return n
}

// backendName is the short name of a backend, which has a long one, too.
func backendName(e Entry) string {
	name := strings.TrimPrefix(strings.TrimPrefix(e.Value, "rabbit_auth_backend_"), "rabbitmq_auth_backend_")
	if name == "oauth" {
		return "oauth2"
	}
	return name
}

// loginServer is the server of logins, as far as one is asked.
func (t *translator) loginServer(asked bool) {
	if !asked {
		return // families say the rest
	}
	const p = "auth_http."
	for _, c := range [][2]string{
		{"auth-http-user-url", "user_path"},
		{"auth-http-vhost-url", "vhost_path"},
		{"auth-http-resource-url", "resource_path"},
		{"auth-http-topic-url", "topic_path"},
		{"auth-http-method", "http_method"},
		{"auth-http-ca-file", "ssl_options.cacertfile"},
		{"auth-http-cert-file", "ssl_options.certfile"},
		{"auth-http-key-file", "ssl_options.keyfile"},
	} {
		t.copied(c[0], p+c[1])
	}
	t.bounded("auth-http-timeout", t.take(p+"request_timeout"), httpTimeoutMax)
	ttl := t.take("auth_cache.cache_ttl")
	t.bounded("auth-http-ttl", ttl, httpTTLMax)
	if e := t.take("auth_cache.cache_refusals"); e.Value == "true" && ttl.Key != "" {
		ttl.Line, ttl.File, ttl.Key = e.Line, e.File, e.Key
		t.bounded("auth-http-refusal-ttl", ttl, httpTTLMax)
	} else {
		t.note(e, "auth-http-refusal-ttl says for how long a refusal counts: a second, if not set")
	}
	for _, e := range t.takeAll("auth_cache.") {
		t.note(e, "answers are always remembered for auth-http-ttl")
	}
	for _, e := range t.takeAll(p) {
		switch {
		case e.Key == p+"ssl_options.verify" && e.Value == "verify_none":
			t.todo(e, "the server is always verified")
		case e.Key == p+"authorization_failure_disclosure":
			t.note(e, "reasons behind deny are told to nobody")
		default:
			t.note(e, "Warren has its own values for sockets and TLS")
		}
	}
}

// bounded sets a time in milliseconds, up to the longest there is.
func (t *translator) bounded(name string, e Entry, longest time.Duration) {
	n, ok := t.number(e)
	if !ok {
		return
	}
	if n > int(longest/time.Millisecond) {
		t.todo(e, "it is up to "+longest.String()+" here")
		n = int(longest / time.Millisecond)
	}
	t.set(name, (time.Duration(n) * time.Millisecond).String(), e)
}
