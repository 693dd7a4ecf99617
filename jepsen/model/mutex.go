package model

import (
	"math"
	"slices"
	"time"

	"github.com/anishathalye/porcupine"
)

// Never is the time of what has not happened.
const Never = math.MaxInt64

// Tenure is one holding of a lock.
type Tenure struct {
	// Token is what it was given under.
	Token int64
	// Asked and Got are when the lock was asked for and given.
	Asked, Got int64
	// Left is from when on the lock may be somebody else's: its release began then.
	Left int64
	// Lost says that it may have ended at any time: then it ends from Asked on, whatever Left says.
	Lost bool
}

// lockOp takes the lock or gives it back.
type lockOp struct {
	take   bool
	tenure int // its place in the history
	token  int64
}

// lockState is who has the lock (the place of a tenure, -1: nobody) and the last token.
type lockState struct {
	holder int
	token  int64
}

// Mutex tells whether tenures are those of a lock with tokens: it is given to one at a
// time, and with a larger token each time. unknown says that it could not be told in that time.
//
// A release has no answer: it takes effect at any time after Left, and does nothing if the
// lock is not its holder's any more. (It does not matter later than the next tenure, by token,
// begins; saying so keeps the search short.)
func Mutex(tenures []Tenure, limit time.Duration) (linearizable, unknown bool) {
	// next[i] is the earliest Got of those with a larger token than i has.
	byToken := make([]int, len(tenures))
	for i := range byToken {
		byToken[i] = i
	}
	slices.SortFunc(byToken, func(a, b int) int { return int(tenures[b].Token - tenures[a].Token) })
	next := make([]int64, len(tenures))
	earliest, pending := int64(Never), int64(Never)
	for n, i := range byToken {
		if n > 0 && tenures[byToken[n-1]].Token != tenures[i].Token {
			earliest = min(earliest, pending)
		}
		next[i] = earliest
		pending = min(pending, tenures[i].Got)
	}
	var ops []porcupine.Operation
	for i, t := range tenures {
		left := t.Left
		if t.Lost {
			left = t.Asked
		}
		ops = append(ops,
			porcupine.Operation{ClientId: i, Input: lockOp{true, i, t.Token}, Call: t.Asked, Return: t.Got},
			porcupine.Operation{ClientId: i, Input: lockOp{take: false, tenure: i}, Call: left, Return: max(left, next[i])})
	}
	return check(porcupine.Model{
		Init: func() any { return lockState{holder: -1, token: -1} },
		Step: func(state, input, _ any) (bool, any) {
			s, op := state.(lockState), input.(lockOp)
			switch {
			case op.take:
				return s.holder < 0 && op.token > s.token, lockState{op.tenure, op.token}
			case s.holder == op.tenure:
				s.holder = -1
			}
			return true, s
		},
	}, ops, limit)
}

func check(m porcupine.Model, ops []porcupine.Operation, limit time.Duration) (linearizable, unknown bool) {
	r := porcupine.CheckOperationsTimeout(m, ops, limit)
	return r == porcupine.Ok, r == porcupine.Unknown
}
