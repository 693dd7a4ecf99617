package ctl

import (
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/warrenmq/warren/auth"
)

func TestTopologyVerbs(t *testing.T) {
	checkVerbs(t, []verbCase{
		{
			args: []string{"list_exchanges", "-q"}, method: "GET", path: "/api/exchanges/%2F", status: 200,
			answer: `[{"name":"","type":"direct"},{"name":"x","type":"x-delayed-message"}]`, out: "name\ttype\n\tdirect\nx\tx-delayed-message\n",
		},
		{args: []string{"list_exchanges", "kind"}, code: ExitUsage, failed: "Info key(s) kind are not supported"},
		{args: []string{"list_exchanges", "-p", "w"}, method: "GET", path: "/api/exchanges/w", status: 404, answer: `{}`, code: ExitData, failed: "Virtual host 'w'"},
		{
			args: []string{"list_bindings"}, method: "GET", path: "/api/bindings/%2F", status: 200,
			answer: `[{"source":"x","vhost":"/","destination":"q","destination_type":"queue","routing_key":"k","arguments":{"a":1},"properties_key":"k~1"}]`,
			out: "Listing bindings for vhost / ...\nsource_name\tsource_kind\tdestination_name\tdestination_kind\trouting_key\targuments\n" +
				"x\texchange\tq\tqueue\tk\t{\"a\":1}\n",
		},
		{
			args: []string{"purge_queue", "a/b"}, method: "DELETE", path: "/api/queues/%2F/a%2Fb/contents", status: 204, out: "Purging queue 'a/b' in vhost '/' ...\n",
		},
		{args: []string{"purge_queue", "q", "-p", "v"}, method: "DELETE", path: "/api/queues/v/q/contents", status: 404, answer: `{}`, code: ExitData, failed: "no queue 'q' in vhost 'v'"},
		{args: []string{"pause_queue", "a/b"}, method: "PUT", path: "/api/queues/%2F/a%2Fb/pause", status: 204, out: "Pausing queue 'a/b' in vhost '/' ...\n"},
		{args: []string{"resume_queue", "q", "-q"}, method: "PUT", path: "/api/queues/%2F/q/resume", status: 404, answer: `{}`, code: ExitData, failed: "no queue 'q'"},
		{args: []string{"delete_queue", "-q", "q"}, method: "DELETE", path: "/api/queues/%2F/q", status: 204},
		{args: []string{"delete_queue", "-q", "q", "--force"}, method: "DELETE", path: "/api/queues/%2F/q", status: 204},
		{args: []string{"delete_queue", "-q", "x", "--force", "--delayed-exchange"}, method: "DELETE", path: "/api/queues/%2F/x", status: 404, answer: `{}`, code: ExitData, failed: "no queue of a deleted delayed exchange 'x' in vhost '/'"},
		{args: []string{"delete_queue", "-q", "q"}, method: "DELETE", path: "/api/queues/%2F/q", status: 404, answer: `{}`, code: ExitData, failed: "no queue 'q'"},
		{args: []string{"delete_queue", "-q", "q", "--idempotently"}, method: "DELETE", path: "/api/queues/%2F/q", status: 404, answer: `{}`},
		{args: []string{"delete_user", "-q", "u", "--idempotently"}, method: "DELETE", path: "/api/users/u", status: 404, answer: `{}`},
		{args: []string{"clear_policy", "-q", "u", "--idempotently"}, method: "DELETE", path: "/api/policies/%2F/u", status: 404, answer: `{}`},
		{
			args: []string{"memory_breakdown", "--unit", "MB"}, method: "GET", path: "/api/warren/memory", status: 200,
			answer: `{"node":"a","used":7000000,"limit":20000000,"total":8000000,"parts":[{"part":"queues","bytes":2000000,"about":"q"},{"part":"stacks","bytes":6000000,"about":"s"}]}`,
			out: "Reporting memory breakdown on node a, in MB: 7.0000 used, the alarm begins at 20.0000 ...\npart\tmemory\tpercent\tabout\n" +
				"stacks\t6.0000\t75.0\ts\nqueues\t2.0000\t25.0\tq\n",
		},
		{args: []string{"memory_breakdown", "--unit", "pages"}, code: ExitUsage, failed: "unit 'pages' is none of bytes, gb, gib, kb,"},
		{args: []string{"log_tail", "-N", "2"}, method: "GET", path: "/api/warren/log", status: 200, answer: `{"lines":["a b","c"]}`, out: "a b\nc\n"},
		{
			args: []string{"set_log_level", "debug"}, method: "PUT", path: "/api/warren/log-level", body: `{"level":"debug"}`, status: 204,
			out: "Setting log level to \"debug\" ...\n",
		},
		{
			args: []string{"set_log_level", "warning"}, method: "PUT", path: "/api/warren/log-level", body: `{"level":"warn"}`, status: 204,
			out: "Setting log level to \"warning\" ...\n",
		},
		{
			args: []string{"route", "-q", "x", "a.b", "--header", "h=1"}, method: "POST", path: "/api/warren/exchanges/%2F/x/route", status: 200,
			body: `{"properties":{"headers":{"h":"1"}},"routing_key":"a.b"}`, answer: `{"routed":true,"queues":["q1","q2"],"delay_ms":0}`, out: "queue\nq1\nq2\n",
		},
		{
			args: []string{"route", "", "k"}, method: "POST", path: "/api/warren/exchanges/%2F/amq.default/route", status: 200, body: `{"properties":{"headers":{}},"routing_key":"k"}`,
			answer: `{"routed":false,"queues":[],"delay_ms":0}`, out: "Where key 'k' goes from exchange 'amq.default' in vhost '/' ...\nnowhere: it would be dropped, or returned if it is mandatory\n",
		},
		{args: []string{"route", "x", "k", "--header", "h"}, code: ExitUsage, failed: "--header 'h' is not NAME=TEXT"},
		{
			args: []string{"list_channels", "-q", "pid", "connection", "prefetch_count"}, method: "GET", path: "/api/channels", status: 200,
			answer: `[{"name":"a -> b (1)","connection_details":{"name":"a -> b"},"prefetch_count":5},{"name":"c"}]`, out: "pid\tconnection\tprefetch_count\na -> b (1)\ta -> b\t5\nc\t\t\n",
		},
		{
			args: []string{"list_consumers", "-q"}, method: "GET", path: "/api/consumers/%2F", status: 200,
			answer: `[{"queue":{"name":"q","vhost":"/"},"channel_details":{"name":"a (1)"},"consumer_tag":"t","ack_required":true,"prefetch_count":5,"active":true,"arguments":{}}]`,
			out:    "queue_name\tchannel_pid\tconsumer_tag\tack_required\tprefetch_count\tactive\targuments\nq\ta (1)\tt\ttrue\t5\ttrue\t{}\n",
		},
		{args: []string{"eval", "1."}, code: ExitUsage, failed: "Command 'eval' is RabbitMQ's: there is no Erlang here."},
		{args: []string{"hash_password", ""}, code: ExitData, failed: "password cannot be an empty string"},
		{
			args: []string{"close_connection", "-q", "a:1 -> b:2", "why"}, method: "DELETE", path: "/api/connections/a:1%20-%3E%20b:2", status: 404, answer: `{}`,
			code: ExitData, failed: "no connection 'a:1 -> b:2'",
		},
	})
	code, out, failure := runAt(t, "hash_password", "-q", "secret")
	if hash := auth.PasswordHash(strings.TrimSpace(out)); code != 0 || !hash.Matches("secret") || hash.Costly() {
		t.Errorf("%d %s %s", code, out, failure)
	}
	code, out, failure = runAt(t, "hash_password", "-q", "--hashing", "bcrypt:5", "secret")
	if hash := auth.PasswordHash(strings.TrimSpace(out)); code != 0 || !hash.Matches("secret") || hash.BcryptCost() != 5 {
		t.Errorf("%d %s %s", code, out, failure)
	}
}

// TestCloseConnections closes those of a vhost, of all, of a user, and so many.
func TestCloseConnections(t *testing.T) {
	for _, x := range []struct {
		args []string
		want string
	}{
		{[]string{"close_all_connections", "bye"}, "a b"},
		{[]string{"close_all_connections", "bye", "--global", "--per-connection-delay", "1"}, "a b c"},
		{[]string{"close_all_connections", "bye", "--global", "--limit", "2"}, "a b"},
		{[]string{"close_all_connections", "bye", "-p", "v"}, "c"},
		{[]string{"close_all_user_connections", "me", "bye"}, "b c"},
		{[]string{"close_all_user_connections", "nobody", "bye"}, ""},
	} {
		var closed []string
		code, out, failure := run(t, func(w http.ResponseWriter, r *http.Request) {
			if r.Method == http.MethodDelete {
				if r.Header.Get("X-Reason") != "bye" {
					t.Errorf("the reason is %q", r.Header.Get("X-Reason"))
				}
				closed = append(closed, strings.TrimPrefix(r.URL.Path, "/api/connections/"))
				w.WriteHeader([]int{204, 404}[len(closed)%2]) // it may be gone meanwhile
				return
			}
			_, _ = io.WriteString(w, `[{"name":"a","user":"you","vhost":"/"},{"name":"b","user":"me","vhost":"/"},{"name":"c","user":"me","vhost":"v"}]`)
		}, append([]string{"-q"}, x.args...)...)
		if got := strings.Join(closed, " "); code != 0 || got != x.want || !strings.HasPrefix(out, "Closed ") {
			t.Errorf("%q: %d, closed %q, want %q; %s%s", x.args, code, got, x.want, out, failure)
		}
	}
}

// TestForeignVerbs: no command of ours is said to be RabbitMQ's alone, and the sentences name none that is not there.
func TestForeignVerbs(t *testing.T) {
	var ours []string
	for _, c := range Command(Env{Lookup: func(string) (string, bool) { return "", false }}).Commands() {
		ours = append(ours, c.Name())
	}
	for name, text := range foreign {
		if slices.Contains(ours, name) {
			t.Errorf("%s is here", name)
		}
		for word := range strings.FieldsFuncSeq(text, func(r rune) bool { return r == ' ' || r == ',' || r == ';' }) {
			if strings.Contains(word, "_") && !slices.Contains(ours, word) {
				t.Errorf("%s: there is no %s", name, word)
			}
		}
	}
}
