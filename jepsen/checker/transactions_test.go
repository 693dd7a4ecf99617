package checker

import (
	"testing"

	"github.com/warrenmq/warren/jepsen/history"
)

func TestTransactions(t *testing.T) {
	// move is a transaction that took the first message and made two; of counts lines.
	move := func(process, of int, end history.Type, value string) []history.Op {
		begin := op(process, history.Invoke, history.Commit, "", value)
		begin.Extra = map[string]string{history.Took: "0.1.1", history.Made: sprintf("%d.1.1 %d.1.2", process, process)}
		over := op(process, end, history.Commit, "", value)
		over.Of = of
		return one(begin, over)
	}
	again := func(ops []history.Op) []history.Op {
		ops[0].Extra[history.Took] += " 0.1.1"
		return ops
	}
	m := published("q", "0.1.1", history.OK)
	a, b := one(drain("a", "1.1.1")), one(drain("b", "1.1.2"))
	a2, b2 := one(drain("a", "2.1.1")), one(drain("b", "2.1.2"))
	got := func(process int) history.Op { return op(process, history.OK, history.Deliver, "q", "0.1.1") }
	for name, tc := range map[string]struct {
		ops  []history.Op
		want string
	}{
		"done":                          {join(m, one(got(1)), move(1, 4, history.OK, ""), a, b), ""},
		"unknown and done":              {join(m, one(got(1)), move(1, 4, history.Info, ""), a, b), ""},
		"unknown and not done":          {join(m, one(got(1)), move(1, 4, history.Info, ""), one(drain("q", "0.1.1"))), ""},
		"unknown and done in part":      {join(m, one(got(1)), move(1, 4, history.Info, ""), a, one(drain("q", "0.1.1"))), "1 of its 2 messages"},
		"done, and the source has it":   {join(m, one(got(1)), move(1, 4, history.OK, ""), a, b, one(drain("q", "0.1.1"))), "took place and is in q"},
		"not done, and the source lost": {join(m, one(got(1)), move(1, 4, history.Info, "")), "no transaction took it"},
		"confirmed and not done":        {join(m, one(got(1)), move(1, 4, history.OK, ""), one(drain("q", "0.1.1"))), "was confirmed and none"},
		"confirmed and done in part":    {join(m, one(got(1)), move(1, 4, history.OK, ""), b), "1 of its 2 messages"},
		"refused":                       {join(m, one(got(1)), move(1, 4, history.Fail, ""), one(drain("q", "0.1.1"))), ""},
		"refused and done":              {join(m, one(got(1)), move(1, 4, history.Fail, ""), a, b), "not committed has 2"},
		"rolled back":                   {join(m, one(got(1)), move(1, 4, history.OK, history.Rollback), one(drain("q", "0.1.1"))), ""},
		"rolled back and done":          {join(m, one(got(1)), move(1, 4, history.OK, history.Rollback), a, b), "not committed has 2"},
		"twice, unflagged":              {join(m, one(got(1)), move(1, 4, history.OK, ""), one(got(2)), move(2, 7, history.OK, ""), a, b, a2, b2), "taken 2 times, 2 of them"},
		"twice, flagged":                {join(m, one(got(1)), move(1, 4, history.OK, ""), one(flagged(got(2))), move(2, 7, history.OK, ""), a, b, a2, b2), ""},
		"twice by one, flagged":         {join(m, one(got(1)), one(flagged(got(1))), again(move(1, 5, history.OK, "")), a, b), ""},
		"twice by one, unflagged":       {join(m, one(got(1)), one(got(1)), again(move(1, 5, history.OK, "")), a, b), "taken 2 times, 2 of them"},
	} {
		t.Run(name, func(t *testing.T) { expect(t, Transactions(), tc.ops, tc.want) })
	}
}
