package process

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/warrenmq/warren/test/cluster"
)

// TestDefaultUser founds a cluster with a user of its own in place of guest. The file with the password counts then and never again.
func TestDefaultUser(t *testing.T) {
	t.Parallel()
	const first, second = "first secret", "second secret"
	dir := t.TempDir()
	file := func(node string) string { return filepath.Join(dir, node) }
	c := newCluster(t, 3, func(cfg *cluster.Config) {
		cfg.Places = func(node string) (cluster.Place, error) {
			return cluster.Place{Args: func(cluster.Addrs) ([]string, error) {
				return []string{"--default-user", "admin", "--default-pass-file", file(node), "--default-user-tags", "administrator,founder"}, nil
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
