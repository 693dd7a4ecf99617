package main

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// TestGeneratedFilesAreCurrent fails when the committed output is not what the
// generator writes; "go generate ./amqp" repairs that.
func TestGeneratedFilesAreCurrent(t *testing.T) {
	files, err := generate("..")
	if err != nil {
		t.Fatalf("generate: %v", err)
	}
	if len(files) != 3 {
		t.Errorf("got %d files, want 3", len(files))
	}
	for name, want := range files {
		got, err := os.ReadFile(filepath.Join("..", "..", name))
		if err != nil {
			t.Errorf("read committed output: %v", err)
			continue
		}
		if !bytes.Equal(got, want) {
			t.Errorf("%s differs from what the generator writes: run go generate ./amqp", name)
		}
	}
}

// TestRunWritesTheFiles takes the path of the command itself.
func TestRunWritesTheFiles(t *testing.T) {
	dir := t.TempDir()
	if err := run("..", dir); err != nil {
		t.Fatalf("run: %v", err)
	}
	for _, name := range []string{"methods_gen.go", "constants_gen.go", "properties_gen.go"} {
		if _, err := os.Stat(filepath.Join(dir, name)); err != nil {
			t.Errorf("output: %v", err)
		}
	}
	if err := run(dir, dir); err == nil {
		t.Error("run without a definition: want an error")
	}
	if err := run("..", filepath.Join(dir, "absent")); err == nil {
		t.Error("run into an absent folder: want an error")
	}
}

// TestStandardIsContained shows that what we generate changes no method of the
// published standard, apart from the flags of exchange.declare that the extended
// definition gives their old meaning back.
func TestStandardIsContained(t *testing.T) {
	standard, err := parse(filepath.Join("..", "amqp0-9-1.stripped.xml"))
	if err != nil {
		t.Fatal(err)
	}
	if err := standard.resolve(); err != nil {
		t.Fatal(err)
	}
	ours, err := load("..")
	if err != nil {
		t.Fatal(err)
	}
	for _, sc := range standard.Classes {
		i := slices.IndexFunc(ours.Classes, func(c class) bool { return c.Name == sc.Name && c.Index == sc.Index })
		if i < 0 {
			t.Errorf("class %s is missing", sc.Name)
			continue
		}
		if got, want := wireTypes(ours.Classes[i].Fields), wireTypes(sc.Fields); !slices.Equal(got, want) {
			t.Errorf("properties of %s: got %v, want %v", sc.Name, got, want)
		}
		for _, sm := range sc.Methods {
			j := slices.IndexFunc(ours.Classes[i].Methods, func(m method) bool { return m.Name == sm.Name && m.Index == sm.Index })
			if j < 0 {
				t.Errorf("method %s.%s is missing", sc.Name, sm.Name)
				continue
			}
			om := ours.Classes[i].Methods[j]
			if got, want := wireTypes(om.Fields), wireTypes(sm.Fields); !slices.Equal(got, want) || om.Content != sm.Content {
				t.Errorf("method %s.%s: got %v, want %v", sc.Name, sm.Name, got, want)
			}
		}
	}
	for _, sc := range standard.Constants {
		if !slices.Contains(ours.Constants, sc) {
			t.Errorf("constant %s is missing or differs", sc.Name)
		}
	}
}

func wireTypes(fields []field) []string {
	var types []string
	for _, f := range fields {
		types = append(types, f.Type)
	}
	return types
}

func TestGoName(t *testing.T) {
	for in, want := range map[string]string{"class-id": "ClassID", "recover-async": "RecoverAsync", "queue": "Queue", "no-wait": "NoWait"} {
		if got := goName(in); got != want {
			t.Errorf("goName(%q): got %q, want %q", in, got, want)
		}
	}
}
