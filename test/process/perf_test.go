package process

import (
	"bytes"
	"encoding/json"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestPerfMovesDeadLetters runs the load tool as one does by hand: each way into a target queue, on three nodes of its own.
func TestPerfMovesDeadLetters(t *testing.T) {
	t.Parallel()
	binary, err := shared.binary()
	if err != nil {
		t.Fatal(err)
	}
	tool := filepath.Join(t.TempDir(), "warren-perf")
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", tool, "github.com/warrenmq/warren/cmd/perf").CombinedOutput(); err != nil {
		t.Fatalf("build the tool: %v\n%s", err, out)
	}
	for _, tc := range []struct {
		name, args string
		sent       int    // 0: as many as a second takes
		phase      string // of which profiles are kept
	}{
		{"reject over gRPC", "--via reject --preload 500 --protocol grpc", 500, ""},
		{"delivery limit", "--via delivery-limit --preload 500", 500, "move"},
		{"ttl", "--via ttl --rate 500 --warmup 200ms --duration 1s", 0, "load"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			args := append(strings.Fields(tc.args), "--start", binary, "--nodes", "3", "--dir", t.TempDir(), "--size", "100")
			profiles := t.TempDir()
			if tc.phase != "" {
				args = append(args, "--profiles", profiles)
			}
			var out, errs bytes.Buffer
			cmd := exec.CommandContext(t.Context(), tool, append([]string{"deadletter"}, args...)...)
			cmd.Stdout, cmd.Stderr = &out, &errs
			if err := cmd.Run(); err != nil {
				t.Fatalf("%v\n%s", err, errs.Bytes())
			}
			if kept, err := filepath.Glob(filepath.Join(profiles, tc.phase+"-*.pprof")); err != nil || tc.phase != "" && len(kept) != 3*4 {
				t.Errorf("profiles: %q, %v, want four of each node", kept, err)
			}
			var r struct {
				Sent, Confirmed, Received, Lost, Duplicates int
				Moved                                       float64 `json:"deadlettered_per_s"`
			}
			if err := json.Unmarshal(out.Bytes(), &r); err != nil {
				t.Fatalf("%v in %q", err, out.Bytes())
			}
			if r.Received != r.Confirmed || r.Lost+r.Duplicates != 0 || r.Moved <= 0 || r.Confirmed == 0 || tc.sent > 0 && r.Confirmed != tc.sent {
				t.Errorf("%+v, want all confirmed messages in the target, once", r)
			}
		})
	}
}
