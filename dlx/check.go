package dlx

import (
	"fmt"
	"slices"
)

// Check recounts everything that is derived from the items and returns the first
// difference. It costs time in proportion to their number.
func (o *Outbox) Check() error {
	n, bytes, legs, last := 0, int64(0), 0, ItemID(0)
	parts := map[uint64]int{}
	var err error
	o.View().All(func(it Item) bool {
		n, bytes, legs = n+1, bytes+int64(it.BodyBytes)+int64(len(it.Detail)), legs+len(it.Legs)
		err = o.checkItem(&it, last)
		last = it.ID
		if it.Reason == Transaction {
			for _, l := range it.Legs {
				parts[l.Target]++
			}
		}
		return err == nil
	})
	if err != nil {
		return err
	}
	waiting := 0
	for s := range o.waiting {
		waiting += o.waiting[s].Len()
	}
	if n != o.n || bytes != o.bytes || n != waiting+o.Count(Routed) {
		return fmt.Errorf("counted %d items, %d bytes, %d waiting; have %d, %d", n, bytes, waiting, o.n, o.bytes)
	}
	withdrawing := 0
	for id, t := range o.targets {
		legs -= len(t.pending)
		if t.withdraw > 0 {
			withdrawing++
		}
		if t.next == 0 || uint64(len(t.pending)) >= t.next || t.gone && len(t.pending) > 0 ||
			t.withdraw > 0 && (t.withdraw < t.first() || t.withdraw >= t.next) || t.parts != parts[id] {
			return fmt.Errorf("target %d: next %d, %d pending, gone %t", id, t.next, len(t.pending), t.gone)
		}
		if (o.busy[id] == t) != (len(t.pending) > 0) {
			return fmt.Errorf("target %d: %d pending, busy %t", id, len(t.pending), o.busy[id] == t)
		}
	}
	if withdrawing != o.withdrawing {
		return fmt.Errorf("letters are withdrawn from %d targets, counted %d", withdrawing, o.withdrawing)
	}
	if len(o.busy) > len(o.targets) {
		return fmt.Errorf("%d of %d targets are busy", len(o.busy), len(o.targets))
	}
	if legs != 0 {
		return fmt.Errorf("%d legs are in no target's list", legs)
	}
	return nil
}

func (o *Outbox) checkItem(it *Item, last ItemID) error {
	if it.ID <= last || it.ID > o.last || (it.State == Routed) != (len(it.Legs) > 0) {
		return fmt.Errorf("item %d after %d, last %d, state %v, %d legs", it.ID, last, o.last, it.State, len(it.Legs))
	}
	if it.State != Routed && !o.waiting[it.State].Has(uint64(it.ID)) {
		return fmt.Errorf("item %d does not wait as %v", it.ID, it.State)
	}
	if it.Anew && it.State != Routed || len(it.Taken) > 0 && it.State > Routed {
		return fmt.Errorf("item %d: state %v, taken by %v, anew %t", it.ID, it.State, it.Taken, it.Anew)
	}
	for _, l := range it.Legs {
		if slices.Contains(it.Taken, l.Target) {
			return fmt.Errorf("item %d: a leg to %d, which has taken it", it.ID, l.Target)
		}
		t := o.targets[l.Target]
		if t == nil || l.Seq < t.first() || l.Seq >= t.next || t.pending[l.Seq-t.first()] != it.ID {
			return fmt.Errorf("item %d: leg %+v is not pending", it.ID, l)
		}
		if slices.ContainsFunc(it.Legs, func(x Leg) bool { return x != l && x.Target == l.Target }) {
			return fmt.Errorf("item %d: two legs to %d", it.ID, l.Target)
		}
	}
	return nil
}
