package ctl

import (
	"net/http"
	"strings"
	"testing"
)

const oneOutbox = `{"queue":"orders","messages_dlx":12,"message_bytes_dlx":34,"oldest_age_ms":61500,"leader":"n1",
 "states":{"unrouted":0,"routed":11,"parked_unrouted":0,"parked_cycle":1},
 "targets":[{"id":7,"queue":"dead","pending":11,"state":"full","since":1},{"id":8,"pending":2,"state":"gone"}],
 "last_error":{"text":"queue 'dead' in vhost '/': the target is full","at":1}}`

func TestOutboxStatus(t *testing.T) {
	const head = "name\tmessages_dlx\tmessage_bytes_dlx\toldest_age_seconds\tunrouted\trouted\tparked_unrouted\tparked_cycle\ttargets\tlast_error\tleader\n"
	const line = "orders\t12\t34\t61.5\t0\t11\t0\t1\tdead:11:full id 8:2:gone\tqueue 'dead' in vhost '/': the target is full\tn1\n"
	for _, tc := range []struct {
		body string
		args []string
		want string
	}{
		{oneOutbox, []string{"outbox_status", "-q", "orders"}, head + line},
		{"[" + oneOutbox + "]", []string{"outbox_status", "--silent"}, line},
		{"[]", []string{"outbox_status"}, "Dead letters on their way in vhost / ...\n"},
	} {
		if code, out, failure := run(t, says(200, tc.body), tc.args...); code != ExitOK || out != tc.want {
			t.Errorf("%q: %d %q, want %q; %s", tc.args, code, out, tc.want, failure)
		}
	}
	if code, _, failure := run(t, says(404, `{"error":"Object Not Found","reason":"Not Found"}`), "outbox_status", "none"); code != ExitData {
		t.Errorf("%d %s", code, failure)
	}
}

// TestOutboxStatusSaysWhatIsNotKnown: a list that lacks queues of which nobody can tell does not look like one of all.
func TestOutboxStatusSaysWhatIsNotKnown(t *testing.T) {
	for _, tc := range []struct{ health, want string }{
		{
			`{"status":"failed","reason":"r","queues":[{"vhost":"/","queue":"src","why":"not known"},{"vhost":"v","queue":"other","why":"not known"}]}`,
			"Nobody can tell of those of src, since too few of its replicas run\n",
		},
		{`{"status":"failed","reason":"not every node answered: node c: timed out"}`, "Some may be missing: not every node answered: node c: timed out\n"},
	} {
		code, out, failure := run(t, func(w http.ResponseWriter, r *http.Request) {
			if strings.Contains(r.URL.Path, "/health/") {
				says(503, tc.health)(w, r)
				return
			}
			says(200, "[]")(w, r)
		}, "outbox_status")
		if want := "Dead letters on their way in vhost / ...\n" + tc.want; code != ExitOK || out != want {
			t.Errorf("%d %q, want %q; %s", code, out, want, failure)
		}
	}
}
