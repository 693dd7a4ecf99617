package management

import (
	"context"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/warrenmq/warren/auth"
	"github.com/warrenmq/warren/broker"
	"github.com/warrenmq/warren/policy"
)

type previewBroker struct {
	fakeBroker
	asked policy.Spec
}

func (b *previewBroker) PreviewPolicy(s policy.Spec) (look broker.PolicyPreview, err error) {
	if b.asked = s; s.Pattern == "(" {
		return look, &policy.Invalid{Reasons: []string{"bad"}}
	}
	look.Queues = broker.PolicyMatches{Matched: 2, Others: 1, Names: []string{"q"}}
	look.Exchanges.Names = []string{}
	return look, nil
}

func (*previewBroker) HasUser(_ context.Context, name string) (bool, error) {
	return name != "none", nil
}

func (*previewBroker) Permissions(_, user string) []*auth.Permission {
	if user != "ann" {
		return nil
	}
	p, err := auth.NewPermission("ann", "/", "^ann-", "^ann-|^amq.default$", "")
	if err != nil {
		panic(err)
	}
	return []*auth.Permission{p}
}

func TestPreviews(t *testing.T) {
	b := &previewBroker{fakeBroker: fakeBroker{vhosts: map[string][]string{"/": {"manager"}}}}
	f := newFakeCluster("a")
	f.apis["a"].cfg.Broker = b
	const check, spec = "/api/warren/permissions/%2F/ann/check?name=ann-q&action=", `{"pattern":"^q","apply-to":"queues","definition":{"message-ttl":5},"priority":3}`
	for _, c := range []struct {
		user, method, path, body string
		status                   int
		want                     string
	}{
		{"admin", "POST", "/api/warren/policies/%2F/preview?name=p", spec, 200, `{"queues":{"matched":2,"others":1,"names":["q"]},"exchanges":{"matched":0,"others":0,"names":[]}}`},
		{"admin", "POST", "/api/warren/operator-policies/%2F/preview", spec, 200, `"matched":2`},
		{"admin", "POST", "/api/warren/policies/%2F/preview", `{"pattern":"(","definition":{}}`, 400, "Validation failed"},
		{"admin", "POST", "/api/warren/policies/%2F/preview", `{}`, 400, "key_missing"},
		{"admin", "POST", "/api/warren/policies/none/preview", spec, 404, "Not Found"},
		{"monitor", "POST", "/api/warren/policies/%2F/preview", spec, 401, "not_authorised"},
		{"admin", "GET", check + "configure", "", 200, `{"allowed":true}`},
		{"admin", "GET", check + "read", "", 200, `{"allowed":false,"reason":"read access to queue 'ann-q' in vhost '/' refused for user 'ann'"}`},
		{"admin", "GET", "/api/warren/permissions/%2F/ann/check?kind=exchange&name=&action=write", "", 200, `{"allowed":true}`},
		{"admin", "GET", "/api/warren/permissions/%2F/bob/check?action=write&name=q", "", 200, `access to vhost '/' refused for user 'bob'`},
		{"admin", "GET", check + "eat", "", 400, "action"},
		{"admin", "GET", check + "read&kind=table", "", 400, "kind"},
		{"admin", "GET", "/api/warren/permissions/%2F/none/check?action=read", "", 404, "Not Found"},
		{"manager", "GET", check + "read", "", 401, "not_authorised"},
	} {
		r := httptest.NewRequestWithContext(t.Context(), c.method, c.path, strings.NewReader(c.body))
		r.RemoteAddr = "127.0.0.1:1"
		r.SetBasicAuth(c.user, "secret")
		w := httptest.NewRecorder()
		f.apis["a"].ServeHTTP(w, r)
		if w.Code != c.status || !strings.Contains(w.Body.String(), c.want) {
			t.Errorf("%s %s %s: %d %s, want %d %s", c.user, c.method, c.path, w.Code, w.Body, c.status, c.want)
		}
		if c.user == "admin" && strings.HasSuffix(c.path, "name=p") && (b.asked.Name != "p" || b.asked.VHost != "/" || b.asked.Priority != 3) {
			t.Errorf("asked for %+v", b.asked)
		}
	}
}
