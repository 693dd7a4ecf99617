package process

import (
	"bytes"
	"context"
	"io/fs"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

const (
	moduleAMQP091  = "github.com/rabbitmq/amqp091-go"
	timeoutAMQP091 = 8 * time.Minute
)

// notForWarren are the tests of amqp091-go that cannot pass, or say nothing of the
// broker, by name, each with the reason.
var notForWarren = map[string]string{
	// RabbitMQ does not implement immediate and the test wants its 540. Warren
	// does: docs/compatibility.md, "Better".
	"TestIntegrationPublishImmediate": "immediate works here",
	// It talks to a few lines of its own instead of a broker, six times with a millisecond's patience.
	"TestNotifyClosesAllChansAfterConnectionClose": "no broker in it, and no time",
}

// TestAMQP091Integration runs the tests that ship in amqp091-go's module against
// three nodes, from a copy of the module: they look for the management API at
// port 15672, where a test may not listen, and give an answer 200 ms, which nodes
// with the race detector on a busy machine may need.
func TestAMQP091Integration(t *testing.T) {
	t.Parallel()
	needWarren(t)
	c := sharedCluster(t, 3)
	ctx, cancel := context.WithTimeout(t.Context(), timeoutAMQP091)
	defer cancel()
	dir := copyModule(ctx, t, moduleAMQP091)
	api, err := url.Parse(c.Node(1).HTTP()) // any node ends any connection
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"internal/utils/http.go", "recovery_test.go"} {
		replaceText(t, filepath.Join(dir, name), "15672", api.Port())
	}
	// Three tests do nothing, and leave their connection, if this is not the product.
	replaceText(t, filepath.Join(dir, "integration_test.go"), `"RabbitMQ"`, `"Warren"`)
	relaxLimits(t, filepath.Join(dir, "integration_test.go"))
	suite := amqp091Suite{dir: dir, url: c.Node(0).URL()}
	suite.build(ctx, t)
	var skip []string
	for name, reason := range notForWarren {
		t.Logf("left out: %s (%s)", name, reason)
		skip = append(skip, "^"+name+"$")
	}
	// The tests of recovery mostly wait, so they run beside the others, and beside each other.
	const recovery = "ConnectionRecovery"
	runs := [][]string{{"-test.skip", strings.Join(append(skip, recovery), "|")}}
	for names := range slices.Chunk(suite.list(ctx, t, recovery), 4) {
		runs = append(runs, []string{"-test.run", "^(" + strings.Join(names, "|") + ")$"})
	}
	var passed atomic.Int64
	var wg sync.WaitGroup
	for _, args := range runs {
		wg.Go(func() { passed.Add(int64(suite.run(ctx, t, args...))) })
	}
	wg.Wait()
	if t.Logf("%d tests passed", passed.Load()); passed.Load() < 200 {
		t.Errorf("only %d tests passed", passed.Load())
	}
}

// amqp091Suite is the compiled test of a copy of the module.
type amqp091Suite struct{ dir, url string }

const amqp091Binary = "amqp091.test"

func (s amqp091Suite) build(ctx context.Context, t *testing.T) {
	t.Helper()
	cmd := exec.CommandContext(ctx, "go", "test", "-c", "-tags", "integration", "-o", amqp091Binary, ".")
	cmd.Dir = s.dir
	cmd.Env = append(os.Environ(), "GOFLAGS=-mod=mod", "GOWORK=off")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
}

// list lists the tests whose names match.
func (s amqp091Suite) list(ctx context.Context, t *testing.T, pattern string) (names []string) {
	t.Helper()
	out, err := exec.CommandContext(ctx, filepath.Join(s.dir, amqp091Binary), "-test.list", pattern).Output()
	if err != nil {
		t.Fatal(err)
	}
	for name := range strings.FieldsSeq(string(out)) {
		if strings.HasPrefix(name, "Test") {
			names = append(names, name)
		}
	}
	return names
}

// run runs tests and returns how many passed.
func (s amqp091Suite) run(ctx context.Context, t *testing.T, args ...string) (passed int) {
	t.Helper()
	cmd := exec.CommandContext(ctx, filepath.Join(s.dir, amqp091Binary), append(args, "-test.v", "-test.timeout", timeoutAMQP091.String())...)
	cmd.Dir = s.dir
	cmd.Env = append(os.Environ(), "AMQP_URL="+s.url)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Errorf("%v\n%s", err, failures(out))
	}
	return bytes.Count(out, []byte("\n--- PASS: "))
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

// replaceText changes a text in a file, which must be there.
func replaceText(t *testing.T, file, from, to string) {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Contains(data, []byte(from)) {
		t.Fatalf("%s does not say %s", file, from)
	}
	if err := os.WriteFile(file, bytes.ReplaceAll(data, []byte(from), []byte(to)), 0o644); err != nil {
		t.Fatal(err)
	}
}

// relaxLimits gives the tests of a file more time for each answer.
func relaxLimits(t *testing.T, file string) {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	limit := regexp.MustCompile(`case <-time\.After\([12]\d\d \* time\.Millisecond\):`)
	if !limit.Match(data) {
		t.Fatalf("%s has no limits to relax", file)
	}
	if err := os.WriteFile(file, limit.ReplaceAll(data, []byte("case <-time.After(15 * time.Second):")), 0o644); err != nil {
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
