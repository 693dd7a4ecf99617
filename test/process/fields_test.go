package process

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

var rewriteFields = flag.Bool("rewrite-fields", false, "write the fields that the management API shows to management/testdata/fields")

// whatever are objects whose names are data.
var whatever = []string{"arguments", "client_properties", "effective_policy_definition", "cluster_state"}

// fieldsOf lists the fields of a JSON value as "path type". Of an array the first element counts for all.
func fieldsOf(v any, path string, add func(line string)) {
	switch v := v.(type) {
	case map[string]any:
		if name := path[strings.LastIndexByte(path, '.')+1:]; slices.Contains(whatever, name) {
			add(path + " object")
			return
		}
		for _, name := range slices.Sorted(maps.Keys(v)) {
			fieldsOf(v[name], strings.TrimPrefix(path+"."+name, "."), add)
		}
	case []any:
		if len(v) == 0 {
			add(path + "[]")
			return
		}
		fieldsOf(v[0], path+"[]", add)
	case nil:
		add(path + " null")
	case float64:
		add(path + " number")
	case bool:
		add(path + " boolean")
	default:
		add(path + " " + fmt.Sprintf("%T", v))
	}
}

// wantFields compares what an endpoint shows with its file: the fields that tools of RabbitMQ read, and ours, each with its type. Who
// removes or renames one breaks somebody's tool. Fields that are told only if there is something to tell are those of the test's moment.
// The moment comes again, if it is looked at while something was late.
func wantFields(t *testing.T, file string, look func() any) {
	t.Helper()
	var lines []string
	fieldsOf(look(), "", func(line string) { lines = append(lines, line) })
	got := strings.Join(lines, "\n") + "\n"
	name := filepath.Join("..", "..", "management", "testdata", "fields", file+".txt")
	if *rewriteFields {
		if err := os.WriteFile(name, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	raw, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(timeoutReply); got != string(raw) && time.Now().Before(end); time.Sleep(200 * time.Millisecond) {
		lines = nil
		fieldsOf(look(), "", func(line string) { lines = append(lines, line) })
		got = strings.Join(lines, "\n") + "\n"
	}
	want := strings.Split(strings.TrimSuffix(string(raw), "\n"), "\n")
	for _, line := range want {
		if !slices.Contains(lines, line) {
			t.Errorf("%s has no %q any more", file, line)
		}
	}
	for _, line := range lines {
		if !slices.Contains(want, line) {
			t.Errorf("%s has %q, which %s does not know: go test ./test/process -run TestStatistics -rewrite-fields", file, line, name)
		}
	}
}
