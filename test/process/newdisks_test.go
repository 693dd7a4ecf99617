package process

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/warrenmq/warren/test/cluster"
)

// TestNewDisksDoNotHinderRecovery: two of three disks are lost, and new ones were mounted before anybody thought of `recover_cluster`, as Kubernetes does: the
// nodes wait with empty folders, linked to the one that is left. The commands of "Lost catalog" in docs/operations.md are run one after the other as they stand there.
func TestNewDisksDoNotHinderRecovery(t *testing.T) {
	t.Parallel()
	const messages = 5
	c := startCluster(t, 3)
	left, lost := c.Node(0), c.Nodes()[1:]
	s := at(t, left)
	plainQueue(s, "kept", nil)
	s.fill("kept", numbered("m-", messages)...)
	caughtUp(t, left, "kept")
	for _, v := range lost {
		kill(t, v)
	}
	await(t, timeoutStart, "nobody leads the catalog", func() bool {
		code, _, step := readyNow(t, left.HTTP())
		return code == 503 && step == "catalog"
	})
	renew := func() {
		t.Helper()
		for _, v := range lost {
			if err := os.RemoveAll(v.DataDir()); err != nil {
				t.Fatal(err)
			}
			if err := v.Launch(); err != nil {
				t.Fatal(err)
			}
		}
	}
	renew()
	for _, v := range lost {
		await(t, timeoutStart, "it waits to be let in", func() bool { return strings.Contains(v.LogTail(), "this node cannot join yet") })
	}
	names := lost[0].Name + "," + lost[1].Name
	local := func(args ...string) {
		t.Helper()
		socket := "unix://" + filepath.Join(left.DataDir(), "control.sock")
		if code, out, failure := ctl(t, left, append([]string{"--url", socket}, args...)...); code != 0 {
			t.Fatalf("%v: exit code %d\n%s%s\n%s", args, code, out, failure, left.LogTail())
		}
	}
	local("recover_cluster", "--lost", names)
	local("recover_cluster", "--lost", names, "--yes")
	local("await_startup")
	local("recover_queues", "--lost", names, "--yes")

	// They were known to the life that was left, and do not wait for it for ever.
	for _, v := range lost {
		ctx, cancel := context.WithTimeout(t.Context(), timeoutStart)
		code, err := v.Wait(ctx)
		cancel()
		if err != nil || code != 1 || !strings.Contains(v.LogTail(), "goes on as") {
			t.Fatalf("%s: exit code %d, %v\n%s", v.Name, code, err, v.LogTail())
		}
		if n := timesLogged(t, v, "this node cannot join yet"); n > 10 {
			t.Errorf("%s says %d times that it cannot join yet", v.Name, n)
		}
	}
	renew()
	waitReady(t, c.Nodes()...)
	s = at(t, lost[1])
	s.holdsAll("kept", numbered("m-", messages)...)
}

// timesLogged counts the lines of a node's log with a text.
func timesLogged(t *testing.T, n *cluster.Node, text string) int {
	t.Helper()
	raw, err := os.ReadFile(n.LogFile())
	if err != nil {
		t.Fatal(err)
	}
	return strings.Count(string(raw), text)
}
