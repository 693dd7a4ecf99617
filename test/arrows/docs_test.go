package arrows

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
