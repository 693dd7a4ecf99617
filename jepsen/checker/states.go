package checker

import (
	"maps"
	"slices"
	"strings"

	"github.com/warrenmq/warren/jepsen/history"
)

// States finds replicas of one log that are not at the same entry at the end, or have applied the
// same entries and hold something else.
func States() Checker { return Checker{Name: "identical replicas", Check: states, Ends: true} }

func states(ops []history.Op) (r Result) {
	says := map[string]map[string][]string{} // by log and "entry: digest", the nodes
	replicas := 0
	for _, o := range ops {
		if o.F != history.State {
			continue
		}
		replicas++
		if says[o.Queue] == nil {
			says[o.Queue] = map[string][]string{}
		}
		what := "after entry " + o.Extra["applied"] + " " + o.Value
		says[o.Queue][what] = append(says[o.Queue][what], o.Node)
	}
	for _, of := range slices.Sorted(maps.Keys(says)) {
		if len(says[of]) == 1 {
			continue
		}
		var parts []string
		for _, what := range slices.Sorted(maps.Keys(says[of])) {
			parts = append(parts, strings.Join(says[of][what], ", ")+" "+what)
		}
		r.problem("the replicas of %s differ: %s", of, strings.Join(parts, "; "))
	}
	r.Summary = sprintf("%d replicas of %d logs", replicas, len(says))
	if replicas == 0 {
		r.Summary = "not asked: the nodes do not tell"
	}
	return r
}
