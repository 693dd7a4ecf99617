package main

import (
	"bufio"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path"
	"slices"
	"strings"
	"time"
)

// maxOutput bounds what is kept of one test's output; the rest is dropped.
const maxOutput = 8 << 20

// event is a line of `go test -json` (go doc test2json), or of the build before it.
type event struct {
	Time        time.Time
	Action      string
	Package     string
	ImportPath  string
	Test        string
	Output      string
	FailedBuild string
	Elapsed     float64 // seconds that a test ran for, without those that it waited for others
}

// name is a test's, or a package's as a whole where test is "".
type name struct{ pkg, test string }

// running is a test that has not ended, with what it and its subtests have printed.
type running struct {
	begin time.Time
	parts []*part
	size  int
}

// part is the output of a test itself or of one of its subtests.
type part struct {
	sub    string
	output strings.Builder
}

func (t *running) print(sub, output string) {
	if t.size += len(output); t.size > maxOutput {
		return
	}
	i := slices.IndexFunc(t.parts, func(p *part) bool { return p.sub == sub })
	if i < 0 {
		i = len(t.parts)
		t.parts = append(t.parts, &part{sub: sub})
	}
	t.parts[i].output.WriteString(output)
}

// passed forgets what a subtest that passed has printed.
func (t *running) passed(sub string) {
	t.parts = slices.DeleteFunc(t.parts, func(p *part) bool { return p.sub == sub })
}

func (t *running) output() string {
	var all strings.Builder
	for _, p := range t.parts {
		all.WriteString(p.output.String())
	}
	return all.String()
}

// failure is a test that failed, or a package that failed beside its tests.
type failure struct {
	name
	begin, end time.Time
	// final says why no repetition can excuse it, "" where one can.
	final string
}

func (f failure) String() string {
	if f.test == "" {
		return f.pkg
	}
	return f.pkg + "." + f.test
}

// events reads the events of one run and prints what `go test` without -json would.
type events struct {
	out     io.Writer
	running map[name]*running
	broken  map[string]bool // packages with failed tests
	failed  []failure
	long    []long
}

// Of the tests that took at least longLeast, the longestMax longest are named: an hour of tests is made of them.
const (
	longLeast  = 10 * time.Second
	longestMax = 10
)

// long is a test that took its time.
type long struct {
	name
	took time.Duration
}

// longest names what the run's time is spent on, "" if it is short.
func (e *events) longest() string {
	slices.SortStableFunc(e.long, func(a, b long) int { return cmp.Compare(b.took, a.took) })
	var s []string
	for _, l := range e.long[:min(len(e.long), longestMax)] {
		s = append(s, fmt.Sprintf("%s.%s %.0f s", path.Base(l.pkg), l.test, l.took.Seconds()))
	}
	return strings.Join(s, ", ")
}

func (e *events) read(r io.Reader) error {
	in := bufio.NewReader(r)
	for {
		line, err := in.ReadBytes('\n')
		var ev event
		switch {
		case len(line) == 0:
		case line[0] == '{' && json.Unmarshal(line, &ev) == nil:
			e.take(ev)
		default:
			_, _ = e.out.Write(line)
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// marks are lines that only -v prints.
var marks = []string{"=== RUN ", "=== PAUSE ", "=== CONT ", "=== NAME ", "--- PASS", "--- SKIP", "PASS\n"}

func marked(line string) bool {
	line = strings.TrimLeft(line, " ")
	for _, m := range marks {
		if strings.HasPrefix(line, m) {
			return true
		}
	}
	return false
}

func (e *events) take(ev event) {
	top, sub, _ := strings.Cut(ev.Test, "/")
	n := name{ev.Package, top}
	t := e.running[n]
	if t == nil {
		t = &running{begin: ev.Time}
		e.running[n] = t
	}
	if took := time.Duration(ev.Elapsed * float64(time.Second)); took >= longLeast && top != "" && sub == "" {
		e.long = append(e.long, long{n, took})
	}
	switch ev.Action {
	case "build-output":
		fmt.Fprint(e.out, ev.Output)
	case "output":
		if marked(ev.Output) {
			return
		}
		if top == "" {
			fmt.Fprint(e.out, ev.Output)
		}
		t.print(sub, ev.Output)
	case "pass", "skip":
		if sub == "" {
			delete(e.running, n)
		} else {
			t.passed(sub)
		}
	case "fail":
		if sub == "" {
			e.fail(n, t, ev)
			delete(e.running, n)
		}
	}
}

// fail notes a failure, but for that of a package whose tests have failed.
func (e *events) fail(n name, t *running, ev event) {
	output := t.output()
	switch {
	case n.test != "":
		fmt.Fprint(e.out, output)
		e.broken[n.pkg] = true
	default:
		output += e.cutOff(n.pkg)
		if e.broken[n.pkg] && final(output) == "" {
			return
		}
	}
	f := failure{name: n, begin: t.begin, end: ev.Time, final: final(output)}
	if ev.FailedBuild != "" {
		f.final = "it does not compile"
	}
	e.failed = append(e.failed, f)
}

// cutOff prints and returns what the tests have printed that were running when their package's process ended: a panic on a goroutine of the
// program's is among it, and no test fails by that.
func (e *events) cutOff(pkg string) (output string) {
	for n, t := range e.running {
		if n.pkg == pkg && n.test != "" {
			output += t.output()
			delete(e.running, n)
		}
	}
	fmt.Fprint(e.out, output)
	return output
}

// final says what in a failed test's output no machine can be blamed for.
func final(output string) string {
	for _, sign := range []string{"WARNING: DATA RACE", "race detected", "panic: ", "fatal error: "} {
		if strings.Contains(output, sign) {
			return "it says " + sign
		}
	}
	return ""
}
