package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// scene is a module whose tests do what the files in its folder tell: TestTurn fails as often as "turns" has lines.
const scene = `package scene

import (
	"os"
	"strings"
	"testing"
)

func TestTurn(t *testing.T) {
	t.Run("good", func(t *testing.T) { t.Log("of no interest") })
	t.Run("bad", func(t *testing.T) {
		left, _ := os.ReadFile("turns")
		first, rest, more := strings.Cut(string(left), "\n")
		if !more {
			return
		}
		if err := os.WriteFile("turns", []byte(rest), 0o644); err != nil {
			t.Fatal(err)
		}
		if first == "panic" {
			panic(first)
		}
		t.Error(first)
	})
}

func TestPasses(t *testing.T) { t.Log("of no interest") }
`

func TestRepetitions(t *testing.T) {
	for name, tc := range map[string]struct {
		turns  string
		stolen []float64 // one by one, the last one for ever
		source string
		err    string // "" if it ends well
		wants  []string
	}{
		"all well":             {wants: []string{"ok  \tscene"}},
		"nothing was stolen":   {turns: "late\n", stolen: []float64{0.05}, err: "failed: scene.TestTurn", wants: []string{"scene_test.go:23: late", "stands: 5 %"}},
		"passes when repeated": {turns: "late\n", stolen: []float64{0.5}, wants: []string{"scene_test.go:23: late", "again: scene.TestTurn failed while 50 % of the machine were taken away, and passed alone"}},
		"fails in quiet":       {turns: "late\nwrong\n", stolen: []float64{0.5, 0}, err: "scene.TestTurn failed again", wants: []string{"late", "wrong", "stands: 0 %"}},
		"fails for ever":       {turns: strings.Repeat("late\n", 9), stolen: []float64{0.5}, err: "scene.TestTurn failed again", wants: []string{"late"}},
		"a panic stands":       {turns: "panic\n", stolen: []float64{0.5}, err: "failed: scene.TestTurn", wants: []string{"stands: it says panic: "}},
		"a panic elsewhere stands": {
			source: "package scene\n\nimport \"testing\"\n\nfunc TestTurn(t *testing.T) {\n\tt.Parallel()\n\tgo panic(\"elsewhere\")\n\tselect {}\n}\n",
			stolen: []float64{0.5}, err: "failed: scene", wants: []string{"panic: elsewhere", "scene_test.go:7", "stands: it says panic: "},
		},
		"an exit in the midst": {
			source: "package scene\n\nimport (\n\t\"os\"\n\t\"testing\"\n)\n\nfunc TestTurn(t *testing.T) {\n\tprintln(\"the cause\")\n\tos.Exit(3)\n}\n",
			err:    "failed: scene", stolen: []float64{0}, wants: []string{"the cause", "stands: 0 %"},
		},
		"what does not compile": {source: "package scene\n\nvar x int = nothing\n", stolen: []float64{0.5}, err: "failed: scene", wants: []string{"undefined: nothing", "stands: it does not compile"}},
		"the package itself": {
			source: "package scene\n\nimport (\n\t\"os\"\n\t\"testing\"\n)\n\nfunc TestMain(m *testing.M) {\n\tm.Run()\n\tif os.Remove(\"once\") == nil {\n\t\tprintln(\"left something\")\n\t\tos.Exit(1)\n\t}\n}\n",
			stolen: []float64{0.2}, wants: []string{"left something", "again: scene failed while 20 %"},
		},
		"too many": {
			source: "package scene\n\nimport \"testing\"\n" + many("func Test%(t *testing.T) { t.Fail() }\n"),
			stolen: []float64{0.5}, err: "9 tests failed", wants: []string{"--- FAIL: TestA"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			source := tc.source
			if source == "" {
				source = scene
			}
			for file, text := range map[string]string{"go.mod": "module scene\n\ngo 1.26\n", "scene_test.go": source, "turns": tc.turns, "once": ""} {
				if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			t.Chdir(dir)
			var out, errs bytes.Buffer
			r := runner{
				flags: []string{"-count=1", "-vet=off"}, packages: []string{"./..."}, out: &out, errs: &errs,
				stolen: func(time.Time, time.Time) float64 {
					share := tc.stolen[0]
					tc.stolen = tc.stolen[min(1, len(tc.stolen)-1):]
					return share
				},
			}
			err := r.run(t.Context())
			if (err == nil) != (tc.err == "") || err != nil && !strings.Contains(err.Error(), tc.err) {
				t.Errorf("got %v, want %q", err, tc.err)
			}
			for _, want := range tc.wants {
				if !strings.Contains(out.String(), want) {
					t.Errorf("prints no %q", want)
				}
			}
			if strings.Contains(out.String(), "of no interest") {
				t.Error("prints what tests that passed have said")
			}
			if t.Failed() {
				t.Log(out.String())
			}
		})
	}
}

func many(form string) string {
	var all strings.Builder
	for c := 'A'; c < 'A'+mostFailed+1; c++ {
		all.WriteString(strings.ReplaceAll(form, "%", string(c)))
	}
	return all.String()
}

func TestLongestTestsAreNamed(t *testing.T) {
	e := events{out: new(bytes.Buffer), running: map[name]*running{}, broken: map[string]bool{}}
	for i, line := range []string{
		`{"Action":"pass","Package":"m/a","Test":"TestShort","Elapsed":9.9}`,
		`{"Action":"pass","Package":"m/a","Test":"TestLong","Elapsed":12.6}`,
		`{"Action":"pass","Package":"m/a","Test":"TestLong/part","Elapsed":12.5}`,
		`{"Action":"fail","Package":"m/b","Test":"TestLonger","Elapsed":40}`,
		`{"Action":"fail","Package":"m/b","Elapsed":60}`,
	} {
		if err := e.read(strings.NewReader(line + "\n")); err != nil {
			t.Fatalf("line %d: %v", i, err)
		}
	}
	if got, want := e.longest(), "b.TestLonger 40 s, a.TestLong 13 s"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	for range 2 * longestMax {
		e.take(event{Action: "pass", Package: "m/c", Test: "TestMany", Elapsed: 10})
	}
	if got := strings.Count(e.longest(), ","); got != longestMax-1 {
		t.Errorf("%d are named", got+1)
	}
}

func TestArguments(t *testing.T) {
	for name, tc := range map[string]struct {
		args, flags, packages []string
	}{
		"both":     {[]string{"-race", "-run", "X", "--", "./a", "./b"}, []string{"-race", "-run", "X"}, []string{"./a", "./b"}},
		"no flags": {[]string{"--", "./a"}, []string{}, []string{"./a"}},
		"nothing":  {args: nil},
		"no end":   {args: []string{"-race", "./a"}},
		"no list":  {args: []string{"-race", "--"}},
	} {
		flags, packages, err := split(tc.args)
		if (err == nil) != (tc.packages != nil) || cmp.Diff(tc.flags, flags) != "" || cmp.Diff(tc.packages, packages) != "" {
			t.Errorf("%s: %v, %v, %v", name, flags, packages, err)
		}
	}
}

func TestStolenShare(t *testing.T) {
	begin := time.Now()
	at := func(s int) time.Time { return begin.Add(time.Duration(s) * time.Second) }
	m := machine{samples: []sample{{at(0), 0, 0}, {at(1), 0, 200}, {at(2), 150, 400}, {at(3), 150, 600}}}
	for _, tc := range []struct {
		from, to int
		want     float64
	}{{0, 3, 0.25}, {1, 2, 0.75}, {2, 3, 0}, {-5, 9, 0.25}, {3, 9, 0}} {
		if got := m.stolen(at(tc.from), at(tc.to)); got != tc.want {
			t.Errorf("from %d to %d: %v, want %v", tc.from, tc.to, got, tc.want)
		}
	}
	if got := (&machine{}).stolen(at(0), at(1)); got != 0 {
		t.Errorf("no samples: %v", got)
	}
}

func TestStatIsRead(t *testing.T) {
	if s, ok := parse("cpu  10 1 5 100 2 0 3 40 7 0\ncpu0 1 1 1\n"); !ok || s.stolen != 40 || s.total != 161 {
		t.Errorf("%+v, %v", s, ok)
	}
	for _, bad := range []string{"", "cpu 1 2", "intr 1 2 3 4 5 6 7 8", "cpu a b c d e f g h"} {
		if s, ok := parse(bad); ok {
			t.Errorf("%q: %+v", bad, s)
		}
	}
}
