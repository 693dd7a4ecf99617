package ctl

import (
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
)

func TestDLQStop(t *testing.T) {
	const head = "number\tstate\tmoved\tunder_way\treturned\tmissing\tno_origin\tbusy\tposition\ttail\n"
	const waiting = `{"number":2,"state":"stopping","moved":7,"under_way":3,"position":10,"tail":50,
 "waits_for":[{"vhost":"/","queue":"a","messages":2,"state":"unreachable"},{"vhost":"/","queue":"b","messages":1,"state":"full"}]}`
	const line = "2\tstopping\t7\t3\t0\t0\t0\t0\t10\t50\n"
	for _, tc := range []struct {
		args []string
		want string
	}{
		{[]string{"dlq", "stop", "dead"}, `Nothing more is sent. It ends when it is known where the 3 messages are that were under way ...
2 for queue 'a' in vhost '/', which is without a leader that answers
1 for queue 'b' in vhost '/', which is full: they come back
` + head + line},
		{[]string{"dlq", "stop", "-s", "dead"}, line},
	} {
		if code, out, failure := run(t, says(200, waiting), tc.args...); code != ExitOK || out != tc.want {
			t.Errorf("%q: %d %q, want %q; %s", tc.args, code, out, tc.want, failure)
		}
	}
}

// A redrive whose queue is declared anew meanwhile has not succeeded, and another one is not taken for it; a leader that does not have it yet is asked again.
func TestDLQRetryEnds(t *testing.T) {
	const begun, none = `{"number":1,"started_at":7,"state":"running","moved":3}`, `{"number":0,"state":"none"}`
	const done = `{"number":1,"started_at":7,"state":"done","moved":3}`
	for name, c := range map[string]struct {
		told   []string // the last again and again
		code   int
		failed string
	}{
		"done":                       {[]string{begun, begun, done}, ExitOK, ""},
		"a leader has it later":      {[]string{begun, none, done}, ExitOK, ""},
		"no leader for a moment":     {[]string{begun, "", "", done}, ExitOK, ""},
		"declared anew":              {[]string{begun, none}, ExitData, "queue 'dead' was deleted and declared anew: 3 were done before"},
		"another one of a new queue": {[]string{begun, `{"number":1,"started_at":9,"state":"done"}`}, ExitData, "declared anew"},
		"another one":                {[]string{begun, `{"number":2,"started_at":9,"state":"done"}`}, ExitSoftware, "another one of queue 'dead' has begun"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var asked atomic.Int32
			code, out, failure := run(t, func(w http.ResponseWriter, r *http.Request) {
				n := min(int(asked.Add(1)), len(c.told))
				if c.told[n-1] == "" {
					says(http.StatusServiceUnavailable, `{"error":"service_unavailable","reason":"queue 'dead' has no leader that answers"}`)(w, r)
					return
				}
				says(http.StatusOK, c.told[n-1])(w, r)
			}, "dlq", "retry", "-s", "dead")
			if code != c.code || !strings.Contains(failure, c.failed) || code == ExitOK && !strings.HasPrefix(out, "1\tdone\t3\t") {
				t.Errorf("%d %q %q", code, out, failure)
			}
		})
	}
}

// TestDLQListSaysWhatIsNotKnown: a list that lacks queues of which nobody can tell does not look like one of all.
func TestDLQListSaysWhatIsNotKnown(t *testing.T) {
	const queues = `[{"name":"a","state":"running","messages":5,"messages_transferred":5,"messages_dlx":0,"messages_parked":0},
 {"name":"b","state":"minority","messages":0,"messages_dlx":0},{"name":"c","state":"down","messages":0,"messages_dlx":0}]`
	const want = "Queues with dead letters in vhost / ...\nNobody can tell what is in b, c, since too few of their replicas run\n" +
		"name\tmessages\tmessages_transferred\tmessages_dlx\tmessages_parked\na\t5\t5\t0\t0\n"
	if code, out, failure := run(t, says(200, queues), "dlq", "list"); code != ExitOK || out != want {
		t.Errorf("%d %q, want %q; %s", code, out, want, failure)
	}
}

// TestDLQUsage: what is missing is named, with the command to call.
func TestDLQUsage(t *testing.T) {
	for want, args := range map[string][]string{
		"ctl dlq retry QUEUE":   {"dlq", "retry"},
		"ctl dlq status QUEUE":  {"dlq", "status", "a", "b"},
		"and queue:NAME":        {"dlq", "retry", "q", "--to", "queue"},
		"first, exchange and":   {"dlq", "retry", "q", "--to", "last:q"},
		"--to 'queue:' is none": {"dlq", "retry", "q", "--to", "queue:"},
	} {
		if code, _, failure := run(t, says(200, "{}"), args...); code != ExitUsage || !strings.Contains(failure, want) {
			t.Errorf("%q: %d %s", args, code, failure)
		}
	}
}

// TestNamesDoNothingToATerminal: names that somebody else has chosen are printed as escapes where they would be commands of a terminal.
func TestNamesDoNothingToATerminal(t *testing.T) {
	const name, json = "q\x1b]0;evil\x07", `q\u001b]0;evil\u0007`
	for _, c := range []struct {
		status int
		body   string
		args   []string
	}{
		{200, `[{"name":"` + json + `","state":"minority"}]`, []string{"dlq", "list"}},
		{400, `{"error":"bad_request","reason":"no queue '` + json + `'\nin vhost '/'"}`, []string{"pause_queue", "q"}},
		{200, `{"state":"stopping","waits_for":[{"queue":"` + json + `"}]}`, []string{"dlq", "status", "q"}},
	} {
		_, out, failure := run(t, says(c.status, c.body), c.args...)
		if text := out + failure; strings.ContainsAny(text, "\x1b\x07") || !strings.Contains(text, `q\x1b]0;evil\a`) {
			t.Errorf("%q prints %q of queue %q", c.args, text, name)
		}
	}
}
