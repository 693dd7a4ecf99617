package upgrade

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/warrenmq/warren/test/cluster"
)

// olderEnv names the binary of a former program, to be tested in place of the one of this tree that stands for it.
const olderEnv = "WARREN_TEST_OLDER"

const timeoutStart = 2 * time.Minute

// programs are this program and the former one, which knows level 1 only unless olderEnv names another.
var programs = sync.OnceValues(func() (p struct{ newer, older string }, err error) {
	if p.newer, err = cluster.Build(context.Background(), buildDir); err == nil {
		if p.older = os.Getenv(olderEnv); p.older == "" {
			p.older, err = cluster.Build(context.Background(), buildDir, "level1")
		}
	}
	return p, err
})

var buildDir string

func TestMain(m *testing.M) {
	os.Exit(func() int {
		if os.Getenv("GORACE") == "" {
			os.Setenv("GORACE", "atexit_sleep_ms=10")
		}
		var err error
		if buildDir, err = os.MkdirTemp("", "warren-upgrade-"); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		defer os.RemoveAll(buildDir)
		return m.Run()
	}())
}

// fixture prepares nodes on the folders of a fixture, with binaries as told and the cluster's level held where it is.
func fixture(t *testing.T, file string, binaries ...string) *cluster.Cluster {
	t.Helper()
	c, err := cluster.New(cluster.Config{Nodes: 3, Binary: binaries[0], Dir: t.TempDir(), Args: []string{"--upgrade-settle", "manual"}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
		if crashes := c.Crashes(); crashes != "" {
			t.Error(crashes)
		}
		if t.Failed() {
			t.Log(c.Logs())
		}
	})
	folders := t.TempDir()
	if err := Unpack(filepath.Join("testdata", file), folders); err != nil {
		t.Fatal(err)
	}
	for i, n := range c.Nodes() {
		n.SetBinary(binaries[i%len(binaries)])
		if err := os.MkdirAll(n.Dir, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(filepath.Join(folders, n.Name), n.DataDir()); err != nil {
			t.Fatal(err)
		}
	}
	start(t, c)
	return c
}

func start(t *testing.T, c *cluster.Cluster) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), timeoutStart)
	defer cancel()
	if err := c.StartAll(ctx); err != nil {
		t.Fatal(err)
	}
}

// replace restarts nodes with another program, one by one.
func replace(t *testing.T, binary string, nodes ...*cluster.Node) {
	t.Helper()
	for _, n := range nodes {
		ctx, cancel := context.WithTimeout(t.Context(), timeoutStart)
		defer cancel()
		if err := n.Stop(ctx); err != nil {
			t.Fatal(err)
		}
		n.SetBinary(binary)
		if err := n.Start(ctx); err != nil {
			t.Fatal(err)
		}
	}
}

func check(t *testing.T, c *cluster.Cluster, node int, scenes ...Scene) {
	t.Helper()
	for _, sc := range scenes {
		if err := sc.Check(t.Context(), c, node); err != nil {
			t.Errorf("scene %q: %v", sc.Prefix, err)
		}
	}
}

// TestFormerFolders starts this program on what the former one left when it was killed, at each of its levels.
func TestFormerFolders(t *testing.T) {
	for _, file := range []string{"level1.tar.gz", "level2.tar.gz"} {
		t.Run(file, func(t *testing.T) {
			t.Parallel()
			p, err := programs()
			if err != nil {
				t.Fatal(err)
			}
			c := fixture(t, file, p.newer)
			check(t, c, 1, Scene{})
			// What it writes itself it reads, beside what was there.
			release, err := Scene{Prefix: "second-"}.Make(t.Context(), c)
			defer release()
			if err != nil {
				t.Fatal(err)
			}
			if err := c.KillAll(); err != nil {
				t.Fatal(err)
			}
			start(t, c)
			check(t, c, 2, Scene{Prefix: "second-"})
		})
	}
}

// TestUpgradeAndDowngradeFolders goes from the former program to this one and back, node by node, on the former one's folders. The cluster works with
// both at each step; what either left is there for the other. Then all nodes have this program, and the cluster takes its level.
func TestUpgradeAndDowngradeFolders(t *testing.T) {
	t.Parallel()
	p, err := programs()
	if err != nil {
		t.Fatal(err)
	}
	c := fixture(t, "level1.tar.gz", p.newer, p.newer, p.older)
	make := func(prefix string) {
		t.Helper()
		release, err := Scene{Prefix: prefix}.Make(t.Context(), c)
		release()
		if err != nil {
			t.Fatal(err)
		}
	}
	make("both-") // through the newer program, with the older one among the members
	replace(t, p.older, c.Node(0), c.Node(1))
	check(t, c, 0, Scene{}) // all old again: the fixture was not touched yet
	make("old-")
	if err := c.KillAll(); err != nil {
		t.Fatal(err)
	}
	for _, n := range c.Nodes()[:2] {
		n.SetBinary(p.newer)
	}
	start(t, c)
	check(t, c, 2, Scene{Prefix: "both-"}) // through the older program
	replace(t, p.newer, c.Node(2))
	enable(t, c.Node(0), p.newer)
	check(t, c, 1, Scene{Prefix: "old-"})
}

// TestBothProgramsAtOneLevel has consumers through nodes of this program and of the former one, which has its level, at queues that either leads. If no
// other one is named, all nodes have this program.
func TestBothProgramsAtOneLevel(t *testing.T) {
	t.Parallel()
	p, err := programs()
	if err != nil {
		t.Fatal(err)
	}
	former := cmp.Or(os.Getenv(olderEnv), p.newer)
	c := fixture(t, "level2.tar.gz", p.newer, former, former)
	ctx, cancel := context.WithTimeout(t.Context(), timeoutStart)
	defer cancel()
	for i := range 6 {
		name := fmt.Sprintf("both-%d", i)
		for j, n := range []*cluster.Node{c.Node(1), c.Node(0), c.Node(2)} { // the others have said nothing to the leader when a consumer comes
			if err := passOne(ctx, n, name, j == 0); err != nil {
				t.Fatalf("a consumer of %s at %s: %v", name, n.Name, err)
			}
		}
	}
}

// passOne publishes a message through a node and consumes it there.
func passOne(ctx context.Context, n *cluster.Node, queue string, declare bool) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	conn, err := amqp.Dial(n.URL())
	if err != nil {
		return err
	}
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	defer conn.Close()
	ch, err := conn.Channel()
	if err != nil {
		return err
	}
	if declare {
		if _, err = ch.QueueDeclare(queue, true, false, false, false, nil); err != nil {
			return err
		}
	}
	deliveries, err := ch.Consume(queue, "", true, false, false, false, nil)
	if err != nil {
		return err
	}
	if err = ch.PublishWithContext(ctx, "", queue, false, false, amqp.Publishing{DeliveryMode: amqp.Persistent, Body: []byte("x")}); err != nil {
		return err
	}
	select {
	case <-deliveries:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// enable has the cluster take the newest level, as soon as its leader finds that all nodes know it.
func enable(t *testing.T, n *cluster.Node, binary string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), timeoutStart)
	defer cancel()
	var said string
	err := cluster.Poll(ctx, func() (bool, error) {
		out, err := exec.CommandContext(ctx, binary, "ctl", "--url", n.HTTP(), "enable_feature_flag", "all").CombinedOutput()
		said = string(out)
		return err == nil, nil
	})
	if err != nil {
		t.Fatalf("%v: %s", err, said)
	}
	err = cluster.Poll(ctx, func() (bool, error) {
		out, err := exec.CommandContext(ctx, binary, "ctl", "--url", n.HTTP(), "list_feature_flags", "-q").CombinedOutput()
		said = string(out)
		return err == nil && !strings.Contains(said, "disabled"), nil
	})
	if err != nil {
		t.Errorf("%v: %s", err, said)
	}
}

func TestPack(t *testing.T) {
	from, to := t.TempDir(), t.TempDir()
	body := append([]byte("x\x00y"), make([]byte, 1<<20)...)
	for name, b := range map[string][]byte{"a": body, "sub/empty": nil, "sub/zeros": make([]byte, 10)} {
		path := filepath.Join(from, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	file := filepath.Join(t.TempDir(), "packed")
	if err := Pack(from, file); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(file); err != nil || info.Size() > 1000 {
		t.Errorf("%v, %v", info.Size(), err)
	}
	if err := Unpack(file, to); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{"a": string(body), "sub/empty": "", "sub/zeros": strings.Repeat("\x00", 10)} {
		if got, err := os.ReadFile(filepath.Join(to, name)); err != nil || string(got) != want {
			t.Errorf("%s: %d bytes, want %d: %v", name, len(got), len(want), err)
		}
	}
	if err := os.WriteFile(file, []byte("none"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := Unpack(file, to); err == nil {
		t.Error("unpacked nothing")
	}
}
