package checker

import (
	"strconv"

	"github.com/warrenmq/warren/jepsen/history"
)

// Counts compares what the nodes say is in each queue at the end with what is drained from it.
func Counts() Checker { return Checker{Name: "counts", Check: counts, Ends: true} }

func counts(ops []history.Op) (r Result) {
	drained := map[string]int{}
	for _, queues := range copies(ops) {
		for q, n := range queues {
			drained[q] += n
		}
	}
	asked := 0
	for _, o := range ops {
		if o.F != history.Count || o.Type != history.OK {
			continue
		}
		asked++
		if n, err := strconv.Atoi(o.Value); err != nil || n != drained[o.Queue] {
			r.problem("%s has %s messages by %s, and %d came out of it (%s)", o.Queue, o.Value, o.Extra["by"], drained[o.Queue], at(o))
		}
	}
	r.Summary = sprintf("%d counts of %d queues", asked, len(drained))
	return r
}
