package process

import (
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/warrenmq/warren/test/cluster"
)

func newKey(t *testing.T) string {
	t.Helper()
	b := make([]byte, 32)
	if _, err := rand.Read(b); err != nil {
		t.Fatal(err)
	}
	return base64.StdEncoding.EncodeToString(b)
}

// keysRig is three nodes that seal their gossip, each with a file of its own.
type keysRig struct {
	*testing.T
	*cluster.Cluster
	dir string
}

func (r *keysRig) file(node string) string { return filepath.Join(r.dir, node) }

// give writes a node's keys and has it look at them.
func (r *keysRig) give(n *cluster.Node, keys ...string) {
	r.Helper()
	if err := os.WriteFile(r.file(n.Name), []byte(strings.Join(keys, "\n")+"\n"), 0o600); err != nil {
		r.Fatal(err)
	}
	if err := n.Signal(syscall.SIGHUP); err != nil {
		r.Fatal(err)
	}
}

// agreed waits until every node has so many keys and all have the same.
func (r *keysRig) agreed(count int) string {
	r.Helper()
	var last string
	eventually(r.T, func() error {
		code, out, failure := ctl(r.T, r.Node(0), "gossip_keys", "--silent")
		lines := strings.Split(strings.TrimSpace(out), "\n")
		if code != 0 || len(lines) != 3 {
			return fmt.Errorf("exit code %d: %s%s", code, out, failure)
		}
		_, keys, _ := strings.Cut(lines[0], "on\t")
		if len(strings.Fields(keys)) != count {
			return errors.New(out)
		}
		last = keys
		return nil
	})
	return last
}

// TestGossipKeysRotate takes a new key into use in three steps while a node comes and goes. A node with another key finds nobody, and
// its queues go on: gossip only finds addresses.
func TestGossipKeysRotate(t *testing.T) {
	t.Parallel()
	r := &keysRig{T: t, dir: t.TempDir()}
	r.Cluster = newCluster(t, 3, func(cfg *cluster.Config) {
		cfg.Places = func(node string) (cluster.Place, error) {
			return cluster.Place{Args: func(cluster.Addrs) ([]string, error) {
				return []string{"--gossip-encryption", "on", "--gossip-key-file", r.file(node)}, nil
			}}, nil
		}
	})
	old, next := newKey(t), newKey(t)
	for _, n := range r.Nodes() {
		r.give(n, old)
	}
	startAll(t, r.Cluster)
	first := r.agreed(1)
	for _, keys := range [][]string{{old, next}, {next, old}, {next}} {
		for i, n := range r.Nodes() {
			r.give(n, keys...)
			if i == 0 && len(keys) == 1 {
				if code, out, failure := ctl(t, r.Node(1), "gossip_keys"); code != 70 && code != 0 || code == 70 && (!strings.Contains(failure, "same keys") || !strings.Contains(out, first)) {
					t.Errorf("exit code %d: %s%s", code, out, failure)
				}
			}
		}
		r.agreed(len(keys))
	}
	if now := r.agreed(1); now == first || strings.Contains(now, next) {
		t.Errorf("keys %q, then %q", first, now)
	}
	// A node that moves is found again, so the gossip works with the new key.
	last := r.Node(2)
	stopNode(t, last)
	if err := last.Move(); err != nil {
		t.Fatal(err)
	}
	start(t, last)
	for _, n := range r.Nodes() {
		if got := figure(t, n, "warren_gossip_keys"); got != 1 {
			t.Errorf("%s has %d keys", n.Name, got)
		}
	}
	// Content that is no key changes nothing.
	r.give(last, "nonsense")
	eventually(t, func() error {
		if figure(t, last, "warren_gossip_key_reload_failures_total") != 1 {
			return errors.New("not counted")
		}
		return nil
	})
	r.agreed(1)
	// Neither does a key of another cluster stop what runs.
	r.give(last, newKey(t))
	eventually(t, func() error {
		if code, _, _ := ctl(t, r.Node(0), "gossip_keys"); code != 70 {
			return fmt.Errorf("exit code %d", code)
		}
		return nil
	})
	eventually(t, func() error {
		if figure(t, last, "warren_gossip_unopened_total") == 0 {
			return errors.New("it opens everything")
		}
		return nil
	})
	s := at(t, last)
	q := plainQueue(s, "sealed", nil)
	s.fill(q, "one", "two")
	s.get(q)
}
