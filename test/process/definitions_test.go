package process

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/warrenmq/warren/test/cluster"
)

// fromRabbitMQ is what RabbitMQ 3.10 exported, with one more user: it has the name of the default user.
func fromRabbitMQ(t *testing.T) []byte {
	t.Helper()
	raw, err := os.ReadFile("../../definitions/testdata/rabbitmq-3.10.json")
	if err != nil {
		t.Fatal(err)
	}
	var doc map[string]any
	if err := json.Unmarshal(raw, &doc); err != nil {
		t.Fatal(err)
	}
	users, _ := doc["users"].([]any)
	doc["users"] = append(users, map[string]any{"name": "admin", "password": "of the file", "tags": ""})
	permissions, _ := doc["permissions"].([]any)
	doc["permissions"] = append(permissions, map[string]any{"user": "admin", "vhost": "/", "configure": "", "write": "", "read": ""})
	raw, err = json.Marshal(doc)
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

// TestDefaultUserAndDefinitions founds a cluster that loads definitions, whose default user comes from a file, and loads
// more: the default user stays as it is, everything else is as the files say.
func TestDefaultUserAndDefinitions(t *testing.T) {
	t.Parallel()
	const secret = "of the secret"
	dir := t.TempDir()
	password, file := filepath.Join(dir, "password"), filepath.Join(dir, "definitions.json")
	write := func(path string, content []byte) {
		t.Helper()
		if err := os.WriteFile(path, content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(password, []byte(secret))
	c := newCluster(t, 3, func(cfg *cluster.Config) {
		cfg.Places = func(string) (cluster.Place, error) {
			return cluster.Place{Args: func(cluster.Addrs) ([]string, error) {
				return []string{"--default-user", "admin", "--default-pass-file", password, "--load-definitions", file}, nil
			}}, nil
		}
	})
	refusedDefinitions(t, c.Node(0), "no such file")
	write(file, []byte(`{"queues":[{"name":"s","vhost":"/","type":"stream"}]}`))
	refusedDefinitions(t, c.Node(0), "queue 's' in vhost '/': unsupported queue type 'stream'")
	write(file, fromRabbitMQ(t))
	startAll(t, c)

	users := map[string]string{"admin": secret, "sha256": "pass of sha256", "sha512": "pass of sha512", "md5": "pass of md5"}
	check := func() {
		t.Helper()
		for _, n := range c.Nodes() {
			for user, password := range users {
				conn, err := login(n, user, password, "/")
				if err != nil {
					t.Errorf("%s: %s: %v", n.Name, user, err)
					continue
				}
				conn.Close()
			}
			if conn, err := login(n, "admin", "of the file", "/"); err == nil {
				conn.Close()
				t.Errorf("%s: the file has replaced the default user's password", n.Name)
			}
		}
		if out, err := localCtl(t, c.Node(1), "list_users", "--silent"); err != nil || !strings.Contains(out, "admin\t[administrator]") {
			t.Errorf("users: %q, %v", out, err)
		}
		if out, err := localCtl(t, c.Node(1), "list_user_permissions", "admin", "--silent"); err != nil || strings.TrimSpace(out) != "/\t.*\t.*\t.*" {
			t.Errorf("permissions of the default user: %q, %v", out, err)
		}
	}
	check()
	q, err := c.Queue(t.Context(), "app.quorum")
	if err != nil || len(q.Members) != 3 {
		t.Errorf("queue %+v, %v: want it on all founders", q, err)
	}

	// What operators change stays, over the death of nodes and of the catalog's leader, and a node that has lost
	// its file serves.
	if out, err := localCtl(t, c.Node(1), "change_password", "sha256", "changed"); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	users["sha256"] = "changed"
	if err := c.KillAll(); err != nil {
		t.Fatal(err)
	}
	startAll(t, c)
	check()
	if err := c.Node(2).Kill(); err != nil {
		t.Fatal(err)
	}
	write(file, []byte(`{`))
	ctx, cancel := context.WithTimeout(t.Context(), timeoutStart)
	defer cancel()
	if err := c.Node(2).Start(ctx); err != nil {
		t.Fatal(err)
	}
	untilLog(t, c.Node(2), "no definitions are loaded")

	importedByHand(t, c, users, secret)
	check()
	importSurvives(t, c)
}

// importSurvives kills the node that leads the catalog in the middle of an import. It goes on, or tells that it is not
// done and a second one finishes it.
func importSurvives(t *testing.T, c *cluster.Cluster) {
	t.Helper()
	const queues = 200
	var doc struct {
		Queues []map[string]any `json:"queues"`
	}
	for i := range queues {
		doc.Queues = append(doc.Queues, map[string]any{"name": fmt.Sprint("many", i), "vhost": "/", "durable": true})
	}
	raw, err := json.Marshal(doc)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "many.json")
	if err := os.WriteFile(file, raw, 0o600); err != nil {
		t.Fatal(err)
	}
	var victim *cluster.Node
	await(t, timeoutStart, "the catalog's leader", func() bool {
		leads, _, _ := strings.Cut(statusOf(t, c.Node(0)).Warren.Leader, "/")
		victim = c.ByName(leads)
		return victim != nil
	})
	other := c.Node(0)
	if victim == other {
		other = c.Node(1)
	}
	type result struct {
		code int
		text string
	}
	done := make(chan result, 1)
	go func() {
		code, out, errs := ctl(t, other, "import_definitions", file)
		done <- result{code, out + errs}
	}()
	ctx, cancel := context.WithTimeout(t.Context(), timeoutStart)
	defer cancel()
	if err := cluster.Poll(ctx, func() (bool, error) {
		out, err := localCtl(t, other, "list_queues", "--silent", "name")
		return err == nil && strings.Contains(out, "many"), nil
	}); err != nil {
		t.Fatal(err)
	}
	if err := victim.Kill(); err != nil {
		t.Fatal(err)
	}
	if r := <-done; r.code != 0 && r.code != 69 {
		t.Errorf("import: exit code %d: %s", r.code, r.text)
	}
	if out := mustCtl(t, other, "import_definitions", file); !strings.Contains(out, "0 left out") {
		t.Errorf("a second import: %s", out)
	}
	if out := mustCtl(t, other, "import_definitions", file); !strings.Contains(out, fmt.Sprintf("0 created, 0 updated, %d as they were, 0 left out", queues)) {
		t.Errorf("a third import: %s", out)
	}
}

// importedByHand goes through what operators do with files.
func importedByHand(t *testing.T, c *cluster.Cluster, users map[string]string, secret string) {
	t.Helper()
	admin := func(n *cluster.Node, args ...string) string {
		t.Helper()
		return mustCtl(t, n, append([]string{"--user", "admin", "--password", secret}, args...)...)
	}
	more := filepath.Join(t.TempDir(), "more.json")
	content := `{"users":[{"name":"admin","password":"of the file","tags":[]},{"name":"later","password":"l"},{"name":"sha256","password":"third"}],
		"permissions":[{"user":"later","vhost":"/","configure":"","write":"","read":""}],"queues":[{"name":"later","vhost":"/"}]}`
	if err := os.WriteFile(more, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	if out := admin(c.Node(0), "import_definitions", more, "--dry-run"); !strings.Contains(out, "update user 'sha256'") ||
		!strings.Contains(out, "left out: user 'admin': the default user stays as it is") || !strings.Contains(out, "3 to create, 1 to update") {
		t.Errorf("dry run: %s", out)
	}
	list, err := patiently(func() ([]cluster.Queue, error) { return c.Node(0).Queues(t.Context()) })
	if err != nil || slices.ContainsFunc(list, func(q cluster.Queue) bool { return q.Name == "later" }) {
		t.Errorf("a dry run has made a queue: %v", err)
	}
	if out := admin(c.Node(0), "import_definitions", more); !strings.Contains(out, "3 created, 1 updated, 0 as they were, 1 left out") {
		t.Errorf("import: %s", out)
	}
	users["later"], users["sha256"] = "l", "third"

	exported := filepath.Join(t.TempDir(), "exported.json")
	admin(c.Node(1), "export_definitions", exported)
	info, err := os.Stat(exported)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the export is %v, %v: others may read the hashes", info, err)
	}
	if out := admin(c.Node(2), "import_definitions", exported, "--skip-if-unchanged"); !strings.Contains(out, "0 created, 0 updated") {
		t.Errorf("an export changes the cluster it is of: %s", out)
	}
	if out := admin(c.Node(0), "import_definitions", exported, "--skip-if-unchanged"); !strings.Contains(out, "were loaded before") {
		t.Errorf("the same a second time: %s", out)
	}

	// As rabbitmqadmin and other tools do it: no content, or what was left out.
	post := func(path, body string) (int, string) {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, c.Node(1).HTTP()+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		req.SetBasicAuth("admin", secret)
		return answerOf(t, req)
	}
	for _, tc := range []struct {
		path, body string
		status     int
		want       string
	}{
		{"/api/definitions", `{"queues":[{"name":"by http","vhost":"/"}]}`, 204, ""},
		{"/api/definitions/%2F", `{"queues":[{"name":"by http 2"}],"users":[{"name":"x"}]}`, 200, "not imported into a single virtual host"},
		{"/api/definitions/none", `{}`, 400, "vhost_not_found"},
		{"/api/definitions", `{"queues":[{"name":"q","vhost":"none"}]}`, 400, `Please create virtual host \"none\" prior to importing definitions.`},
		{"/api/definitions?dry_run=1", `{}`, 400, "want true or false"},
	} {
		if status, answer := post(tc.path, tc.body); status != tc.status || !strings.Contains(answer, tc.want) {
			t.Errorf("POST %s %s: %d %s, want %d %s", tc.path, tc.body, status, answer, tc.status, tc.want)
		}
	}
}

func answerOf(t *testing.T, req *http.Request) (status int, body string) {
	t.Helper()
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(raw)
}

// refusedDefinitions starts a node that founds nothing with its file and says why.
func refusedDefinitions(t *testing.T, n *cluster.Node, want string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), timeoutStart)
	defer cancel()
	if err := n.Launch(); err != nil {
		t.Fatal(err)
	}
	if code, err := n.Wait(ctx); err != nil || code != 1 {
		t.Fatalf("exit code %d, %v\n%s", code, err, n.LogTail())
	}
	lines := strings.Split(strings.TrimSpace(n.LogTail()), "\n")
	if last := lines[len(lines)-1]; !strings.Contains(last, "warren: definitions: load-definitions: ") || !strings.Contains(last, want) {
		t.Errorf("it says %q, want %q", last, want)
	}
}

// TestImportsAtOnce: of two imports through two nodes that declare a queue and an exchange differently at the same moment, the one that comes second says that they stay as
// they are.
func TestImportsAtOnce(t *testing.T) {
	c := sharedCluster(t, 3)
	for round := range 5 {
		queue, exchange := fmt.Sprint("at-once-", round), fmt.Sprint("at-once-", round)
		var both sync.WaitGroup
		reports := make([]string, 2)
		for i, typ := range []string{"topic", "fanout"} {
			doc := fmt.Sprintf(`{"queues":[{"name":"%s","vhost":"/","durable":true,"arguments":{"x-max-length":%d}}],"exchanges":[{"name":"%s","vhost":"/","type":"%s","durable":true}]}`,
				queue, i+1, exchange, typ)
			req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, c.Node(i).HTTP()+"/api/definitions", strings.NewReader(doc))
			if err != nil {
				t.Fatal(err)
			}
			req.SetBasicAuth("guest", "guest")
			both.Go(func() {
				resp, err := http.DefaultClient.Do(req)
				if err != nil {
					t.Error(err)
					return
				}
				defer resp.Body.Close()
				raw, err := io.ReadAll(resp.Body)
				if reports[i] = string(raw); err != nil || resp.StatusCode != http.StatusNoContent && resp.StatusCode != http.StatusOK {
					t.Errorf("import %d: %d: %s, %v", i, resp.StatusCode, raw, err)
				}
			})
		}
		both.Wait()
		for _, what := range []string{
			`"kind":"queue","vhost":"/","name":"` + queue + `","reason":"is there already, and stays as it is: arguments is `,
			`"kind":"exchange","vhost":"/","name":"` + exchange + `","reason":"is there already, and stays as it is: type is `,
		} {
			if n := strings.Count(reports[0]+reports[1], what); n != 1 {
				t.Errorf("%d reports say %s: %q", n, what, reports)
			}
		}
	}
}
