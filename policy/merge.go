package policy

import (
	"slices"
	"strings"

	"github.com/warrenmq/warren/amqp"
)

// Merge returns what a policy and an operator policy say together, sorted by key; either
// may be nil. Of keys that both have, the smaller time or length counts, the smaller delivery
// limit unless one of them is negative, the larger group size, and of all others the operator's.
func Merge(p, operator *Policy) amqp.Table {
	switch {
	case p == nil && operator == nil:
		return nil
	case operator == nil:
		return p.Definition
	case p == nil:
		return operator.Definition
	}
	t := slices.Clone(p.Definition)
	for _, f := range operator.Definition {
		v, both := t.Get(f.Name)
		if both {
			t.Set(f.Name, keyOf(f.Name).merge(v, f.Value))
		} else {
			t = append(t, f)
		}
	}
	slices.SortFunc(t, func(a, b amqp.Field) int { return strings.Compare(a.Name, b.Name) })
	return t
}

// Arguments returns the arguments that a queue would have to be declared with to behave as it
// does under a merged definition: its own, and those of the definition. The argument wins
// for dead-letter keys, the smaller one for times and lengths; of overflow the argument
// wins on classic queues and the policy on quorum queues. The result may share with args.
func Arguments(args amqp.Table, quorum bool, merged amqp.Table) amqp.Table {
	if len(merged) == 0 {
		return args
	}
	t := slices.Clone(args)
	for _, f := range merged {
		k := keyOf(f.Name)
		if !k.argument {
			continue
		}
		name := "x-" + f.Name
		own, both := t.Get(name)
		with := k.with
		if quorum && k.quorum != nil {
			with = k.quorum
		}
		switch {
		case !both:
			t = append(t, amqp.Field{Name: name, Value: f.Value})
		case with != nil:
			t.Set(name, with(own, f.Value))
		}
	}
	return t
}
