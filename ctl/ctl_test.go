package ctl

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
)

// run runs a verb against h and returns the exit code, the output and the error's text.
func run(t *testing.T, h http.HandlerFunc, args ...string) (code int, out, failure string) {
	t.Helper()
	server := httptest.NewServer(h)
	defer server.Close() // it waits for h, also where the verb did not
	return runAt(t, append([]string{"--url", server.URL}, args...)...)
}

// stdin is what verbs find on standard input.
var stdin string

func runAt(t *testing.T, args ...string) (code int, out, failure string) {
	t.Helper()
	return runWith(t, map[string]string{"WARREN_CTL_PASSWORD": "secret"}, args...)
}

// runWith is runAt in another environment.
func runWith(t *testing.T, vars map[string]string, args ...string) (code int, out, failure string) {
	t.Helper()
	var stdout, stderr bytes.Buffer
	cmd := Command(Env{Stdin: strings.NewReader(stdin), Stdout: &stdout, Lookup: func(name string) (string, bool) { v, ok := vars[name]; return v, ok }})
	cmd.SilenceErrors, cmd.SilenceUsage = true, true
	cmd.SetArgs(append([]string{}, args...)) // of nil cobra would make those of the test's process
	cmd.SetOut(&stdout)
	cmd.SetErr(&stderr)
	err := cmd.ExecuteContext(context.Background())
	if err == nil {
		return ExitOK, stdout.String(), ""
	}
	var e *Error
	if !errors.As(err, &e) {
		t.Fatalf("%q: %v is no *Error", args, err)
	}
	Print(&stderr, e)
	return e.Code, stdout.String(), stderr.String()
}

// says answers every request alike.
func says(status int, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(status)
		_, _ = w.Write([]byte(body)) // the test sees what is missing
	}
}

// verbCase is what a verb sends, what the node answers, and what the verb makes of it. Without
// a method nothing may be sent.
type verbCase struct {
	args                []string
	stdin               string
	method, path, body  string
	status              int
	answer, out, failed string
	code                int
}

func checkVerbs(t *testing.T, cases []verbCase) {
	t.Helper()
	for _, tc := range cases {
		stdin = tc.stdin
		var method, path, body string
		code, out, failed := run(t, func(w http.ResponseWriter, r *http.Request) {
			raw, _ := io.ReadAll(r.Body) // what is missing shows
			method, path, body = r.Method, r.URL.EscapedPath(), string(raw)
			w.WriteHeader(tc.status)
			_, _ = io.WriteString(w, tc.answer)
		}, tc.args...)
		if method != tc.method || path != tc.path || body != tc.body {
			t.Errorf("%q sends %s %s %s", tc.args, method, path, body)
		}
		if code != tc.code || code == 0 && out != tc.out || !strings.Contains(failed, tc.failed) || (failed != "") != (code != 0) {
			t.Errorf("%q: exit code %d, want %d: %q %q", tc.args, code, tc.code, out, failed)
		}
	}
}

const twoQueues = `[{"name":"a","messages":1000000,"consumers":2,"arguments":{"x-message-ttl":5}},{"name":"b\tc","messages":0,"policy":null}]`

func TestForms(t *testing.T) {
	for _, tc := range []struct {
		args []string
		want string
	}{
		{nil, "Listing queues for vhost / ...\nname\tmessages\na\t1000000\nb\\tc\t0\n"},
		{[]string{"-q"}, "name\tmessages\na\t1000000\nb\\tc\t0\n"},
		{[]string{"--silent"}, "a\t1000000\nb\\tc\t0\n"},
		{[]string{"-q", "--no-table-headers", "name"}, "a\nb\\tc\n"},
		{[]string{"-q", "name", "policy", "arguments"}, "name\tpolicy\targuments\na\t\t{\"x-message-ttl\":5}\nb\\tc\t\t\n"},
		{[]string{"-q", "name consumers"}, "name\tconsumers\na\t2\nb\\tc\t\n"},
		{[]string{"--formatter", "json", "name", "messages"}, "[\n{\"name\":\"a\",\"messages\":1000000},\n{\"name\":\"b\\tc\",\"messages\":0}\n]\n"},
		{[]string{"-q", "--formatter", "pretty_table"}, "┌──────┬──────────┐\n│ name │ messages │\n├──────┼──────────┤\n│ a    │ 1000000  │\n├──────┼──────────┤\n│ b\\tc │ 0        │\n└──────┴──────────┘\n"},
		{[]string{"--formatter=csv", "name", "arguments"}, "name,arguments\na,\"{\"\"x-message-ttl\"\":5}\"\nb\tc,\n"},
	} {
		code, out, failure := run(t, says(200, twoQueues), append([]string{"list_queues"}, tc.args...)...)
		if code != ExitOK || out != tc.want {
			t.Errorf("%q: %d %q, want %q; %s", tc.args, code, out, tc.want, failure)
		}
	}
	if _, out, _ := run(t, says(200, "[]"), "list_queues", "-q"); out != "" {
		t.Errorf("an empty list is %q", out)
	}
	if _, out, _ := run(t, says(200, "[]"), "list_queues", "--formatter", "json"); out != "[\n]\n" {
		t.Errorf("an empty list in JSON is %q", out)
	}
}

func TestRequest(t *testing.T) {
	var path, user, password string
	code, _, failure := run(t, func(w http.ResponseWriter, r *http.Request) {
		path = r.URL.EscapedPath()
		user, password, _ = r.BasicAuth()
		_, _ = w.Write([]byte("[]")) // the test sees what is missing
	}, "list_queues", "-p", "a/b c", "--user", "me")
	if code != ExitOK || path != "/api/queues/a%2Fb%20c" || user != "me" || password != "secret" {
		t.Errorf("%d %q by %q with %q: %s", code, path, user, password, failure)
	}
}

// TestRefusedBySocket: who may not do something by the control socket is told how it can be done.
func TestRefusedBySocket(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	node := httptest.NewUnstartedServer(says(401, `{"error":"not_authorised","reason":"access to vhost '/' refused for user 'control socket'"}`))
	node.Listener.Close()
	node.Listener = l
	node.Start()
	defer node.Close()
	code, _, failure := runAt(t, "--url", unixScheme+path, "purge_queue", "q")
	if code != ExitNoPerm || !strings.Contains(failure, "control socket: access to vhost '/' refused") || !strings.Contains(failure, "ask without --local as a user that has them") {
		t.Errorf("%d %s", code, failure)
	}
}

// TestUncountedQueues: what is shown as 0 because nobody knows it is not taken for none.
func TestUncountedQueues(t *testing.T) {
	const queues = `[{"name":"a","messages":0,"state":"minority"},{"name":"b","messages":0,"state":"running"},{"name":"c","messages":0,"state":"down"}]`
	const table = "name\tmessages\na\t0\nb\t0\nc\t0\n"
	if _, out, _ := run(t, says(200, queues), "list_queues"); !strings.HasSuffix(out, table+"The messages of 2 queues are not known, and shown as 0: too few of their nodes run. See list_queues name state online.\n") {
		t.Errorf("%q", out)
	}
	if _, out, _ := run(t, says(200, queues), "list_queues", "-q"); out != table {
		t.Errorf("quiet: %q", out)
	}
}

// TestMemoryOfQueues: a node has the memory of many queues only for those who ask.
func TestMemoryOfQueues(t *testing.T) {
	var asked string
	_, out, _ := run(t, func(w http.ResponseWriter, r *http.Request) {
		asked = r.URL.Query().Get("columns")
		_, _ = w.Write([]byte(`[{"name":"q","memory":4711}]`))
	}, "list_queues", "name", "memory", "-s")
	if asked != "state,name,memory" || out != "q\t4711\n" {
		t.Errorf("asked for %q, shown %q", asked, out)
	}
}

func TestExitCodes(t *testing.T) {
	refusal := func(reason string) string { return `{"error":"e","reason":"` + reason + `"}` }
	for _, tc := range []struct {
		name   string
		status int
		body   string
		args   []string
		code   int
		want   string
	}{
		{"unknown verb", 200, "", []string{"frobnicate"}, ExitUsage, "Command 'frobnicate' not found. See 'ctl --help'."},
		{"mistyped verb", 200, "", []string{"list_cues"}, ExitUsage, "Command 'list_cues' not found. Did you mean 'list_queues' or 'list_users'?"},
		{"mistyped verb of dlq", 200, "", []string{"dlq", "retyr"}, ExitUsage, "Command 'dlq retyr' not found. Did you mean 'retry'?"},
		{"unknown option", 200, "", []string{"list_queues", "--fast"}, ExitUsage, "unknown flag: --fast\nSee 'ctl list_queues --help'."},
		{"RabbitMQ's option", 200, "", []string{"-n", "rabbit@host", "list_queues"}, ExitUsage, "which is RabbitMQ's: a node is named by --url or WARREN_CTL_URL"},
		{"RabbitMQ's long option", 200, "", []string{"list_queues", "--online"}, ExitUsage, "which is RabbitMQ's: see the columns state and online"},
		{"help for no verb", 200, "", []string{"help", "list_cues"}, ExitUsage, "Command 'list_cues' not found. Did you mean 'list_queues'"},
		{"unknown column", 200, "[]", []string{"list_queues", "name", "mass", "speed"}, ExitUsage, "Info key(s) mass, speed are not supported; there are name, messages,"},
		{"formatter", 200, "[]", []string{"list_queues", "--formatter", "erlang"}, ExitUsage, "formatter 'erlang'"},
		{"vhost", 404, refusal("Not Found"), []string{"list_queues", "-p", "v"}, ExitData, "Error:\nVirtual host 'v' does not exist\n"},
		{"login", 401, refusal("Login failed"), []string{"list_queues"}, ExitNoPerm, "user 'guest': Login failed\nguest can log in from the node's own machine only (unless the node has --loopback-users none),"},
		{"login of another", 401, refusal("Login failed"), []string{"list_queues", "--user", "me"}, ExitNoPerm, "user 'me': Login failed\n"},
		{"guest's tags", 401, refusal("Not monitor user"), []string{"list_queues"}, ExitNoPerm, "user 'guest': Not monitor user\n"},
		{"too many failed logins", 429, refusal("Too many failed logins, try again in 1 s"), []string{"list_queues"}, ExitUnavailable, "user 'guest': Too many failed logins, try again in 1 s\n"},
		{"refused", 400, refusal(`Validation failed\n\nit is wrong\n`), []string{"list_queues"}, ExitSoftware, "Error:\nValidation failed\n\nit is wrong\n"},
		{"node", 503, refusal("no leader"), []string{"list_queues"}, ExitUnavailable, "no leader"},
		{"catalog lost", 503, refusal("read index: catalog has no leader"), []string{"recover_queues", "--lost", "n2"}, ExitUnavailable, "recover_cluster comes first"},
		{"no JSON", 500, "oops", []string{"list_queues"}, ExitUnavailable, "oops"},
		{"no answer", 200, "<html>", []string{"list_queues"}, ExitSoftware, "not understood"},
	} {
		code, out, failure := run(t, says(tc.status, tc.body), tc.args...)
		if code != tc.code || !strings.Contains(failure, tc.want) || out != "" {
			t.Errorf("%s: %d %q, want %d with %q; output %q", tc.name, code, failure, tc.code, tc.want, out)
		}
	}
	for _, args := range [][]string{{"--url", "localhost:1", "list_queues"}, {"list_queues", "--timeout=-1"}} {
		if code, _, failure := runAt(t, args...); code != ExitUsage {
			t.Errorf("%q: %d %s", args, code, failure)
		}
	}
	closed := httptest.NewServer(says(200, "[]"))
	closed.Close()
	if code, _, failure := runAt(t, "--url", closed.URL, "list_queues"); code != ExitUnavailable || !strings.Contains(failure, "unable to perform an operation on node "+closed.URL) ||
		!strings.Contains(failure, "ask another one with --url") {
		t.Errorf("nobody there: %d %s", code, failure)
	}
	socket := unixScheme + filepath.Join(t.TempDir(), "control.sock")
	if code, _, failure := runAt(t, "--url", socket, "list_queues"); code != ExitUnavailable || !strings.Contains(failure, "on node "+strings.TrimPrefix(socket, unixScheme)+": ") || !strings.Contains(failure, "WARREN_DATA_DIR") {
		t.Errorf("no control socket: %d %s", code, failure)
	}
	slow := func(_ http.ResponseWriter, r *http.Request) {
		select {
		case <-r.Context().Done():
		case <-time.After(30 * time.Second):
		}
	}
	if code, _, failure := run(t, slow, "list_queues", "-t", "1"); code != ExitTimeout {
		t.Errorf("no answer in time: %d %s", code, failure)
	}
}

func TestHelp(t *testing.T) {
	for _, tc := range []struct {
		args []string
		want string
	}{
		{nil, "list_queues"},
		{[]string{"help"}, "list_queues"},
		{[]string{"help", "set_permissions"}, "ctl set_permissions USER CONFIGURE WRITE READ"}, // add_user says so
		{[]string{"help", "dlq", "retry"}, "ctl dlq retry QUEUE"},
	} {
		if code, out, failure := runAt(t, tc.args...); code != ExitOK || !strings.Contains(out, tc.want) {
			t.Errorf("%q: %d %s %s", tc.args, code, out, failure)
		}
	}
}

// TestDocumentsNameVerbs compares the commands in docs/operations.md with those that there are. A row of its tables begins with commands, and gives their options.
func TestDocumentsNameVerbs(t *testing.T) {
	raw, err := os.ReadFile("../docs/operations.md")
	if err != nil {
		t.Fatal(err)
	}
	text := string(raw)
	verbs := map[string]*cobra.Command{}
	for _, c := range Command(Env{}).Commands() {
		verbs[c.Name()] = c
		if !regexp.MustCompile(`\b` + c.Name() + `\b`).MatchString(text) {
			t.Errorf("docs/operations.md does not name %s", c.Name())
		}
	}
	for _, m := range regexp.MustCompile("`(?:warren ctl )?([a-z]+(?:_[a-z]+)*)( [^`]*)?`").FindAllStringSubmatch(text, -1) {
		c := verbs[m[1]]
		if c == nil {
			continue
		}
		if sub, _, err := c.Find(strings.Fields(m[2])); err == nil {
			c = sub
		}
		c.InitDefaultHelpFlag()
		for _, o := range regexp.MustCompile(`--([a-z][a-z-]*)`).FindAllStringSubmatch(m[2], -1) {
			if c.Flag(o[1]) == nil {
				t.Errorf("%s has no option --%s, as docs/operations.md says in %q", c.CommandPath(), o[1], m[0])
			}
		}
	}
	for _, m := range regexp.MustCompile(`(?m)^ {4}warren ctl (?:--local )?([a-z_]+)`).FindAllStringSubmatch(text, -1) {
		if verbs[m[1]] == nil {
			t.Errorf("docs/operations.md says warren ctl %s, which there is not", m[1])
		}
	}
}
