package dlx

import (
	"slices"

	"github.com/warrenmq/warren/queue"
)

// InOrder reports whether a letter that is routed now stays behind those that died before
// it: none of them waits for its targets, for a way, or to be called back from a target.
func (o *Outbox) InOrder() bool { return o.waiting[Unrouted].Len() == 0 && o.mayRoute() }

// mayRoute is InOrder for the oldest letter without targets.
func (o *Outbox) mayRoute() bool {
	return o.waiting[ParkedUnrouted].Len() == 0 && o.withdrawing == 0
}

// Open reports whether none of the targets is known to be closed.
func (o *Outbox) Open(targets []uint64) bool {
	for _, t := range targets {
		if x := o.targets[t]; x != nil && x.gone {
			return false
		}
	}
	return true
}

// AddRouted takes in a dead message and gives it its targets, ascending, each once, at least
// one, none closed.
func (o *Outbox) AddRouted(ref queue.Ref, bodyBytes uint32, reason Reason, timeMillis int64, targets []uint64) {
	o.last++
	num, slot := uint64(o.last)>>pageShift, int(o.last&pageMask)
	i, ok := o.locate(num)
	if !ok {
		o.pages = slices.Insert(o.pages, i, &page{num: num})
	}
	p := o.writable(i)
	it := Item{ID: o.last, Ref: ref, BodyBytes: bodyBytes, TimeMillis: timeMillis, Reason: reason, State: Routed}
	if len(targets) > 1 {
		it.Legs = make([]Leg, len(targets))
		for k, id := range targets {
			it.Legs[k] = o.leg(id, it.ID)
		}
		p.put(slot, &it)
	} else {
		p.put(slot, &it)
		p.items[slot].leg = o.leg(targets[0], it.ID)
	}
	o.n++
	o.bytes += int64(bodyBytes)
}

// leg puts an item behind all that are under way to a target.
func (o *Outbox) leg(target uint64, id ItemID) Leg {
	t := o.target(target)
	l := Leg{target, t.next}
	t.next++
	o.pend(target, t, id)
	return l
}

// RouteWaiting gives unrouted items these targets, oldest first, as long as that keeps the
// order and allowed says so, up to limit of them, and tells of each. Items that have been taken
// by one of the targets are for somebody who looks closer.
func (o *Outbox) RouteWaiting(targets []uint64, limit int, allowed func(Reason) bool, routed func(ItemID)) {
	for range limit {
		if !o.mayRoute() {
			break
		}
		id, ok := o.waiting[Unrouted].First()
		if !ok {
			break
		}
		p, slot := o.find(ItemID(id))
		if x := &p.items[slot]; x.flags&isTaken != 0 || !allowed(x.reason) || !o.Route(ItemID(id), targets) {
			break
		}
		routed(ItemID(id))
	}
}
