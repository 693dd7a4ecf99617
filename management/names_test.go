package management

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/warrenmq/warren/auth"
	"github.com/warrenmq/warren/broker"
)

// namesBroker has everything by the name 'a' and by that of each case, and says whose name it was asked to change.
type namesBroker struct{ topologyBroker }

func (b *namesBroker) HasVhost(context.Context, string) (bool, error) { return true, nil }
func (b *namesBroker) HasUser(context.Context, string) (bool, error)  { return true, nil }
func (b *namesBroker) MayEnter(broker.User, string) bool              { return true }

func (b *namesBroker) DeleteVhost(_ context.Context, name string) error {
	b.says("%q", name)
	return nil
}

func (b *namesBroker) PutVhost(_ context.Context, name string, _ broker.VhostSettings) (bool, error) {
	b.says("%q", name)
	return true, nil
}

func (b *namesBroker) PutPermission(_ context.Context, _, user, _, _, _ string) (bool, error) {
	return false, broker.Errorf(broker.NotFound, "no user '%s'", user)
}

func (b *namesBroker) DeleteUser(_ context.Context, name string) error {
	b.says("%q", name)
	return nil
}

func (b *namesBroker) SetTags(_ context.Context, name string, _ []string) error {
	b.says("%q", name)
	return nil
}

func (b *namesBroker) DeletePolicy(_ context.Context, vhost, name string, _ bool) error {
	b.says("%q in %q", name, vhost)
	return nil
}

func (b *namesBroker) Revision() uint64                                     { return 0 }
func (b *namesBroker) SettlePolicies(context.Context, string, uint64) error { return nil }

func (b *namesBroker) DropQueue(_ context.Context, _ broker.User, vhost, name string, _, _ bool) (uint32, error) {
	b.says("%q in %q", name, vhost)
	return 0, nil
}

func (b *namesBroker) DropExchange(_ context.Context, _ broker.User, vhost, name string, _ bool) error {
	b.says("%q in %q", name, vhost)
	return nil
}

func (b *namesBroker) PutBinding(_ context.Context, _ broker.User, vhost string, bd broker.Binding) error {
	b.says("%q to %q in %q", bd.Source, bd.Destination, vhost)
	return nil
}

func (b *namesBroker) DropBinding(_ context.Context, _ broker.User, _ string, bd broker.Binding) error {
	b.says("%q", bd.Key)
	return nil
}

func (b *namesBroker) DeletePermission(_ context.Context, vhost, user string) error {
	b.says("%q in %q", user, vhost)
	return nil
}

func (b *namesBroker) DeleteTopicPermission(_ context.Context, vhost, user, exchange string) error {
	b.says("%q of %q in %q", exchange, user, vhost)
	return nil
}

func (b *namesBroker) Permissions(string, string) []*auth.Permission { return nil }

// namesServer serves the API as a node does, behind a mux, and returns what sends requests as they are written.
func namesServer(t *testing.T) (*namesBroker, func(method, path, body string) int) {
	b := &namesBroker{}
	f := newFakeCluster("a")
	f.apis["a"].cfg.Broker = b
	mux := http.NewServeMux()
	mux.Handle("/api/", f.apis["a"])
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	return b, func(method, path, body string) int {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), method, server.URL+"/api/"+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		req.SetBasicAuth("admin", "secret")
		resp, err := server.Client().Transport.RoundTrip(req) // a redirect is an answer
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		return resp.StatusCode
	}
}

// TestNamesInPaths: a name with slashes, dots or what else means something in paths addresses its own object, never that of a
// name beside it.
func TestNamesInPaths(t *testing.T) {
	b, do := namesServer(t)
	for _, name := range []string{"a", "a/", "a//", "/a", "/", "//", "a/b", "a%2F", "a/\x00", "é/", "+ ;/", ".", "..", "../", "..."} {
		part := url.PathEscape(name)
		if name == "." || name == ".." {
			part = escaped(name)
		}
		for _, tc := range []struct{ method, path, body, want string }{
			{"DELETE", "queues/%2F/" + part, "", fmt.Sprintf("%q in %q", name, "/")},
			{"DELETE", "queues/" + part + "/q", "", fmt.Sprintf("%q in %q", "q", name)},
			{"DELETE", "queues/" + part + "/" + part, "", fmt.Sprintf("%q in %q", name, name)},
			{"DELETE", "exchanges/%2F/" + part, "", fmt.Sprintf("%q in %q", name, "/")},
			{"DELETE", "vhosts/" + part, "", fmt.Sprintf("%q", name)},
			{"DELETE", "users/" + part, "", fmt.Sprintf("%q", name)},
			{"PUT", "warren/users/" + part + "/tags", `{"tags":[]}`, fmt.Sprintf("%q", name)},
			{"DELETE", "policies/%2F/" + part, "", fmt.Sprintf("%q in %q", name, "/")},
			{"DELETE", "permissions/%2F/" + part, "", fmt.Sprintf("%q in %q", name, "/")},
			{"DELETE", "topic-permissions/%2F/u/" + part, "", fmt.Sprintf("%q of %q in %q", name, "u", "/")},
			{"DELETE", "topic-permissions/%2F/" + part, "", fmt.Sprintf("%q of %q in %q", "", name, "/")},
			{"POST", "bindings/%2F/e/x/q/" + part, "{}", fmt.Sprintf("%q to %q in %q", "x", name, "/")},
		} {
			for _, end := range []string{"", "/"} {
				b.last = ""
				if status := do(tc.method, tc.path+end, tc.body); status/100 != 2 || b.last != tc.want {
					t.Errorf("%s %s%s: %d, changed %s, want %s", tc.method, tc.path, end, status, b.last, tc.want)
				}
			}
		}
	}
}

// TestOperatorMakesVhost: the control socket's virtual host needs no permission of a user that does not exist.
func TestOperatorMakesVhost(t *testing.T) {
	b := &namesBroker{}
	a := newFakeCluster("a").apis["a"]
	a.cfg.Broker = b
	w := httptest.NewRecorder()
	a.ServeHTTP(w, AsOperator(httptest.NewRequestWithContext(t.Context(), "PUT", "/api/vhosts/v", http.NoBody)))
	if w.Code != 201 || b.last != `"v"` {
		t.Errorf("%d %s, %s", w.Code, w.Body, b.last)
	}
}

// TestMarkInPath: what stands for "/" within the API does not come in.
func TestMarkInPath(t *testing.T) {
	b, do := namesServer(t)
	for _, path := range []string{"vhosts/%00", "vhosts/%00/", "queues/%00/q", "queues/%2F/%00", "users/%00"} {
		if status := do("DELETE", path, ""); status != 404 || b.last != "" {
			t.Errorf("DELETE %s: %d, changed %s", path, status, b.last)
		}
	}
}

// TestUncleanPaths: a path that a mux would clean is answered with 404, and sends nobody to another object.
func TestUncleanPaths(t *testing.T) {
	a := newFakeCluster("a").apis["a"]
	a.cfg.Broker = &namesBroker{}
	for _, path := range []string{"/api/queues/%2F/..", "/api/queues/%2F/../x", "/api/vhosts/./x", "/api/vhosts//x", "/api/vhosts/x//", "//api/vhosts/x", "/x/../api/vhosts/x"} {
		r := httptest.NewRequestWithContext(t.Context(), "DELETE", "http://h"+path, http.NoBody)
		r.RemoteAddr = "127.0.0.1:1"
		r.SetBasicAuth("admin", "secret")
		w := httptest.NewRecorder()
		a.ServeHTTP(w, r)
		if w.Code != 404 || !strings.Contains(w.Body.String(), `"Not Found"`) {
			t.Errorf("%s: %d %s", path, w.Code, w.Body)
		}
	}
}
