package cluster

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// RaceEnv is the environment variable that, when not empty, makes Build switch
// the race detector on in the nodes.
const RaceEnv = "WARREN_TEST_RACE"

// BinaryEnv is the environment variable that names a node's binary to test in
// place of what Build compiles.
const BinaryEnv = "WARREN_TEST_BINARY"

// Build compiles the node's binary, with its page where npm is installed, into dir and returns its path. It must run
// inside the module. An empty RaceEnv builds what `make build` builds, with the
// cheap self-checks only. With build tags of the caller's, BinaryEnv does not count.
func Build(ctx context.Context, dir string, tags ...string) (string, error) {
	if binary := os.Getenv(BinaryEnv); binary != "" && len(tags) == 0 {
		return filepath.Abs(binary)
	}
	binary := filepath.Join(dir, strings.Join(append([]string{"warren"}, tags...), "-"))
	if err := buildPage(ctx); err != nil {
		return "", err
	}
	args := []string{"build", "-o", binary, "-ldflags", "-s -w"} // as make build has it: half the work of linking
	cgo := "CGO_ENABLED=0"
	if os.Getenv(RaceEnv) != "" {
		args = append(args, "-race")
		tags = append(slices.Clip(tags), "invariants")
		cgo = "CGO_ENABLED=1"
	}
	args = append(args, "-tags", strings.Join(tags, ","))
	cmd := exec.CommandContext(ctx, "go", append(args, "github.com/warrenmq/warren/cmd/node")...)
	cmd.Env = append(os.Environ(), cgo)
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build the node: %w: %s", err, strings.TrimSpace(string(out)))
	}
	return binary, nil
}

// buildPage makes what the node's binary embeds as its page. It takes some hundredths of a second unless the page has changed.
func buildPage(ctx context.Context) error {
	at, err := exec.CommandContext(ctx, "go", "list", "-f", "{{.Dir}}", "github.com/warrenmq/warren/web").Output()
	if err != nil {
		return fmt.Errorf("find the page: %w", err)
	}
	cmd := exec.CommandContext(ctx, "go", "run", "github.com/warrenmq/warren/web/bundle", "-if-possible", "-dir", strings.TrimSpace(string(at)))
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build the page: %w: %s", err, strings.TrimSpace(string(out)))
	}
	return nil
}
