package checker

import (
	"testing"

	"github.com/warrenmq/warren/jepsen/history"
)

func TestTurns(t *testing.T) {
	by := func(process int, value string) history.Op {
		return op(process, history.OK, history.Deliver, "q", value)
	}
	pause := fault(history.Invoke, 0, "pause")
	kill := fault(history.Invoke, 0, "kill")
	for name, tc := range map[string]struct {
		ops  []history.Op
		want string
	}{
		"in turn":                           {join(one(by(1, "0.1.1"), by(1, "0.1.2"), by(2, "0.1.3"))), ""},
		"takes over what was left":          {join(one(by(1, "0.1.1"), by(1, "0.1.2"), flagged(by(2, "0.1.1")), flagged(by(2, "0.1.2")), by(2, "0.1.3"))), ""},
		"what nobody saw comes flagged":     {join(one(by(1, "0.1.1"), flagged(by(2, "0.1.2")), by(2, "0.1.3"))), ""},
		"the next one leaves something out": {join(one(by(1, "0.1.1"), by(2, "0.1.3"), flagged(by(2, "0.1.2")))), "0.1.2 came from q for the first time after 0.1.3"},
		"both at a time":                    {join(one(by(1, "0.1.1"), by(2, "0.1.3"), by(1, "0.1.2"))), "0.1.2 came from q for the first time after"},
		"both, under a pause":               {join(one(pause, by(1, "0.1.1"), by(2, "0.1.3"), by(1, "0.1.2"))), "0.1.2 came from q for the first time after"},
		"late and without the flag":         {join(one(kill, by(1, "0.1.1"), flagged(by(2, "0.1.2")), by(2, "0.1.3"), by(1, "0.1.2"))), "no node was silent"},
		"late after a pause":                {join(one(pause, by(1, "0.1.1"), flagged(by(2, "0.1.2")), by(2, "0.1.3"), by(1, "0.1.2"))), ""},
		"other publishers":                  {join(one(by(1, "0.1.2"), by(2, "3.1.1"), by(2, "0.2.1"))), ""},
		"drained out of order":              {join(one(by(1, "0.1.2"), drain("q", "0.1.1"))), "0.1.1 came from q for the first time after"},
	} {
		t.Run(name, func(t *testing.T) { expect(t, Turns("q"), tc.ops, tc.want) })
	}
}
