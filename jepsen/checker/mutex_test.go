package checker

import (
	"testing"

	"github.com/warrenmq/warren/jepsen/history"
)

// asks, gets and leaves are steps of a holder of the lock q.
func asks(process int) history.Op { return op(process, history.Invoke, history.Acquire, "q", "") }

func gets(process, of int, token string) history.Op {
	o := op(process, history.OK, history.Acquire, "q", token)
	o.Of = of
	return o
}

func leaves(process int, end history.Type) []history.Op {
	return []history.Op{op(process, history.Invoke, history.Release, "q", ""), op(process, end, history.Release, "q", "")}
}

func fault(t history.Type, of int, name string) history.Op {
	return history.Op{Process: history.Nemesis, Type: t, F: history.Fault, Value: name, Of: of}
}

func TestMutex(t *testing.T) {
	first := one(asks(0), gets(0, 1, "0"))
	second := func(of int, token string) []history.Op { return one(asks(1), gets(1, of, token)) }
	for name, tc := range map[string]struct {
		ops  []history.Op
		want string
	}{
		"one after the other":            {join(first, leaves(0, history.OK), second(5, "1"), leaves(1, history.OK)), ""},
		"two at a time":                  {join(first, second(3, "1"), leaves(0, history.OK), leaves(1, history.OK)), "not those of a lock"},
		"the first lost its connection":  {join(first, second(3, "1"), leaves(0, history.Info), leaves(1, history.OK)), ""},
		"the first says nothing more":    {join(first, second(3, "1"), leaves(1, history.OK)), ""},
		"two during a pause":             {join(one(fault(history.Invoke, 0, "pause")), one(asks(0), gets(0, 2, "0")), second(4, "1"), leaves(0, history.OK), leaves(1, history.OK)), ""},
		"two soon after a pause":         {join(one(fault(history.Invoke, 0, "pause"), fault(history.OK, 1, "pause")), one(asks(0), gets(0, 3, "0")), second(5, "1"), leaves(0, history.OK), leaves(1, history.OK)), ""},
		"two while others are killed":    {join(one(fault(history.Invoke, 0, "kill")), one(asks(0), gets(0, 2, "0")), second(4, "1"), leaves(0, history.OK), leaves(1, history.OK)), "not those of a lock"},
		"the same token during a pause":  {join(one(fault(history.Invoke, 0, "pause")), one(asks(0), gets(0, 2, "4")), second(4, "4"), leaves(0, history.OK), leaves(1, history.OK)), "not those of a lock"},
		"the same token":                 {join(first, leaves(0, history.OK), second(5, "0"), leaves(1, history.OK)), "not those of a lock"},
		"a smaller token during a pause": {join(one(fault(history.Invoke, 0, "pause")), one(asks(0), gets(0, 2, "4")), leaves(0, history.OK), second(6, "3"), leaves(1, history.OK)), "not those of a lock"},
		"no token":                       {join(one(asks(0), gets(0, 1, "")), leaves(0, history.OK)), "under no token"},
	} {
		t.Run(name, func(t *testing.T) { expect(t, Mutex(), tc.ops, tc.want) })
	}
}
