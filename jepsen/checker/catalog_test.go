package checker

import (
	"testing"

	"github.com/warrenmq/warren/jepsen/history"
)

func TestCatalog(t *testing.T) {
	// does is an operation that begins at line n and ends in the next one.
	does := func(n int, f, value string, end history.Type, answer string) []history.Op {
		begin, over := op(0, history.Invoke, f, "q", value), op(0, end, f, "q", answer)
		over.Of = n
		return one(begin, over)
	}
	a := does(1, history.Declare, "a", history.OK, "a")
	gone := does(3, history.Delete, "", history.OK, "")
	for name, tc := range map[string]struct {
		ops  []history.Op
		want string
	}{
		"there":                    {join(a, does(3, history.Look, "", history.OK, ""), does(5, history.API, "", history.OK, "a")), ""},
		"gone":                     {join(a, gone, does(5, history.Look, "", history.Fail, ""), does(7, history.API, "", history.Fail, "")), ""},
		"gone, and there":          {join(a, gone, does(5, history.Look, "", history.OK, "")), "from this answer on: look ok"},
		"gone, and refused":        {join(a, gone, does(5, history.Declare, "b", history.Fail, "b")), "from this answer on: declare fail"},
		"there, and not":           {join(a, does(3, history.Look, "", history.Fail, "")), "not linearizable"},
		"there, and not, by HTTP":  {join(a, does(3, history.API, "", history.Fail, "")), "not linearizable"},
		"an old one by HTTP":       {join(a, gone, does(5, history.API, "", history.OK, "a")), "not linearizable"},
		"an old one in a fault":    {join(a, one(fault(history.Invoke, 0, "kill")), does(4, history.Delete, "", history.OK, ""), does(6, history.API, "", history.OK, "a")), ""},
		"being deleted":            {join(a, one(op(1, history.Invoke, history.Delete, "q", "")), does(4, history.Look, "", history.Fail, ""), does(6, history.Look, "", history.OK, "")), ""},
		"refused, being deleted":   {join(a, one(op(1, history.Invoke, history.Delete, "q", "")), does(4, history.Look, "", history.Fail, ""), does(6, history.Declare, "b", history.Fail, "b")), "not linearizable"},
		"never declared":           {join(a, one(fault(history.Invoke, 0, "kill")), does(4, history.API, "", history.OK, "x")), "nobody had declared it so"},
		"not there in a fault":     {join(a, one(fault(history.Invoke, 0, "kill")), does(4, history.API, "", history.Fail, "")), "not linearizable"},
		"unknown":                  {join(does(1, history.Declare, "a", history.Info, "a"), does(3, history.Look, "", history.Fail, ""), does(5, history.Look, "", history.OK, "")), ""},
		"two names, one bad of it": {join(a, one(op(0, history.Invoke, history.Look, "z", ""))), ""},
	} {
		t.Run(name, func(t *testing.T) { expect(t, Catalog(), tc.ops, tc.want) })
	}
}
