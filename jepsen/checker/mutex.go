package checker

import (
	"slices"
	"strconv"
	"time"

	"github.com/warrenmq/warren/jepsen/history"
	"github.com/warrenmq/warren/jepsen/model"
)

const (
	// linearTime bounds the search for an order of operations.
	linearTime = 2 * time.Minute
	// aftermath is how long a node that was silent may still act on what it was told before:
	// on what was on its way to it, and until it has learned what was decided without it.
	aftermath = 5 * time.Second
)

// killing are the faults under which nodes end. Others make nodes silent that live.
var killing = []string{"kill", "kill-all", "restart", "power", "clock", "failpoint"}

// silences returns the faults that leave nodes alive and not heard, each until its aftermath
// is over.
func silences(ops []history.Op) []faultSpan {
	list := slices.DeleteFunc(faults(ops), func(f faultSpan) bool { return slices.Contains(killing, f.name) })
	for i := range list {
		list[i].end += aftermath
	}
	return list
}

// during tells whether one of the faults was there between two times.
func during(list []faultSpan, from, to time.Duration) bool {
	return slices.ContainsFunc(list, func(f faultSpan) bool { return f.begin <= to && f.end >= from })
}

// Mutex finds holdings (history.Acquire, history.Release) that are not those of a lock with tokens.
// A holder that lost its connection has lost the lock, nobody knows when; so may have one that
// held it while a living node was silent. No token is given twice.
func Mutex() Checker { return Checker{Name: "mutex", Check: mutex} }

// tenure is a holding in a history.
type tenure struct {
	model.Tenure
	got history.Op
	// asked and left are times of the run.
	asked, left time.Duration
	released    bool
}

func tenures(ops []history.Op) (list []*tenure, bad []history.Op) {
	type place struct {
		queue         string
		process, life int
	}
	asked := map[int]history.Op{}
	held := map[place]*tenure{}
	for _, o := range ops {
		p := place{o.Queue, o.Process, o.Life}
		switch {
		case o.F == history.Acquire && o.Type == history.Invoke:
			asked[o.Index] = o
		case o.F == history.Acquire && o.Type == history.OK:
			token, err := strconv.ParseInt(o.Value, 10, 64)
			if err != nil || asked[o.Of].Index == 0 {
				bad = append(bad, o)
				continue
			}
			a := asked[o.Of]
			held[p] = &tenure{Tenure: model.Tenure{Token: token, Asked: int64(a.Index), Got: int64(o.Index), Left: model.Never}, got: o, asked: a.Time, left: model.Never}
			list = append(list, held[p])
		case o.F == history.Release && o.Type == history.Invoke && held[p] != nil:
			held[p].Left, held[p].left = int64(o.Index), o.Time
		case o.F == history.Release && o.Type == history.OK && held[p] != nil:
			held[p].released = true
			delete(held, p)
		}
	}
	return list, bad
}

func mutex(ops []history.Op) (r Result) {
	list, bad := tenures(ops)
	for _, o := range bad {
		r.problem("the lock was given under no token or to nobody who asked: %q (%s)", o.Value, at(o))
	}
	silent := silences(ops)
	models := map[string][]model.Tenure{}
	firm := 0
	for _, t := range list {
		t.Lost = !t.released || during(silent, t.asked, t.left)
		if !t.Lost {
			firm++
		}
		models[t.got.Queue] = append(models[t.got.Queue], t.Tenure)
	}
	for _, lock := range sortedKeys(models) {
		if ok, unknown := model.Mutex(models[lock], linearTime); unknown {
			r.problem("%s: whether its %d holdings are a lock's could not be told in %v", lock, len(models[lock]), linearTime)
		} else if !ok {
			r.problem("the holdings of %s are not those of a lock with tokens", lock)
			explain(&r, lock, list)
		}
	}
	r.Summary = sprintf("%d holdings, %d of them undisturbed", len(list), firm)
	r.figure("holdings", float64(len(list)))
	r.figure("undisturbed holdings", float64(firm))
	return r
}

// explain names pairs of holdings that cannot both be.
func explain(r *Result, lock string, list []*tenure) {
	for i, a := range list {
		for _, b := range list[i+1:] {
			if a.got.Queue != lock || b.got.Queue != lock {
				continue
			}
			switch {
			case a.Token == b.Token:
				r.problem("token %d was given twice (%s; %s)", a.Token, at(a.got), at(b.got))
			case a.Token > b.Token && a.Got < b.Asked:
				r.problem("token %d was given after %d (%s; %s)", b.Token, a.Token, at(b.got), at(a.got))
			case !a.Lost && !b.Lost && b.Got < a.Left && a.Got < b.Left:
				r.problem("two had the lock, under %d and %d (%s; %s)", a.Token, b.Token, at(a.got), at(b.got))
			}
		}
	}
}
