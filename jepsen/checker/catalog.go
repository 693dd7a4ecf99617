package checker

import (
	"slices"

	"github.com/warrenmq/warren/jepsen/history"
	"github.com/warrenmq/warren/jepsen/model"
)

// Catalog finds answers about names (history.Declare, Look, Delete, API) that are not those of a
// register for each name. That something is there a node may say from its own copy, which may be
// old while a deletion is not answered yet, or a fault is there or was not long ago: such an answer needs only
// to have been right before.
func Catalog() Checker { return Checker{Name: "catalog", Check: catalog} }

// kinds are the operations of the model.
var kinds = map[string]model.Kind{
	history.Declare: model.Declare, history.Look: model.Exists, history.Delete: model.Delete, history.API: model.Read,
}

// names returns the operations on each name, as the model has them, and the places of each in the history.
func names(ops []history.Op) (byName map[string][]model.NameOp, places map[string][]int) {
	byName, places = map[string][]model.NameOp{}, map[string][]int{}
	open := map[int]int{} // by index of the invoke
	for i, o := range ops {
		kind, known := kinds[o.F]
		if !known {
			continue
		}
		if o.Type == history.Invoke {
			open[o.Index] = len(byName[o.Queue])
			byName[o.Queue] = append(byName[o.Queue], model.NameOp{Kind: kind, Value: o.Value, Call: int64(o.Index), Return: model.Never, Unknown: true})
			places[o.Queue] = append(places[o.Queue], i)
			continue
		}
		n, begun := open[o.Of]
		if !begun || o.Type == history.Info {
			continue
		}
		m := &byName[o.Queue][n]
		m.Unknown, m.Return, m.Refused = false, int64(o.Index), o.Type == history.Fail
		if kind == model.Read {
			m.Value = o.Value
		}
	}
	return byName, places
}

func catalog(ops []history.Op) (r Result) {
	byName, places := names(ops)
	unsettled := faults(ops)
	for i := range unsettled {
		unsettled[i].end += aftermath
	}
	total, old := 0, 0
	for _, name := range sortedKeys(byName) {
		var strict []model.NameOp
		for i, o := range byName[name] {
			begun := ops[places[name][i]]
			switch {
			case !positive(o):
			case !declaredBy(byName[name], o):
				r.problem("%s is said to be there (%q), and nobody had declared it so (%s)", name, o.Value, at(begun))
			case beingDeleted(byName[name], o) || during(unsettled, begun.Time, ops[o.Return-1].Time):
				old++
				continue
			}
			strict = append(strict, o)
		}
		total += len(strict)
		if ok, unknown := model.Register(strict, linearTime); unknown {
			r.problem("whether the %d operations on %s are linearizable could not be told in %v", len(strict), name, linearTime)
		} else if !ok {
			r.problem("the operations on %s are not linearizable; %s", name, firstBad(strict, ops))
		}
	}
	r.Summary = sprintf("%d operations on %d names, and %d answers that may be old", total, len(byName), old)
	r.figure("operations on names", float64(total))
	return r
}

// positive tells whether o says that something is there.
func positive(o model.NameOp) bool {
	return !o.Unknown && !o.Refused && (o.Kind == model.Read || o.Kind == model.Exists)
}

// declaredBy tells whether what o saw was declared before o ended.
func declaredBy(list []model.NameOp, o model.NameOp) bool {
	return slices.ContainsFunc(list, func(d model.NameOp) bool {
		return d.Kind == model.Declare && !d.Refused && d.Call < o.Return && (o.Kind == model.Exists || d.Value == o.Value)
	})
}

// beingDeleted tells whether a deletion had begun when o ended and was not answered when it began.
func beingDeleted(list []model.NameOp, o model.NameOp) bool {
	return slices.ContainsFunc(list, func(d model.NameOp) bool {
		return d.Kind == model.Delete && d.Call < o.Return && d.Return > o.Call
	})
}

// firstBad says with which answer the operations stop being linearizable.
func firstBad(list []model.NameOp, ops []history.Op) string {
	var ends []int64
	for _, o := range list {
		if !o.Unknown {
			ends = append(ends, o.Return)
		}
	}
	slices.Sort(ends)
	n, _ := slices.BinarySearchFunc(ends, true, func(end int64, _ bool) int {
		var until []model.NameOp
		for _, o := range list {
			if o.Call > end {
				continue
			}
			o.Unknown = o.Unknown || o.Return > end
			until = append(until, o)
		}
		if ok, _ := model.Register(until, linearTime/8); ok {
			return -1
		}
		return 1
	})
	if n >= len(ends) {
		return "it could not be told from which answer on"
	}
	o := ops[ends[n]-1]
	return sprintf("from this answer on: %s %s %q (%s)", o.F, o.Type, o.Value, at(o))
}
