package process

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestGoExample runs the example of the Go client: jobs that are tried again, and parked.
func TestGoExample(t *testing.T) {
	t.Parallel()
	c := ctlCluster(t)
	binary := filepath.Join(t.TempDir(), "retry")
	build := exec.CommandContext(t.Context(), "go", "build", "-o", binary, "github.com/warrenmq/warren/client/examples/retry")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if text, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	var addrs []string
	for _, n := range c.Nodes() {
		addrs = append(addrs, n.GRPCAddr())
	}
	cmd := exec.CommandContext(t.Context(), binary, "--addrs", strings.Join(addrs, ","), "--prefix", "goexample.")
	cmd.WaitDelay = time.Second
	text, err := cmd.CombinedOutput()
	if want := "at once: tried 1 times\nthe second time: tried 2 times\nnever: tried 3 times\nparked: never\n"; err != nil || string(text) != want {
		t.Errorf("%v\n%s\nwant\n%s", err, text, want)
	}
}
