package checker

import (
	"testing"

	"github.com/warrenmq/warren/jepsen/history"
)

func TestPriorities(t *testing.T) {
	with := func(value, priority string) []history.Op {
		ops := published("q", value, history.OK)
		ops[0].Extra = map[string]string{history.Priority: priority}
		return ops
	}
	low, high, low2 := with("0.1.1", "1"), with("0.1.2", "5"), with("0.1.3", "1")
	for name, tc := range map[string]struct {
		checker Checker
		ops     []history.Op
		want    string
	}{
		"the higher one first":              {Priorities("q"), join(low, high, one(drain("q", "0.1.2"), drain("q", "0.1.1"))), ""},
		"the lower one first":               {Priorities("q"), join(low, high, one(drain("q", "0.1.1"), drain("q", "0.1.2"))), "0.1.2 of priority 5 was drained from q after 0.1.1"},
		"another queue":                     {Priorities("z"), join(low, high, one(drain("q", "0.1.1"), drain("q", "0.1.2"))), ""},
		"the higher one overtakes":          {Order("q"), join(low, high, one(deliver("0.1.2"), deliver("0.1.1"))), ""},
		"out of order within one":           {Order("q"), join(low, high, low2, one(deliver("0.1.3"), deliver("0.1.2"), deliver("0.1.1"))), "0.1.1 came from q after 0.1.3"},
		"in order within one, with another": {Order("q"), join(low, high, low2, one(deliver("0.1.1"), deliver("0.1.2"), deliver("0.1.3"))), ""},
	} {
		t.Run(name, func(t *testing.T) { expect(t, tc.checker, tc.ops, tc.want) })
	}
}
