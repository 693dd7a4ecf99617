package checker

import (
	"testing"
	"time"

	"github.com/warrenmq/warren/jepsen/history"
)

func TestEarly(t *testing.T) {
	retry := map[string]time.Duration{"q": 1500 * time.Millisecond}
	due := func(ms string) []history.Op { // published in the first second
		ops := published("x", "0.1.1", history.OK)
		ops[0].Extra = map[string]string{history.Due: ms}
		return ops
	}
	back := op(1, history.OK, history.Requeue, "q", "0.1.1")
	m := published("q", "0.1.1", history.OK)
	clock, kill := one(fault(history.Invoke, 0, "clock")), one(fault(history.Invoke, 1, "kill"))
	wait := one(op(0, history.Info, history.Connect, "", ""))
	for name, tc := range map[string]struct {
		ops  []history.Op
		want string
	}{
		"at its time":            {join(due("2000"), one(deliver("0.1.1"))), ""},
		"later":                  {join(due("5"), one(deliver("0.1.1"))), ""},
		"before":                 {join(due("2500"), one(deliver("0.1.1"))), "0.1.1 was to come after 2.5s and came from q after 2s"},
		"before, by the drain":   {join(due("2500"), one(drain("q", "0.1.1"))), "came from q after 2s"},
		"with a wrong clock":     {join(clock, due("2020"), one(deliver("0.1.1"))), ""},
		"too wrong a clock":      {join(clock, due("2030"), one(deliver("0.1.1"))), "came from q after 2s"},
		"and another fault":      {join(clock, kill, due("2700"), one(deliver("0.1.1"))), ""},
		"too wrong all the same": {join(clock, kill, due("2710"), one(deliver("0.1.1"))), "came from q after 2s"},
		"another fault later":    {join(clock, due("2030"), one(deliver("0.1.1")), kill), "came from q after 2s"},
		"another fault alone":    {join(kill, due("2010"), one(deliver("0.1.1"))), "came from q after 2s"},
		"not at its end yet":     {join(due("9000"), one(op(1, history.OK, history.Deliver, "x", "0.1.1"))), ""},
		"no time":                {join(due("soon"), one(deliver("0.1.1"))), "0.1.1 was to come"},
		"returned":               {join(m, one(deliver("0.1.1"), back), wait, one(flagged(deliver("0.1.1")))), ""},
		"at once after a return": {soon(m, back), "came from q again 1s after"},
		"the same in a pause":    {soon(join(one(fault(history.Invoke, 0, "pause")), m), back), ""},
	} {
		t.Run(name, func(t *testing.T) { expect(t, Early(retry), tc.ops, tc.want) })
	}
}

// soon is a history in which what is returned comes again a second after it came.
func soon(begin []history.Op, back history.Op) []history.Op {
	ops := join(begin, one(deliver("0.1.1"), back, flagged(deliver("0.1.1"))))
	n := len(ops)
	ops[n-1].Time = ops[n-3].Time + time.Second
	ops[n-2].Time = ops[n-3].Time + time.Millisecond
	return ops
}
