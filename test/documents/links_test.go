package documents

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// What the documents promise names the test that shows it: the test must be there.
func TestDocumentsNameTestsThatExist(t *testing.T) {
	tests, documents := map[string]bool{}, map[string]string{}
	declared := regexp.MustCompile(`(?m)^func ((?:Test|Fuzz|Benchmark)\w+)\(`)
	err := filepath.WalkDir("../..", func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (d.Name() == "node_modules" || d.Name() == ".git"):
			return filepath.SkipDir
		case strings.HasSuffix(path, "_test.go"):
			src, err := os.ReadFile(path)
			for _, m := range declared.FindAllSubmatch(src, -1) {
				tests[string(m[1])] = true
			}
			return err
		case strings.HasSuffix(path, ".md"):
			text, err := os.ReadFile(path)
			documents[path] = string(text)
			return err
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	named := regexp.MustCompile(`\b(?:Test|Fuzz|Benchmark)[A-Z]\w+\b`)
	for path, text := range documents {
		for _, name := range named.FindAllString(text, -1) {
			if !tests[name] {
				t.Errorf("%s names %s, which is not there", path, name)
			}
		}
	}
}

// Links between documents lead to files that are there, and to headings that are in them.
func TestDocumentLinks(t *testing.T) {
	link := regexp.MustCompile(`\]\(([^)#\s:]*)(?:#([^)\s]*))?\)`)
	code := regexp.MustCompile("(?s)```.*?```|`[^`\n]*`")
	headings := map[string]map[string]bool{} // by path
	err := filepath.WalkDir("../..", func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (d.Name() == "node_modules" || d.Name() == ".git" || d.Name() == ".run"):
			return filepath.SkipDir
		case !strings.HasSuffix(path, ".md"):
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		for _, m := range link.FindAllStringSubmatch(code.ReplaceAllString(string(text), ""), -1) {
			to := path
			if m[1] != "" {
				to = filepath.Join(filepath.Dir(path), m[1])
			}
			if _, err := os.Stat(to); err != nil {
				t.Errorf("%s: %s is not there", path, m[0])
				continue
			}
			if m[2] == "" || !strings.HasSuffix(to, ".md") {
				continue
			}
			if headings[to] == nil {
				headings[to] = anchors(t, to)
			}
			if !headings[to][m[2]] {
				t.Errorf("%s: %s: no such heading", path, m[0])
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// anchors are the headings of a document in the form in which links name them.
func anchors(t *testing.T, path string) map[string]bool {
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	dropped := regexp.MustCompile(`[^\p{L}\p{N} _-]`)
	all := map[string]bool{}
	for line := range strings.Lines(string(text)) {
		if hashes, title, ok := strings.Cut(strings.TrimSpace(line), " "); ok && hashes != "" && strings.Trim(hashes, "#") == "" {
			all[strings.ReplaceAll(dropped.ReplaceAllString(strings.ToLower(title), ""), " ", "-")] = true
		}
	}
	return all
}
