package dlx

import (
	"fmt"
	"maps"
	"slices"
)

// Frozen is an immutable view of an outbox.
type Frozen struct {
	pages   []*page
	n       int
	last    ItemID
	targets []Target
}

// Freeze returns a view of the outbox as it is now. The outbox may change while
// another goroutine walks the view.
func (o *Outbox) Freeze() Frozen {
	for _, p := range o.pages {
		p.shared = true
	}
	return Frozen{slices.Clone(o.pages), o.n, o.last, o.Targets()}
}

// View is Freeze for a caller that is done before the outbox changes.
func (o *Outbox) View() Frozen { return Frozen{o.pages, o.n, o.last, o.Targets()} }

// Len is the number of items in the view.
func (f Frozen) Len() int { return f.n }

// Last is the id of the newest item ever added.
func (f Frozen) Last() ItemID { return f.last }

// Targets returns the targets, by id.
func (f Frozen) Targets() []Target { return f.targets }

// All yields the items in id order until yield returns false.
func (f Frozen) All(yield func(Item) bool) {
	for _, p := range f.pages {
		for i := range p.items {
			if p.items[i].flags&isPresent != 0 && !yield(p.item(i)) {
				return
			}
		}
	}
}

// Restore builds an outbox from what a view yields: targets and items in id
// order. Legs must name known targets, and a target's pending items must have
// its highest sequences without a hole, in some order of items.
func Restore(last ItemID, targets []Target, items func(yield func(Item) bool)) (*Outbox, error) {
	o := &Outbox{last: last, targets: map[uint64]*target{}}
	for _, t := range targets {
		if t.Next == 0 || t.Pending < 0 || uint64(t.Pending) >= t.Next || o.targets[t.Queue] != nil {
			return nil, fmt.Errorf("restore outbox: target %d with next %d and %d pending", t.Queue, t.Next, t.Pending)
		}
		if t.Withdraw > 0 && (t.Withdraw >= t.Next || t.Withdraw < t.Next-uint64(t.Pending)) {
			return nil, fmt.Errorf("restore outbox: target %d with %d pending withdraws %d of %d", t.Queue, t.Pending, t.Withdraw, t.Next)
		}
		o.targets[t.Queue] = &target{next: t.Next, gone: t.Gone, to: t.To}
		o.mark(o.targets[t.Queue], t.Withdraw)
	}
	type place struct {
		seq uint64
		id  ItemID
	}
	places := map[uint64][]place{}
	var err error
	var newest ItemID
	items(func(it Item) bool {
		if it.ID <= newest || it.ID > last || it.State > ParkedCycle || (it.State == Routed) != (len(it.Legs) > 0) {
			err = fmt.Errorf("restore outbox: item %d after %d in state %d with %d legs", it.ID, newest, it.State, len(it.Legs))
			return false
		}
		if it.Anew && it.State != Routed || len(it.Taken) > 0 && it.State > Routed || !slices.IsSorted(it.Taken) {
			err = fmt.Errorf("restore outbox: item %d in state %d, taken by %v, anew %t", it.ID, it.State, it.Taken, it.Anew)
			return false
		}
		newest = it.ID
		for i, l := range it.Legs {
			if slices.ContainsFunc(it.Legs[:i], func(x Leg) bool { return x.Target == l.Target }) {
				err = fmt.Errorf("restore outbox: item %d has two legs to %d", it.ID, l.Target)
				return false
			}
			places[l.Target] = append(places[l.Target], place{l.Seq, it.ID})
		}
		o.place(it)
		return true
	})
	if err != nil {
		return nil, err
	}
	for _, id := range slices.Sorted(maps.Keys(places)) {
		if o.targets[id] == nil {
			return nil, fmt.Errorf("restore outbox: leg to unknown target %d", id)
		}
	}
	for _, want := range targets {
		t, list := o.targets[want.Queue], places[want.Queue]
		slices.SortFunc(list, func(a, b place) int {
			if a.seq < b.seq {
				return -1
			}
			return 1
		})
		if len(list) != want.Pending {
			return nil, fmt.Errorf("restore outbox: target %d has %d pending, want %d", want.Queue, len(list), want.Pending)
		}
		for i, p := range list {
			if p.seq != t.next-uint64(len(list))+uint64(i) {
				return nil, fmt.Errorf("restore outbox: target %d misses sequence before %d", want.Queue, p.seq)
			}
			o.pend(want.Queue, t, p.id)
			if pg, slot := o.find(p.id); pg.items[slot].reason == Transaction {
				t.parts++
			}
		}
	}
	return o, nil
}
