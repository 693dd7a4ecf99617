package model

import (
	"time"

	"github.com/anishathalye/porcupine"
)

// Kind is what an operation does to a name.
type Kind int

// The kinds. Absent is the value of a name that is not there.
const (
	Declare Kind = iota // puts Value there if nothing is; refused if something else is
	Delete              // leaves nothing there, whatever was
	Read                // tells what is there
	Exists              // tells whether something is there

	Absent = ""
)

// NameOp is an operation on one name, such as a queue's.
type NameOp struct {
	Kind  Kind
	Value string
	// Refused: a Declare found something else; an Exists or Read found nothing.
	Refused bool
	// Unknown: it may have taken effect at any time after Call, or not at all.
	Unknown      bool
	Call, Return int64
}

// Register tells whether operations on one name are linearizable. unknown says that it could not be
// told in that time.
func Register(ops []NameOp, limit time.Duration) (linearizable, unknown bool) {
	var list []porcupine.Operation
	for i, o := range ops {
		if o.Unknown {
			if o.Kind == Read || o.Kind == Exists {
				continue
			}
			o.Return = Never
		}
		list = append(list, porcupine.Operation{ClientId: i, Input: o, Call: o.Call, Return: o.Return})
	}
	return check(porcupine.Model{
		Init: func() any { return Absent },
		Step: func(state, input, _ any) (bool, any) {
			possible, after := input.(NameOp).step(state.(string))
			return possible, after
		},
	}, list, limit)
}

// step tells whether the operation can have ended so when the name was at state, and what is there
// after it. An unknown one that did nothing stands at the end of everything, where any will do.
func (o NameOp) step(state string) (possible bool, after string) {
	switch {
	case o.Kind == Delete:
		return true, Absent
	case o.Kind == Exists:
		return o.Refused == (state == Absent), state
	case o.Kind == Read:
		return o.Value == state, state
	case o.Refused:
		return state != Absent && state != o.Value, state
	case state == Absent || state == o.Value:
		return true, o.Value
	}
	return o.Unknown, state
}
