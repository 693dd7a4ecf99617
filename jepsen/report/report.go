package report

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/warrenmq/warren/jepsen/checker"
	"github.com/warrenmq/warren/jepsen/history"
)

// Report is what came of a run.
type Report struct {
	System   string   `json:"system"`
	Network  string   `json:"network"`
	Workload string   `json:"workload"`
	Nemeses  []string `json:"nemeses"`
	Nodes    int      `json:"nodes"`
	Rate     int      `json:"rate"`
	Seed     uint64   `json:"seed"`
	// Repeat is the command that does the run again.
	Repeat string    `json:"repeat"`
	Begun  time.Time `json:"begun"`
	// Load is how long the clients worked under faults, Took how long all of it took.
	Load time.Duration `json:"load_ns"`
	Took time.Duration `json:"took_ns"`
	// Valid says that all promises were kept and the run came to its end.
	Valid bool `json:"valid"`
	// Errors say why the run did not come to its end.
	Errors  []string         `json:"errors,omitempty"`
	Results []checker.Result `json:"results"`
	Faults  []Fault          `json:"faults"`
	Ops     int              `json:"ops"`
	// Dir is where history, logs and reports are.
	Dir string `json:"-"`
}

// Fault is a fault of a run.
type Fault struct {
	Name string `json:"name"`
	Node string `json:"node,omitempty"`
	What string `json:"what"`
	// Begin and End are times of the run; End is 0 if it was not healed.
	Begin time.Duration `json:"begin_ns"`
	End   time.Duration `json:"end_ns"`
	Error string        `json:"error,omitempty"`
}

// FaultsOf reads the faults from a history.
func FaultsOf(ops []history.Op) []Fault {
	var list []Fault
	open := map[int]int{}
	for _, o := range ops {
		switch {
		case o.F != history.Fault:
		case o.Of == 0:
			open[o.Index] = len(list)
			list = append(list, Fault{Name: o.Value, Node: o.Node, What: o.Extra["what"], Begin: o.Time, Error: o.Error})
			if o.Type == history.Fail {
				list[len(list)-1].End = o.Time
			}
		default:
			if i, known := open[o.Of]; known {
				list[i].End, list[i].Error = o.Time, o.Error
			}
		}
	}
	return list
}

// Names of the files in Dir.
const (
	TextFile = "report.txt"
	JSONFile = "report.json"
	HTMLFile = "report.html"
)

// Write writes all three reports into r.Dir.
func Write(r Report, ops []history.Op) error {
	data, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return fmt.Errorf("write the report: %w", err)
	}
	var text, page strings.Builder
	Text(&text, r)
	err = HTML(&page, r, ops)
	return errors.Join(err,
		os.WriteFile(filepath.Join(r.Dir, JSONFile), append(data, '\n'), 0o644),
		os.WriteFile(filepath.Join(r.Dir, TextFile), []byte(text.String()), 0o644),
		os.WriteFile(filepath.Join(r.Dir, HTMLFile), []byte(page.String()), 0o644))
}

// Verdict is "valid" or "INVALID".
func (r Report) Verdict() string {
	if r.Valid {
		return "valid"
	}
	return "INVALID"
}

// Line is the report in a line.
func (r Report) Line() string {
	var parts []string
	for _, c := range r.Results {
		if !c.Valid {
			parts = append(parts, fmt.Sprintf("%s: %d problems", c.Checker, c.Count))
		}
	}
	for _, e := range r.Errors {
		first, _, more := strings.Cut(e, "\n")
		if more {
			first += " …"
		}
		parts = append(parts, first)
	}
	line := fmt.Sprintf("%s: %s, %s, %d nodes (%s), seed %d, %d faults, %d operations, %.0f s",
		r.Verdict(), r.Workload, strings.Join(r.Nemeses, ","), r.Nodes, r.Network, r.Seed, len(r.Faults), r.Ops, r.Took.Seconds())
	if parts != nil {
		line += ": " + strings.Join(parts, "; ")
	}
	return line
}

// Text writes the report for a terminal.
func Text(w io.Writer, r Report) {
	fmt.Fprintf(w, "%s\nrepeat: %s\nbegun %s\n\n", r.Line(), r.Repeat, r.Begun.Format(time.RFC3339))
	for _, e := range r.Errors {
		fmt.Fprintf(w, "ERROR %s\n", e)
	}
	for _, c := range r.Results {
		mark := "ok     "
		switch {
		case !c.Valid:
			mark = "INVALID"
		case c.Skipped:
			mark = "skipped"
		}
		fmt.Fprintf(w, "%s %s: %s\n", mark, c.Checker, c.Summary)
		for _, p := range c.Problems {
			fmt.Fprintf(w, "        %s\n", p)
		}
		if more := c.Count - len(c.Problems); more > 0 {
			fmt.Fprintf(w, "        and %d more\n", more)
		}
		for _, f := range c.Figures {
			fmt.Fprintf(w, "        %s = %g\n", f.Name, f.Value)
		}
	}
	fmt.Fprintf(w, "\nfaults:\n")
	for _, f := range r.Faults {
		fmt.Fprintf(w, "  %7.2f s to %7.2f s  %s: %s", f.Begin.Seconds(), f.End.Seconds(), f.Name, f.What)
		if f.Error != "" {
			fmt.Fprintf(w, " (%s)", f.Error)
		}
		fmt.Fprintln(w)
	}
}
