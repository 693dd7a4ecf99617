package dlx

import (
	"slices"

	"github.com/warrenmq/warren/queue"
)

// Outbox holds the dead messages of one queue. Its owner is the replicated
// machine; readers are serialised with it by the caller. The zero Outbox is
// empty and ready.
type Outbox struct {
	pages []*page // ascending by num, none empty
	last  ItemID  // newest id ever given
	n     int
	bytes int64
	// waiting holds the ids of each state but Routed.
	waiting [ParkedCycle + 1]queue.Set
	targets map[uint64]*target
	// busy are those of the targets that have pending items.
	busy map[uint64]*target
	// met counts the targets that were added or forgotten.
	met uint64
	// withdrawing is the number of targets from which letters are being withdrawn.
	withdrawing int
}

// Len is the number of items.
func (o *Outbox) Len() int { return o.n }

// Bytes is the sum of the items' body bytes, and of what clients said of them.
func (o *Outbox) Bytes() int64 { return o.bytes }

// Last is the id of the newest item ever added, 0 if there was none.
func (o *Outbox) Last() ItemID { return o.last }

// Oldest returns the item that has waited longest: ids and times of death rise together.
func (o *Outbox) Oldest() (Item, bool) {
	if len(o.pages) == 0 {
		return Item{}, false
	}
	p := o.pages[0] // not empty
	for slot := range p.items {
		if p.items[slot].flags&isPresent != 0 {
			return p.item(slot), true
		}
	}
	return Item{}, false
}

// Count is the number of items in a state.
func (o *Outbox) Count(s State) int {
	if s == Routed {
		return o.n - o.waiting[Unrouted].Len() - o.waiting[ParkedUnrouted].Len() - o.waiting[ParkedCycle].Len()
	}
	return o.waiting[s].Len()
}

func (o *Outbox) locate(num uint64) (int, bool) {
	if n := len(o.pages); n > 0 && o.pages[n-1].num == num {
		return n - 1, true
	}
	return slices.BinarySearchFunc(o.pages, num, func(p *page, n uint64) int {
		switch {
		case p.num < n:
			return -1
		case p.num > n:
			return 1
		}
		return 0
	})
}

// find returns the page and place of an item for reading, nil if there is none.
func (o *Outbox) find(id ItemID) (*page, int) {
	i, ok := o.locate(uint64(id) >> pageShift)
	slot := int(id & pageMask)
	if !ok || slot >= len(o.pages[i].items) || o.pages[i].items[slot].flags&isPresent == 0 {
		return nil, 0
	}
	return o.pages[i], slot
}

// change returns the page and place of an existing item for writing.
func (o *Outbox) change(id ItemID) (*page, int) {
	i, _ := o.locate(uint64(id) >> pageShift)
	return o.writable(i), int(id & pageMask)
}

func (o *Outbox) writable(i int) *page {
	p := o.pages[i]
	if p.shared {
		p = p.clone()
		o.pages[i] = p
	}
	return p
}

// inState reports whether there is an item id in that state.
func (o *Outbox) inState(id ItemID, s State) bool {
	p, slot := o.find(id)
	return p != nil && p.items[slot].state == s
}

// Item returns the item id.
func (o *Outbox) Item(id ItemID) (Item, bool) {
	p, slot := o.find(id)
	if p == nil {
		return Item{}, false
	}
	return p.item(slot), true
}

// Next returns the first item with an id above after.
func (o *Outbox) Next(after ItemID) (Item, bool) {
	i, _ := o.locate(uint64(after+1) >> pageShift)
	for ; i < len(o.pages); i++ {
		p := o.pages[i]
		slot := 0
		if p.num == uint64(after+1)>>pageShift {
			slot = int((after + 1) & pageMask)
		}
		for ; slot < len(p.items); slot++ {
			if p.items[slot].flags&isPresent != 0 {
				return p.item(slot), true
			}
		}
	}
	return Item{}, false
}

// Unrouted returns up to limit items that wait for their targets, oldest first.
func (o *Outbox) Unrouted(limit int) []Item { return o.Waiting(Unrouted, 0, limit) }

// Waiting returns up to limit items of a state other than Routed with ids above
// after, oldest first.
func (o *Outbox) Waiting(s State, after ItemID, limit int) []Item {
	if s == Routed || int(s) >= len(o.waiting) || limit <= 0 {
		return nil
	}
	items := make([]Item, 0, min(limit, o.waiting[s].Len()))
	for id, ok := o.waiting[s].Next(uint64(after)); ok && len(items) < limit; id, ok = o.waiting[s].Next(id) {
		p, slot := o.find(ItemID(id))
		items = append(items, p.item(slot))
	}
	return items
}

// Add takes in a dead message and returns its item id.
func (o *Outbox) Add(ref queue.Ref, bodyBytes uint32, reason Reason, timeMillis int64) ItemID {
	o.last++
	o.place(Item{ID: o.last, Ref: ref, BodyBytes: bodyBytes, TimeMillis: timeMillis, Reason: reason})
	return o.last
}

// Explain gives an item that has none the text of the client that rejected it.
func (o *Outbox) Explain(id ItemID, detail string) {
	if p, _ := o.find(id); p == nil || detail == "" {
		return
	}
	p, slot := o.change(id)
	p.explain(slot, detail)
	o.bytes += int64(len(detail))
}

// Relay takes in a part of a transaction with its targets, each once. Closed ones are
// left out; ok is false if none is left, and nothing is added then.
func (o *Outbox) Relay(ref queue.Ref, bodyBytes uint32, timeMillis int64, targets []uint64) (id ItemID, ok bool) {
	open := 0
	for _, t := range targets {
		if _, ok := o.present(t); ok {
			open++
		}
	}
	if open == 0 {
		return 0, false
	}
	id = o.Add(ref, bodyBytes, Transaction, timeMillis)
	ok = o.Route(id, targets)
	it, _ := o.Item(id)
	for _, l := range it.Legs {
		o.targets[l.Target].parts++
	}
	return id, ok
}

// place stores an item whose id is above all others.
func (o *Outbox) place(it Item) {
	num, slot := uint64(it.ID)>>pageShift, int(it.ID&pageMask)
	i, ok := o.locate(num)
	if !ok {
		o.pages = slices.Insert(o.pages, i, &page{num: num})
	}
	o.writable(i).put(slot, &it)
	o.n++
	o.bytes += int64(it.BodyBytes) + int64(len(it.Detail))
	if it.State != Routed {
		o.waiting[it.State].Add(uint64(it.ID))
	}
}

// Drop takes the item out, with its legs, and returns it. An item that has a leg
// must not be dropped but by Done and Gone: its sequence would be missing.
func (o *Outbox) Drop(id ItemID) (Item, bool) {
	if p, slot := o.find(id); p == nil || p.items[slot].state == Routed {
		return Item{}, false
	}
	return o.remove(id), true
}

func (o *Outbox) remove(id ItemID) Item {
	i, _ := o.locate(uint64(id) >> pageShift)
	p, slot := o.writable(i), int(id&pageMask)
	it := p.item(slot)
	p.clear(slot)
	if p.n == 0 {
		o.pages = slices.Delete(o.pages, i, i+1)
	}
	o.n--
	o.bytes -= int64(it.BodyBytes) + int64(len(it.Detail))
	if it.State != Routed {
		o.waiting[it.State].Remove(uint64(id))
	}
	return it
}

// setState moves an item to a state and gives it the legs that belong to it.
func (o *Outbox) setState(id ItemID, s State, legs []Leg) {
	p, slot := o.change(id)
	x := &p.items[slot]
	if x.state != Routed {
		o.waiting[x.state].Remove(uint64(id))
	}
	x.state = s
	if s != Routed {
		o.waiting[s].Add(uint64(id))
	}
	p.setLegs(slot, legs)
}

// Parked is the number of items parked for that reason, ParkUnrouted or
// ParkCycle.
func (o *Outbox) Parked(kind NoRoute) int {
	if s, ok := kind.State(); ok {
		return o.Count(s)
	}
	return 0
}

// Park keeps an unrouted item without targets, if none has taken it. It reports whether
// it did.
func (o *Outbox) Park(id ItemID, kind NoRoute) bool {
	s, ok := kind.State()
	if !ok || !o.inState(id, Unrouted) {
		return false
	}
	if p, slot := o.find(id); p.items[slot].flags&isTaken != 0 {
		return false
	}
	o.setState(id, s, nil)
	return true
}

// Release makes every item that is parked for that reason unrouted again and
// returns their number.
func (o *Outbox) Release(kind NoRoute) int {
	s, ok := kind.State()
	if !ok {
		return 0
	}
	n := o.waiting[s].Len()
	for id, ok := o.waiting[s].First(); ok; id, ok = o.waiting[s].First() {
		o.setState(ItemID(id), Unrouted, nil)
	}
	return n
}

// Route gives an unrouted item its targets and each the next sequence.
// Repeated and closed targets and those that have taken it are left out; with none left
// the item stays unrouted. It reports whether the item is routed now.
func (o *Outbox) Route(id ItemID, targets []uint64) bool {
	if !o.inState(id, Unrouted) {
		return false
	}
	p, slot := o.find(id)
	took := p.took[slot]
	legs := make([]Leg, 0, len(targets))
	for _, target := range targets {
		target, open := o.present(target)
		if !open || slices.ContainsFunc(legs, func(l Leg) bool { return l.Target == target }) || slices.Contains(took, target) {
			continue
		}
		legs = append(legs, o.leg(target, id))
	}
	if len(legs) == 0 {
		return false
	}
	o.setState(id, Routed, legs)
	return true
}
