package management

import (
	"context"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/warrenmq/warren/broker"
	"github.com/warrenmq/warren/policy"
)

// policyBroker keeps policies.
type policyBroker struct {
	fakeBroker
	sets    map[string]*policy.Set
	settled uint64
}

func (f *policyBroker) Vhosts() (names []string) {
	for name := range f.vhosts {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

func (f *policyBroker) Policies(vhost string, operator bool) []*policy.Policy {
	return f.sets[vhost].List(operator)
}

func (f *policyBroker) PutPolicy(_ context.Context, s policy.Spec) (bool, error) {
	p, err := policy.New(s)
	if err != nil {
		return false, err
	}
	old := f.sets[s.VHost].Find(s.Operator, s.Name)
	f.sets[s.VHost] = f.sets[s.VHost].With(p, 1)
	return old == nil, nil
}

func (f *policyBroker) DeletePolicy(_ context.Context, vhost, name string, operator bool) error {
	if f.sets[vhost].Find(operator, name) == nil {
		return broker.Errorf(broker.NotFound, "no policy")
	}
	f.sets[vhost] = f.sets[vhost].Without(operator, name, 2)
	return nil
}

func (f *policyBroker) Revision() uint64 { return 7 }

func (f *policyBroker) SettlePolicies(_ context.Context, _ string, revision uint64) error {
	f.settled = revision
	return nil
}

func TestPolicies(t *testing.T) {
	f := newFakeCluster("a", "b")
	other := &policyBroker{}
	f.apis["b"].cfg.Broker = other
	f.apis["a"].cfg.Broker = &policyBroker{
		fakeBroker: fakeBroker{vhosts: map[string][]string{"/": {"maker", "manager"}, "v": {}}},
		sets:       map[string]*policy.Set{},
	}
	send := func(user, method, path, body string) (int, string) {
		t.Helper()
		r := httptest.NewRequestWithContext(t.Context(), method, path, strings.NewReader(body))
		r.RemoteAddr = "127.0.0.1:1"
		r.SetBasicAuth(user, "secret")
		w := httptest.NewRecorder()
		f.apis["a"].ServeHTTP(w, r)
		return w.Code, w.Body.String()
	}
	const dlx = `{"pattern":".*","definition":{"dead-letter-exchange":"my-dlx","message-ttl":5},"apply-to":"queues"}`
	const dlxJSON = `{"vhost":"/","name":"DLX","pattern":".*","apply-to":"queues","definition":{"dead-letter-exchange":"my-dlx","message-ttl":5},"priority":0}`
	const limit = `{"pattern":"^q","definition":{"max-length":5},"priority":-3,"vhost":"elsewhere","name":"other"}`
	const limitJSON = `{"vhost":"/","name":"cap","pattern":"^q","apply-to":"all","definition":{"max-length":5},"priority":-3}`
	invalid := func(reason string) string {
		return `{"error":"bad_request","reason":"Validation failed\n\n` + reason + `\n"}`
	}
	for _, tc := range []struct {
		user, method, path, body string
		status                   int
		want                     string // the whole answer, or a part of it with "…" in front
	}{
		{"admin", "GET", "/api/policies", "", 200, "[]"},
		{"admin", "PUT", "/api/policies/%2F/DLX", dlx, 201, ""},
		{"maker", "PUT", "/api/policies/%2F/DLX", dlx, 204, ""},
		{"maker", "GET", "/api/policies/%2F/DLX", "", 200, dlxJSON},
		{"maker", "GET", "/api/policies/%2F", "", 200, "[" + dlxJSON + "]"},
		{"maker", "GET", "/api/policies", "", 200, "[" + dlxJSON + "]"},
		{"admin", "GET", "/api/operator-policies/", "", 200, "[]"},
		{"admin", "PUT", "/api/operator-policies/%2F/cap", limit, 201, ""},
		{"admin", "GET", "/api/operator-policies/%2F/cap", "", 200, limitJSON},
		{"admin", "GET", "/api/operator-policies", "", 200, "[" + limitJSON + "]"},
		{"admin", "GET", "/api/policies/%2F/cap", "", 404, "…Not Found"},
		{"admin", "GET", "/api/policies/w", "", 404, "…Not Found"},
		{"admin", "PUT", "/api/policies/w/p", dlx, 404, "…Not Found"},
		{"admin", "DELETE", "/api/policies/%2F/none", "", 404, "…Not Found"},

		{"manager", "GET", "/api/policies", "", 200, "[" + dlxJSON + "]"},
		{"manager", "GET", "/api/policies/%2F", "", 200, "[" + dlxJSON + "]"},
		{"manager", "GET", "/api/policies/v", "", 401, "…User not authorised to access object"},
		{"manager", "GET", "/api/policies/%2F/DLX", "", 401, "…not authorised"},
		{"monitor", "GET", "/api/policies", "", 200, "[" + dlxJSON + "]"},
		{"monitor", "GET", "/api/policies/%2F/DLX", "", 401, "…not authorised"},
		{"plain", "GET", "/api/policies", "", 401, "…Not management user"},
		{"manager", "PUT", "/api/policies/%2F/p", dlx, 401, "…not authorised"},
		{"manager", "DELETE", "/api/policies/%2F/DLX", "", 401, "…not authorised"},
		{"maker", "PUT", "/api/policies/v/p", dlx, 401, "…not authorised"},
		{"maker", "PUT", "/api/operator-policies/%2F/p", limit, 401, "…not authorised"},
		{"maker", "GET", "/api/operator-policies", "", 200, "[" + limitJSON + "]"},
		{"manager", "GET", "/api/operator-policies/%2F", "", 200, "[" + limitJSON + "]"},
		{"manager", "GET", "/api/operator-policies/%2F/cap", "", 401, "…not authorised"},
		{"monitor", "PUT", "/api/policies/%2F/p", dlx, 401, "…not authorised"},

		{"admin", "PUT", "/api/policies/%2F/p", `{"pattern":".*","definition":{"nonsense":"x"}}`, 400, "…[{<<\\\"nonsense\\\">>,<<\\\"x\\\">>}] are not recognised policy settings\\n"},
		{"admin", "PUT", "/api/policies/%2F/p", `{"pattern":".*","definition":{"message-ttl":-1}}`, 400, invalid("-1 is not a valid message TTL")},
		{"admin", "PUT", "/api/operator-policies/%2F/p", `{"pattern":".*","definition":{"dead-letter-exchange":"x"}}`, 400, "…are not recognised policy settings"},
		{"admin", "PUT", "/api/policies/%2F/p", `{"pattern":"(","definition":{"expires":1}}`, 400, "…pattern should be regular expression but is invalid"},
		{"admin", "PUT", "/api/policies/%2F/p", `{"pattern":".*","definition":{"expires":1},"apply-to":"topics"}`, 400, "…apply-to unrecognised"},
		{"admin", "PUT", "/api/policies/%2F/p", `{"pattern":".*","definition":{"expires":1},"apply-to":""}`, 400, "…apply-to unrecognised"},
		{"admin", "PUT", "/api/operator-policies/%2F/p", `{"pattern":".*","definition":{"expires":1},"apply-to":null}`, 400, "…apply-to unrecognised"},
		{"admin", "PUT", "/api/policies/%2F/p", `{"pattern":".*","definition":{"expires":1},"apply-to":5}`, 400, "…apply-to should be a string, actually was 5"},
		{"admin", "PUT", "/api/policies/%2F/p", `{"pattern":".*","definition":{"expires":1},"priority":null}`, 400, invalid("priority should be a number, actually was null")},
		{"admin", "PUT", "/api/policies/%2F/p", `{"pattern":".*","definition":{"expires":1},"priority":"high"}`, 400, invalid(`priority should be a number, actually was \"high\"`)},
		{"admin", "PUT", "/api/policies/%2F/p", `{"pattern":".*","definition":{"expires":1},"priority":1.5}`, 400, "…priority should be a number"},
		{"admin", "PUT", "/api/policies/%2F/p", `{"pattern":".*","definition":[1]}`, 400, invalid("definition is no object but [1]")},
		{"admin", "PUT", "/api/policies/%2F/p", `{"pattern":".*","definition":null}`, 400, "…definition is no object"},
		{"admin", "PUT", "/api/policies/%2F/p", `{"pattern":".*","definition":{}}`, 400, invalid("no policy provided")},
		{"admin", "PUT", "/api/policies/%2F/p", `{"pattern":".*"}`, 400, `{"error":"bad_request","reason":"key_missing: definition"}`},
		{"admin", "PUT", "/api/policies/%2F/p", `{"definition":{"expires":1}}`, 400, `{"error":"bad_request","reason":"key_missing: pattern"}`},
		{"admin", "PUT", "/api/policies/%2F/p", `{"pattern":5,"definition":{"expires":1}}`, 400, `{"error":"bad_request","reason":"pattern should be a string, actually was a number"}`},
		{"admin", "PUT", "/api/policies/%2F/p", `[]`, 400, `{"error":"bad_request","reason":"not_json: the body should be an object, actually was an array"}`},
		{"admin", "PUT", "/api/policies/%2F/p", `{"pattern"`, 400, "…not_json"},
		{"admin", "PUT", "/api/policies/%2F/p", "", 400, "…not_json"},
		{"admin", "PUT", "/api/policies/%2F/p", `{"pattern":"` + strings.Repeat("a", requestBytesMax) + `"}`, 400, "…request body too large"},
		{"admin", "PUT", "/api/policies/%2F/" + strings.Repeat("n", 256), `{"pattern":".*","definition":{"expires":1}}`, 400, "…name of a policy has 256 bytes"},
		{"admin", "POST", "/api/policies/%2F/p", "", 405, "…Method Not Allowed"},

		{"maker", "DELETE", "/api/policies/%2F/DLX", "", 204, ""},
		{"maker", "GET", "/api/policies/%2F/DLX", "", 404, "…Not Found"},
		{"admin", "DELETE", "/api/operator-policies/%2F/cap", "", 204, ""},
	} {
		status, body := send(tc.user, tc.method, tc.path, tc.body)
		part, partly := strings.CutPrefix(tc.want, "…")
		if status != tc.status || partly && !strings.Contains(body, part) || !partly && body != tc.want {
			t.Errorf("%s %s %s %.80s: %d %q, want %d %q", tc.user, tc.method, tc.path, tc.body, status, body, tc.status, tc.want)
		}
		if status == http.StatusUnauthorized && strings.Contains(body, "login") {
			t.Errorf("the login failed: %s", body)
		}
	}
	if other.settled != 7 {
		t.Errorf("the other node waited for revision %d", other.settled)
	}
}
