package management

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/warrenmq/warren/broker"
	"github.com/warrenmq/warren/policy"
)

// smallBroker has limits, an operator policy and a name.
type smallBroker struct {
	topologyBroker
	name string
}

func (b *smallBroker) Vhosts() []string { return []string{"/", "v"} }

func (b *smallBroker) VhostLimits() []broker.LimitsOf {
	return []broker.LimitsOf{{Name: "v", Limits: map[string]int64{"max-queues": 3}}}
}

func (b *smallBroker) Policies(vhost string, operator bool) (list []*policy.Policy) {
	if vhost == "/" && operator {
		list = append(list, &policy.Policy{Spec: policy.Spec{VHost: "/", Name: "o", Pattern: ".*", Operator: true, ApplyTo: policy.Queues}})
	}
	return list
}

func (b *smallBroker) NameCluster(_ context.Context, name string) error {
	if name == "" {
		return broker.Errorf(broker.PreconditionFailed, "the name is empty")
	}
	b.name = name
	return nil
}

func (b *smallBroker) DeleteUser(_ context.Context, name string) error {
	if name == "broken" {
		return errors.New("no leader")
	}
	return broker.Errorf(broker.NotFound, "user '%s' not found", name)
}

// smallCluster is a node's own part.
type smallCluster struct{ fakeNodes }

func (smallCluster) ProductVersion() string { return "4.2.0" }

func (smallCluster) Self() string                          { return "a/1" }
func (smallCluster) NodeByName(name string) (string, bool) { return name + "/1", name != "none" }
func (smallCluster) Logins() Logins {
	return Logins{Protocols: []LoginCounts{{Protocol: "http", Attempts: 3, Failed: 1, Accepted: 2}}, Sources: []LoginSource{{Address: "10.0.0.1", User: "u", Failures: 1, LastMillis: 9}}}
}
func (smallCluster) ResetLogins() {}

type hosting struct{ Health }

func (hosting) Hosting() bool   { return true }
func (hosting) TargetSize() int { return 0 }

func TestSmall(t *testing.T) {
	b := &smallBroker{topologyBroker: topologyBroker{fakeBroker: fakeBroker{vhosts: map[string][]string{"/": {"admin"}, "v": {}}}}}
	f := newFakeCluster("a")
	a := f.apis["a"]
	a.cfg.Broker, a.cfg.Cluster, a.cfg.Health = b, smallCluster{fakeNodes{local: "a/1"}}, hosting{}
	f.nodes["a"].list = []Connection{{Name: "c1", User: "manager", VHost: "/"}, {Name: "c2", User: "other", VHost: "v"}}
	for _, tc := range []struct {
		user, method, path, body string
		status                   int
		want                     string
	}{
		{"manager", "GET", "extensions", "", 200, "[]"},
		{"manager", "GET", "extensions/", "", 200, "[]"},
		{"manager", "GET", "deprecated-features/used", "", 200, "[]"},
		{"manager", "GET", "version", "", 200, `"4.2.0"`},
		{"admin", "GET", "auth/hash_password/pw", "", 200, `{"ok":"`},
		{"manager", "GET", "auth/hash_password/pw", "", 401, "Not administrator user"},
		{"admin", "GET", "auth/attempts/a", "", 200, `[{"protocol":"http","auth_attempts":3,"auth_attempts_failed":1,"auth_attempts_succeeded":2,"auth_attempts_held_up":0}]`},
		{"admin", "GET", "auth/attempts/a/source", "", 200, `[{"remote_address":"10.0.0.1","username":"u","auth_attempts_failed":1,"last_failure":9}]`},
		{"admin", "DELETE", "auth/attempts/a", "", 204, ""},
		{"admin", "GET", "auth/attempts/none", "", 404, ""},
		{"monitor", "GET", "auth/attempts/a", "", 200, `[{"protocol":"http"`},
		{"monitor", "DELETE", "auth/attempts/a", "", 401, "Not administrator user"},
		{"manager", "GET", "auth/attempts/a", "", 401, "Not monitor user"},

		{"held", "GET", "whoami", "", 429, `{"error":"too_many_requests","reason":"Too many failed logins, try again in 2 s"}`},
		{"admin", "GET", "aliveness-test/%2F", "", 200, `{"status":"ok"}`},
		{"admin", "GET", "aliveness-test/none", "", 404, "Not Found"},
		{"manager", "GET", "healthchecks/node", "", 200, `{"status":"ok"}`},
		{"manager", "GET", "healthchecks/node/a", "", 200, `{"status":"ok"}`},
		{"manager", "GET", "healthchecks/node/b", "", 400, "ask node 'b' itself"},
		{"admin", "GET", "parameters", "", 200, `[{"value":{"apply-to":"queues","definition":{},"pattern":".*","priority":0},"vhost":"/","component":"operator_policy","name":"o"},` +
			`{"value":{"max-queues":3},"vhost":"v","component":"vhost-limits","name":"limits"}]`},
		{"admin", "GET", "parameters/vhost-limits", "", 200, `[{"value":{"max-queues":3}`},
		{"admin", "GET", "parameters/shovel", "", 200, "[]"},
		{"admin", "GET", "parameters/operator_policy/v", "", 200, "[]"},
		{"admin", "GET", "parameters/operator_policy/none", "", 404, ""},
		{"admin", "GET", "parameters/operator_policy/%2F/o", "", 200, `"name":"o"`},
		{"admin", "GET", "parameters/operator_policy/%2F/p", "", 404, ""},
		{"admin", "PUT", "parameters/federation/%2F/s", `{"value":{}}`, 400, `component federation not found`},
		{"admin", "PUT", "parameters/policy/%2F/p", `{"value":{}}`, 400, `policies may not be set using this method`},
		{"admin", "PUT", "parameters/vhost-limits/%2F/s", `{"value":{}}`, 400, `the limits of a vhost are the parameter 'limits'`},
		{"admin", "DELETE", "parameters/shovel/%2F/o", "", 404, ""},
		{"manager", "GET", "parameters", "", 401, ""},
		{"admin", "GET", "global-parameters", "", 200, `[{"name":"cluster_name","value":"shop"}]`},
		{"admin", "GET", "global-parameters/cluster_name", "", 200, `"shop"`},
		{"admin", "GET", "global-parameters/x", "", 404, ""},
		{"admin", "PUT", "global-parameters/x", `{"value":1}`, 400, "means nothing here"},
		{"admin", "PUT", "global-parameters/cluster_name", `{"value":1}`, 400, "should be a string"},
		{"admin", "PUT", "global-parameters/cluster_name", `{"value":"shop"}`, 204, ""},
		{"admin", "DELETE", "global-parameters/cluster_name", ``, 400, "a cluster has a name"},
		{"admin", "PUT", "cluster-name", `{}`, 400, "key_missing,name"},
		{"admin", "PUT", "cluster-name", `{"name":""}`, 400, "empty"},
		{"manager", "PUT", "cluster-name", `{"name":"x"}`, 401, ""},
		{"manager", "GET", "cluster-name/", "", 200, `{"name":"shop"}`},
		{"admin", "GET", "connections/username/manager", "", 200, `"name":"c1"`},
		{"manager", "GET", "connections/username/manager", "", 200, `"name":"c1"`},
		{"manager", "GET", "connections/username/other", "", 401, "User not authorised to access object"},
		{"admin", "GET", "vhosts/v/connections", "", 200, `"name":"c2"`},
		{"manager", "DELETE", "connections/username/other", "", 401, ""},
		{"admin", "DELETE", "connections/username/other", "", 204, ""},
	} {
		r := httptest.NewRequestWithContext(t.Context(), tc.method, "/api/"+tc.path, strings.NewReader(tc.body))
		r.RemoteAddr = "127.0.0.1:1"
		r.SetBasicAuth(tc.user, "secret")
		w := httptest.NewRecorder()
		a.ServeHTTP(w, r)
		if w.Code != tc.status || !strings.Contains(w.Body.String(), tc.want) {
			t.Errorf("%s %s %s: %d %s, want %d %s", tc.user, tc.method, tc.path, w.Code, w.Body, tc.status, tc.want)
		}
	}
	if b.name != "shop" {
		t.Errorf("name %q", b.name)
	}
}

// TestAudit shows what of a change is logged.
func TestAudit(t *testing.T) {
	b := &smallBroker{topologyBroker: topologyBroker{fakeBroker: fakeBroker{vhosts: map[string][]string{"/": {"admin", "other"}}}}}
	f := newFakeCluster("a")
	a := f.apis["a"]
	var log bytes.Buffer
	a.cfg.Broker, a.cfg.Logger = b, slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{ReplaceAttr: func(_ []string, at slog.Attr) slog.Attr {
		if at.Key == slog.TimeKey || at.Key == slog.LevelKey {
			return slog.Attr{}
		}
		return at
	}}))
	for _, tc := range []struct{ user, method, path, body, want string }{
		{"admin", "GET", "exchanges", "", ""},
		{"admin", "POST", "queues/%2F/q/get", `{"count":1,"ackmode":"ack_requeue_false","encoding":"auto"}`, ""},
		{"other", "PUT", "exchanges/%2F/new", `{}`, "msg=administration user=other from=127.0.0.1:1 method=PUT path=/api/exchanges/%2F/new result=done\n"},
		{"other", "PUT", "exchanges/%2F/secret", `{}`, "result=refused err=\"not_authorised: configure access to exchange 'secret'"},
		{"other", "DELETE", "users/x", "", `result=refused err="not_authorised: Not administrator user"`},
		{"admin", "DELETE", "users/x", "", `path=/api/users/x result=refused`},
		{"admin", "GET", "warren/backup?hold=61", "", `user=admin from=127.0.0.1:1 method=GET path="/api/warren/backup?hold=61" result=refused`},
		{"other", "GET", "warren/backup", "", `user=other from=127.0.0.1:1 method=GET path=/api/warren/backup result=refused`},
		{"admin", "DELETE", "users/broken", "", `path=/api/users/broken result=failed err="no leader"`},
	} {
		log.Reset()
		r := httptest.NewRequestWithContext(t.Context(), tc.method, "/api/"+tc.path, strings.NewReader(tc.body))
		r.RemoteAddr = "127.0.0.1:1"
		r.SetBasicAuth(tc.user, "secret")
		a.ServeHTTP(httptest.NewRecorder(), r)
		if got := log.String(); !strings.Contains(got, tc.want) || tc.want == "" && got != "" {
			t.Errorf("%s %s: %s\nwant %s", tc.method, tc.path, got, tc.want)
		}
	}
}
