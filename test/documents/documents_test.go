package documents

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

const root = "../.."

// files returns the contents of the repository's files whose names end so, by their paths.
func files(t *testing.T, endings ...string) map[string]string {
	t.Helper()
	found := map[string]string{}
	err := filepath.WalkDir(root, func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if e.IsDir() && path != root && (strings.HasPrefix(e.Name(), ".") || e.Name() == "node_modules" || e.Name() == "testdata") {
			return filepath.SkipDir
		}
		for _, ending := range endings {
			if e.Type().IsRegular() && strings.HasSuffix(path, ending) {
				raw, err := os.ReadFile(path)
				found[path] = string(raw)
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// TestNamedTargets: documents name targets that the Makefile has.
func TestNamedTargets(t *testing.T) {
	raw, err := os.ReadFile(filepath.Join(root, "Makefile"))
	if err != nil {
		t.Fatal(err)
	}
	there := map[string]bool{}
	for _, m := range regexp.MustCompile(`(?m)^([a-z0-9-]+):`).FindAllStringSubmatch(string(raw), -1) {
		there[m[1]] = true
	}
	for path, text := range files(t, ".md") {
		for _, m := range regexp.MustCompile("(?m)(?:`|^ {4})make ([a-z0-9-]+)").FindAllStringSubmatch(text, -1) {
			if !there[m[1]] {
				t.Errorf("%s names make %s, which there is not", path, m[1])
			}
		}
	}
}

// TestAlertsAreInTheRunbook: for each alert docs/operations.md says where to read on, and names no other.
func TestAlertsAreInTheRunbook(t *testing.T) {
	rules, err := os.ReadFile(filepath.Join(root, "deploy/prometheus/warren.rules.yml"))
	if err != nil {
		t.Fatal(err)
	}
	runbook, err := os.ReadFile(filepath.Join(root, "docs/operations.md"))
	if err != nil {
		t.Fatal(err)
	}
	alerts := map[string]bool{}
	for _, m := range regexp.MustCompile(`alert: (\w+)`).FindAllStringSubmatch(string(rules), -1) {
		alerts[m[1]] = true
		if !strings.Contains(string(runbook), "`"+m[1]+"`") {
			t.Errorf("the runbook does not name the alert %s", m[1])
		}
	}
	for _, m := range regexp.MustCompile("`(Warren[A-Z]\\w+)`").FindAllStringSubmatch(string(runbook), -1) {
		if !alerts[m[1]] {
			t.Errorf("the runbook names the alert %s, which there is not", m[1])
		}
	}
}
