package process

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/warrenmq/warren/test/cluster"
)

// costlyHashes looks at users whose hashes are of bcrypt: one who was given a password here, one whose hash came with definitions, and
// one whose hash nobody can check in a lifetime.
func costlyHashes(t *testing.T, c *cluster.Cluster, password string) {
	t.Helper()
	as := []string{"--user", "admin", "--password", password}
	hash := strings.TrimSpace(mustCtl(t, c.Node(0), "hash_password", "-q", "--hashing", "bcrypt:4", "of the file"))
	file := filepath.Join(t.TempDir(), "users.json")
	load := func(hash string) (code int, failure string) {
		text := fmt.Sprintf(`{"users":[{"name":"carried","password_hash":%q,"hashing_algorithm":"lavinmq_bcrypt","tags":"administrator"}],
			"permissions":[{"user":"carried","vhost":"/","configure":"","write":"","read":""}]}`, hash)
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		code, _, failure = ctl(t, c.Node(1), append(as, "import_definitions", file)...)
		return code, failure
	}
	if code, failure := load("$2b$31" + hash[6:]); code == 0 || !strings.Contains(failure, "cost 31, want 04 to 14") {
		t.Errorf("a hash that takes years: %d %s", code, failure)
	}
	if code, failure := load(hash); code != 0 {
		t.Fatalf("import: %d %s", code, failure)
	}
	exported := mustCtl(t, c.Node(2), append(as, "export_definitions", "-")...)
	if strings.Count(exported, `"bcrypt"`) != 2 || !strings.Contains(exported, `"$2a$05$`) || !strings.Contains(exported, hash) {
		t.Errorf("exported %s", exported)
	}
	for _, n := range c.Nodes() {
		for range 2 {
			conn, err := login(n, "carried", "of the file", "/")
			if err != nil {
				t.Fatalf("%s: %v", n.Name, err)
			}
			conn.Close()
		}
		if conn, err := login(n, "carried", "of a file", "/"); err == nil {
			conn.Close()
			t.Errorf("%s takes a wrong password", n.Name)
		}
		mustCtl(t, n, "--user", "carried", "--password", "of the file", "list_users")
		if code, _, _ := ctl(t, n, "--user", "carried", "--password", "of a file", "list_users"); code != 77 {
			t.Errorf("%s answers to a wrong password with %d", n.Name, code)
		}
		_, raw := api(t, http.MethodGet, n.HTTP()+"/metrics")
		if text := string(raw); !strings.Contains(text, `warren_password_checks_total{outcome="remembered"}`) || strings.Contains(text, `warren_password_checks_total{outcome="remembered"} 0`) {
			t.Errorf("%s remembers nothing", n.Name)
		}
	}
}

// TestDefaultUser founds a cluster with a user of its own in place of guest. The file with the password counts then and never again.
func TestDefaultUser(t *testing.T) {
	t.Parallel()
	const first, second = "first secret", "second secret"
	dir := t.TempDir()
	file := func(node string) string { return filepath.Join(dir, node) }
	c := newCluster(t, 3, func(cfg *cluster.Config) {
		cfg.Places = func(node string) (cluster.Place, error) {
			return cluster.Place{Args: func(cluster.Addrs) ([]string, error) {
				return []string{"--default-user", "admin", "--default-pass-file", file(node), "--default-user-tags", "administrator,founder", "--password-hashing", "bcrypt:5"}, nil
			}}, nil
		}
	})
	write := func(n *cluster.Node, text string) {
		t.Helper()
		if err := os.WriteFile(file(n.Name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	refusedDefaultUser(t, c.Node(0), "no such file")
	for text, want := range map[string]string{"": "a password cannot be empty", "two\nlines\n": "a password is one line of text"} {
		write(c.Node(0), text)
		refusedDefaultUser(t, c.Node(0), want)
	}
	for _, n := range c.Nodes() {
		write(n, first+"\n")
	}
	startAll(t, c)
	check := func(password, other string) {
		t.Helper()
		for _, n := range c.Nodes() {
			conn, err := login(n, "admin", password, "/")
			if err != nil {
				t.Fatalf("%s: %v", n.Name, err)
			}
			ch, err := conn.Channel()
			if err == nil {
				_, err = ch.QueueDeclare("of-"+n.Name, true, false, false, false, nil)
			}
			if err != nil {
				t.Errorf("%s: %v", n.Name, err)
			}
			conn.Close()
			for user, password := range map[string]string{"admin": other, "guest": "guest"} {
				if conn, err := login(n, user, password, "/"); err == nil {
					conn.Close()
					t.Errorf("%s lets %s in", n.Name, user)
				}
			}
		}
		mustCtl(t, c.Node(0), "--user", "admin", "--password", password, "cluster_status")
		if out, err := localCtl(t, c.Node(0), "list_users", "--silent"); err != nil || strings.TrimSpace(out) != "admin\t[administrator, founder]" {
			t.Errorf("users: %q, %v", out, err)
		}
	}
	check(first, second)

	stopAll(t, c)
	write(c.Node(0), second)
	if err := os.Remove(file(c.Node(1).Name)); err != nil {
		t.Fatal(err)
	}
	startAll(t, c)
	check(first, second)
	if out, err := localCtl(t, c.Node(1), "change_password", "admin", second); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	check(second, first)
	costlyHashes(t, c, second)
}

// refusedDefaultUser starts a node that cannot found anything with its file and says so.
func refusedDefaultUser(t *testing.T, n *cluster.Node, want string) {
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
	last := lines[len(lines)-1]
	if !strings.Contains(last, "warren: default user: default-pass-file: ") || !strings.Contains(last, want) {
		t.Errorf("it says %q, want %q", last, want)
	}
}
