package report

import (
	"strings"
	"testing"

	"github.com/warrenmq/warren/jepsen/checker"
)

// TestCompare: runs of a system under the same faults are one row: what was lost is added up, of the
// pauses the longest is told, and a run that did not come to its end is counted as such.
func TestCompare(t *testing.T) {
	run := func(system string, lost int, pause float64, errs ...string) Report {
		return Report{System: system, Workload: "queue", Nemeses: []string{"kill"}, Errors: errs, Results: []checker.Result{
			{Checker: "nothing lost", Count: lost, Valid: lost == 0, Figures: []checker.Figure{{Name: "confirmed", Value: 10}, {Name: "unknown", Value: 2}}},
			{Checker: "order", Count: lost, Valid: lost == 0},
			{Checker: "exactly one place", Count: 3, Figures: []checker.Figure{{Name: "doubled", Value: 2}, {Name: "missing", Value: 1}}},
			{Checker: "availability", Valid: true, Figures: []checker.Figure{{Name: "longest pause s", Value: pause}}},
		}}
	}
	var out strings.Builder
	Compare(&out, []Report{run("warren", 0, 1.5), run("rabbitmq", 2, 0.25), run("warren", 0, 3, "no end")})
	for _, line := range []string{
		"| queue | kill | warren | 2 (1) | 20 | 4 | 0 | 4 | 2 | 3.0 s |  |",
		"| queue | kill | rabbitmq | 1 (0) | 10 | 2 | 2 | 2 | 1 | 0.2 s | order: 2 |",
	} {
		if !strings.Contains(out.String(), line+"\n") {
			t.Errorf("no line %q in\n%s", line, out.String())
		}
	}
}
