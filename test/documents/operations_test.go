package documents

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/warrenmq/warren/config"
)

// read returns a file of the repository.
func read(t *testing.T, path string) string {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join(root, path))
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

// TestQuotedLogLines: what docs/operations.md quotes of a node's log is in the program.
func TestQuotedLogLines(t *testing.T) {
	_, section, ok := strings.Cut(read(t, "docs/operations.md"), "\n## What the log says\n")
	section, _, more := strings.Cut(section, "\n## ")
	if !ok || !more {
		t.Fatal("docs/operations.md has no section of what the log says")
	}
	var program strings.Builder
	for path, text := range files(t, ".go") {
		if !strings.HasSuffix(path, "_test.go") {
			program.WriteString(text)
		}
	}
	place := regexp.MustCompile(`…|\b(?:N|FILE|2m0s)\b|\b\w+=\S+`) // what the program fills in
	quoted := 0
	for _, m := range regexp.MustCompile(`(?m)^\| ([^|]*) \|`).FindAllStringSubmatch(section, -1) {
		for _, q := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(m[1], -1) {
			quoted++
			for _, part := range place.Split(q[1], -1) {
				part = strings.TrimPrefix(strings.Trim(part, " :,"), "panic: ")
				if !strings.Contains(program.String(), part) {
					t.Errorf("docs/operations.md quotes %q, and no program logs %q", q[1], part)
				}
			}
		}
	}
	if quoted < 20 {
		t.Errorf("only %d quotations were found", quoted)
	}
}

// TestNamedPaths: documents name paths of the management API that its description has.
func TestNamedPaths(t *testing.T) {
	var there [][]string
	for _, m := range regexp.MustCompile(`(?m)^  (/\S+):$`).FindAllStringSubmatch(read(t, "management/openapi.yaml"), -1) {
		there = append(there, strings.Split("/api"+m[1], "/"))
	}
	named := regexp.MustCompile("(?:`|GET |PUT |POST |DELETE )(/api/[^`\\s?#…),;]*)")
	for path, text := range files(t, ".md") {
		for _, m := range named.FindAllStringSubmatch(text, -1) {
			if m[1] != "/api/openapi.yaml" && !anyPath(there, strings.Split(m[1], "/")) {
				t.Errorf("%s names %s, which management/openapi.yaml does not have", path, m[1])
			}
		}
	}
}

// anyPath tells whether one of there is the path asked for, or begins like it if that ends with a slash.
func anyPath(there [][]string, asked []string) bool {
	begins := asked[len(asked)-1] == ""
	if begins {
		asked = asked[:len(asked)-1]
	}
	return slices.ContainsFunc(there, func(p []string) bool {
		if len(p) < len(asked) || !begins && len(p) != len(asked) {
			return false
		}
		return slices.EqualFunc(p[:len(asked)], asked, func(p, a string) bool { return p == a || strings.HasPrefix(p, "{") })
	})
}

// TestSystemdUnit: systemd waits longer for the node to end than the node takes by default, and reads the settings where the runbook puts them.
func TestSystemdUnit(t *testing.T) {
	unit := read(t, "deploy/systemd/warren.service")
	m := regexp.MustCompile(`(?m)^TimeoutStopSec=(\d+)$`).FindStringSubmatch(unit)
	if m == nil {
		t.Fatal("no TimeoutStopSec in whole seconds")
	}
	if wait, err := time.ParseDuration(m[1] + "s"); err != nil || wait <= config.Default().StopTimeout {
		t.Errorf("systemd kills a node after %s, which may take %s (%v)", m[1], config.Default().StopTimeout, err)
	}
	runbook := read(t, "docs/operations.md")
	for _, path := range []string{"/usr/local/bin/", "/etc/warren/warren.yaml", "/var/lib/warren"} {
		if !strings.Contains(runbook, path) {
			t.Errorf("docs/operations.md does not name %s", path)
		}
	}
	for _, line := range []string{"ExecStart=/usr/local/bin/warren serve --config /etc/warren/warren.yaml", "StateDirectory=warren", "RestartPreventExitStatus=2"} {
		if !strings.Contains(unit, "\n"+line+"\n") {
			t.Errorf("the unit does not say %s", line)
		}
	}
}
