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

var (
	heading  = regexp.MustCompile(`(?m)^#+ (.+)$`)
	link     = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	linked   = regexp.MustCompile(`\[([^\]]*)\]\([^)]*\)`)
	unspoken = regexp.MustCompile(`[^\p{L}\p{N}_ -]`)
)

// anchors are the names by which links find the headings of a document.
func anchors(text string) map[string]bool {
	found := map[string]bool{}
	for _, m := range heading.FindAllStringSubmatch(text, -1) {
		name := unspoken.ReplaceAllString(strings.ToLower(linked.ReplaceAllString(m[1], "$1")), "")
		found[strings.ReplaceAll(strings.TrimSpace(name), " ", "-")] = true
	}
	return found
}

// TestLinks: what a document links to is there, with the heading if it names one.
func TestLinks(t *testing.T) {
	documents := files(t, ".md")
	if len(documents) < 50 {
		t.Fatalf("only %d documents were found", len(documents))
	}
	for path, text := range documents {
		for _, m := range link.FindAllStringSubmatch(text, -1) {
			if strings.Contains(m[1], "://") {
				continue
			}
			file, anchor, _ := strings.Cut(m[1], "#")
			target := path
			if file != "" {
				target = filepath.Join(filepath.Dir(path), file)
			}
			if _, err := os.Stat(target); err != nil {
				t.Errorf("%s links to %s, which there is not", path, m[1])
			} else if other, ok := documents[target]; ok && anchor != "" && !anchors(other)[anchor] {
				t.Errorf("%s links to %s, which has no such heading", path, m[1])
			}
		}
	}
}

// TestNamedTests: documents name tests that there are. The changelog tells of former ones, too.
func TestNamedTests(t *testing.T) {
	there := map[string]bool{}
	for _, text := range files(t, ".go") {
		for _, m := range regexp.MustCompile(`(?m)^func ((?:Test|Benchmark|Fuzz)\w+)`).FindAllStringSubmatch(text, -1) {
			there[m[1]] = true
		}
	}
	for path, text := range files(t, ".md") {
		if filepath.Base(path) == "CHANGELOG.md" {
			continue
		}
		for _, name := range regexp.MustCompile(`\b(?:Test|Benchmark|Fuzz)[A-Z]\w+\b`).FindAllString(text, -1) {
			if !there[name] {
				t.Errorf("%s names %s, which there is not", path, name)
			}
		}
	}
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
