package management

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/warrenmq/warren/broker"
)

type deadBroker struct{ fakeBroker }

func (*deadBroker) DeadLetters(_ context.Context, _ broker.User, _, name string) (d broker.DeadLetters, err error) {
	switch name {
	case "dlq":
		d.Groups = []broker.DeadGroup{{Reason: "expired", Queue: "orders", Messages: 3, Retried: 2, Bytes: 30, Oldest: 1, Newest: 2, Ages: [5]uint64{0, 3}}}
		d.Looked, d.Complete = 3, true
	case "empty":
		d.Complete = true
	default:
		err = broker.Errorf(broker.NotFound, "no queue")
	}
	return d, err
}

func TestDeadLetterGroups(t *testing.T) {
	f := newFakeCluster("a")
	f.apis["a"].cfg.Broker = &deadBroker{fakeBroker{vhosts: map[string][]string{"/": {"manager"}}}}
	const tail = `"looked":0,"complete":true,"age_bounds_ms":[60000,3600000,86400000,604800000]}`
	for _, c := range []struct {
		path, user string
		status     int
		body       string
	}{
		{"%2F/dlq", "manager", 200, `{"groups":[{"reason":"expired","queue":"orders","messages":3,"bytes":30,"retried":2,"oldest":1,"newest":2,"ages":[0,3,0,0,0]}],"never_died":0,"others":0,"looked":3,"complete":true,"age_bounds_ms":[60000,3600000,86400000,604800000]}`},
		{"%2F/empty", "manager", 200, `{"groups":[],"never_died":0,"others":0,` + tail},
		{"%2F/none", "manager", 404, ""},
		{"other/dlq", "manager", 404, ""},
	} {
		r := httptest.NewRequest(http.MethodGet, "/api/warren/queues/"+c.path+"/dead-letters", nil)
		r.RemoteAddr = "127.0.0.1:1"
		r.SetBasicAuth(c.user, "secret")
		w := httptest.NewRecorder()
		f.apis["a"].ServeHTTP(w, r)
		if w.Code != c.status || c.body != "" && w.Body.String() != c.body {
			t.Errorf("%s: %d %s, want %d %s", c.path, w.Code, w.Body, c.status, c.body)
		}
	}
}
