package process

import (
	"bytes"
	"context"
	"io/fs"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

const (
	moduleAMQP091  = "github.com/rabbitmq/amqp091-go"
	timeoutAMQP091 = 8 * time.Minute
)

// notForWarren are the tests of amqp091-go that cannot pass, by name, each with
// the reason.
var notForWarren = map[string]string{
	// RabbitMQ does not implement immediate and the test wants its 540. Warren
	// does: docs/compatibility.md, "Differs".
	"TestIntegrationPublishImmediate": "immediate works here",
}

// TestAMQP091Integration runs the tests that ship in amqp091-go's module against
// three nodes, from a copy of the module: they look for the management API at
// port 15672, where a test may not listen.
func TestAMQP091Integration(t *testing.T) {
	needWarren(t)
	c := sharedCluster(t, 3)
	ctx, cancel := context.WithTimeout(t.Context(), timeoutAMQP091)
	defer cancel()
	dir := copyModule(ctx, t, moduleAMQP091)
	http, err := url.Parse(c.Node(1).HTTP()) // any node ends any connection
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"internal/utils/http.go", "recovery_test.go"} {
		replacePort(t, filepath.Join(dir, name), "15672", http.Port())
	}
	var skip []string
	for name, reason := range notForWarren {
		t.Logf("left out: %s (%s)", name, reason)
		skip = append(skip, "^"+name+"$")
	}
	cmd := exec.CommandContext(ctx, "go", "test", "-tags", "integration", "-timeout", timeoutAMQP091.String(),
		"-v", "-skip", strings.Join(skip, "|"), ".")
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "AMQP_URL="+c.Node(0).URL(), "GOFLAGS=-mod=mod", "GOWORK=off")
	out, err := cmd.CombinedOutput()
	passed := bytes.Count(out, []byte("\n--- PASS: "))
	t.Logf("%d tests passed", passed)
	if err != nil || passed < 200 {
		t.Errorf("%v\n%s", err, failures(out))
	}
}

// copyModule copies a module that this one requires into a folder of t.
func copyModule(ctx context.Context, t *testing.T, module string) (dir string) {
	t.Helper()
	out, err := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}", module).Output()
	if err != nil {
		t.Fatal(err)
	}
	from := strings.TrimSpace(string(out))
	dir = t.TempDir()
	err = filepath.WalkDir(from, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(from, path)
		if err != nil {
			return err
		}
		to := filepath.Join(dir, rel)
		if d.IsDir() {
			return os.MkdirAll(to, 0o755)
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		return os.WriteFile(to, data, 0o644)
	})
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// replacePort changes a port in a file, which must be there.
func replacePort(t *testing.T, file, from, to string) {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Contains(data, []byte(from)) {
		t.Fatalf("%s does not name port %s", file, from)
	}
	if err := os.WriteFile(file, bytes.ReplaceAll(data, []byte(from), []byte(to)), 0o644); err != nil {
		t.Fatal(err)
	}
}

// failures are the lines of a test run's output that tell what went wrong.
func failures(out []byte) string {
	var b strings.Builder
	var block []string
	for line := range strings.Lines(string(out)) {
		switch {
		case strings.HasPrefix(line, "=== "):
			block = block[:0]
		case strings.Contains(line, "--- FAIL"):
			b.WriteString(strings.Join(block, ""))
			b.WriteString(line)
			block = block[:0]
		case strings.HasPrefix(line, "--- ") || strings.HasPrefix(line, "PASS"):
			block = block[:0]
		default:
			block = append(block, line)
		}
	}
	b.WriteString(strings.Join(block[max(0, len(block)-60):], ""))
	return b.String()
}
