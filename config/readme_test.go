package config

import (
	"os"
	"regexp"
	"slices"
	"testing"
)

// TestReadmeListsSettings compares the table of settings in README.md with the settings that there are: their order, variables and defaults.
func TestReadmeListsSettings(t *testing.T) {
	raw, err := os.ReadFile("../README.md")
	if err != nil {
		t.Fatal(err)
	}
	rows := regexp.MustCompile("(?m)^\\| `--([a-z-]+)` \\| `([A-Z_]+)` \\| (?:`([^`]+)`|([^|]*?))? *\\| (.+) \\|$").FindAllStringSubmatch(string(raw), -1)
	defaults := Default()
	defaults.NodeID = "the host's name" // in words
	options := Options()
	if len(rows) != len(options)+1 || rows[0][1] != "config" {
		t.Errorf("README.md lists %d settings, want config and %d more", len(rows), len(options))
	}
	for _, row := range rows[1:] {
		i := slices.IndexFunc(options, func(o Option) bool { return o.Name == row[1] })
		if i < 0 {
			t.Errorf("README.md lists --%s, which there is not", row[1])
			continue
		}
		o := options[i]
		options = slices.Delete(options, i, i+1)
		if row[2] != o.Env() || row[3]+row[4] != o.Value(defaults) {
			t.Errorf("README.md says of --%s: %s, default %q; want %s, %q", o.Name, row[2], row[3]+row[4], o.Env(), o.Value(defaults))
		}
		if i != 0 {
			t.Errorf("in README.md --%s is not in the order of the settings", o.Name)
		}
	}
	for _, o := range options {
		t.Errorf("README.md does not list --%s", o.Name)
	}
}
