package management

import (
	"context"
	"fmt"
	"testing"

	"github.com/warrenmq/warren/cluster/recovery"
)

// fakeRecovery tells what it was asked for.
type fakeRecovery struct {
	Cluster
	asked []string
}

func (f *fakeRecovery) RecoverQueues(_ context.Context, r *recovery.Request) (*recovery.Report, error) {
	f.asked = append(f.asked, fmt.Sprintf("%+v", *r))
	if r.Lost[0] == "n9" {
		return nil, &recovery.Error{Text: "there is no node 'n9'"}
	}
	return &recovery.Report{Lost: r.Lost, Queues: []recovery.Queue{{ID: 7, VHost: "/", Name: "q", State: recovery.Possible}}}, nil
}

func TestRecovery(t *testing.T) {
	f := newFakeCluster("a")
	fake := &fakeRecovery{}
	f.apis["a"].cfg.Cluster = fake
	const path = "/api/warren/recovery"
	for _, tc := range []struct {
		user, body string
		status     int
		answer     string
	}{
		{"admin", `{"lost":["n2","n3"]}`, 200, `{"lost":["n2","n3"],"queues":[{"id":7,"vhost":"/","name":"q","lost":null,"survivors":null,"state":"possible","messages":0,"sent_again":0}]}`},
		{"admin", `{"lost":["n2"],"vhost":"v","queue":"q","yes":true}`, 200, ""},
		{"admin", `{"lost":["n9"]}`, 400, `{"error":"bad_request","reason":"there is no node 'n9'"}`},
		{"admin", `[]`, 400, ""},
		{"admin", `{"lost":3}`, 400, ""},
		{"monitor", `{"lost":["n2"]}`, 401, ""},
	} {
		status, answer := f.request(t, tc.user, "POST", path, tc.body)
		if status != tc.status || tc.answer != "" && answer != tc.answer {
			t.Errorf("%s %s: %d %s", tc.user, tc.body, status, answer)
		}
	}
	if want := "[{Lost:[n2 n3] VHost: Queue: Yes:false} {Lost:[n2] VHost:v Queue:q Yes:true} {Lost:[n9] VHost: Queue: Yes:false}]"; fmt.Sprint(fake.asked) != want {
		t.Errorf("asked for %v", fake.asked)
	}
}
