package report

import (
	"fmt"
	"io"
	"strings"
)

// Compare writes a table (of Markdown) of the runs by workload, faults and system, in the order in
// which they come first.
func Compare(w io.Writer, runs []Report) {
	type key struct{ workload, faults, system string }
	type row struct {
		runs, undone                               int
		confirmed, lost, doubled, missing, unknown int
		others                                     []string
		pause                                      float64
	}
	var order []key
	rows := map[key]*row{}
	for _, r := range runs {
		k := key{r.Workload, strings.Join(r.Nemeses, ","), r.System}
		if rows[k] == nil {
			rows[k] = &row{}
			order = append(order, k)
		}
		sum := rows[k]
		sum.runs++
		if len(r.Errors) > 0 {
			sum.undone++
		}
		for _, c := range r.Results {
			switch {
			case c.Checker == "nothing lost":
				sum.lost += c.Count
			case !c.Valid && c.Checker != "exactly one place":
				sum.others = append(sum.others, fmt.Sprintf("%s: %d", c.Checker, c.Count))
			}
			for _, f := range c.Figures {
				switch f.Name {
				case "confirmed":
					sum.confirmed += int(f.Value)
				case "unknown":
					sum.unknown += int(f.Value)
				case "doubled":
					sum.doubled += int(f.Value)
				case "missing":
					sum.missing += int(f.Value)
				case "longest pause s":
					sum.pause = max(sum.pause, f.Value)
				}
			}
		}
	}
	fmt.Fprintln(w, "| workload | faults | system | runs (not to the end) | confirmed | unknown | lost | doubled | not in all its places | longest pause | other findings |")
	fmt.Fprintln(w, "|---|---|---|---|---|---|---|---|---|---|---|")
	for _, k := range order {
		r := rows[k]
		fmt.Fprintf(w, "| %s | %s | %s | %d (%d) | %d | %d | %d | %d | %d | %.1f s | %s |\n", k.workload, k.faults, k.system,
			r.runs, r.undone, r.confirmed, r.unknown, r.lost, r.doubled, r.missing, r.pause, strings.Join(r.others, "; "))
	}
}
