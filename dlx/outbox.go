package dlx

import (
	"maps"
	"math"
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

// target holds the items under way to one target: pending[i] has sequence
// next-len(pending)+i.
type target struct {
	next    uint64
	gone    bool
	to      uint64 // of one that is gone: the queue that goes on in its place, 0 if it was closed
	pending []ItemID
	parts   int // how many of them are parts of transactions
	// withdraw is the sequence up to which letters are to be withdrawn, 0 or pending.
	withdraw uint64
}

func (t *target) first() uint64 { return t.next - uint64(len(t.pending)) }

// pend puts an item behind all that are under way to a target, with the sequence before next.
func (o *Outbox) pend(id uint64, t *target, item ItemID) {
	if t.pending = append(t.pending, item); len(t.pending) == 1 {
		if o.busy == nil {
			o.busy = map[uint64]*target{}
		}
		o.busy[id] = t
	}
}

// clear notes that nothing is under way to a target.
func (o *Outbox) clear(id uint64, t *target) {
	t.pending = nil
	delete(o.busy, id)
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

// Targets returns every target that has ever been given an item and was not
// forgotten, by id.
func (o *Outbox) Targets() []Target {
	return listed(o.targets)
}

// Busy returns the targets that have items under way, by id.
func (o *Outbox) Busy() []Target { return listed(o.busy) }

// Met is another number whenever a target was added or forgotten. It is none of the state: replicas may differ.
func (o *Outbox) Met() uint64 { return o.met }

// Withdrawing reports whether letters are to be called back from some target.
func (o *Outbox) Withdrawing() bool { return o.withdrawing > 0 }

func listed(targets map[uint64]*target) []Target {
	list := make([]Target, 0, len(targets))
	for _, id := range slices.Sorted(maps.Keys(targets)) {
		t := targets[id]
		list = append(list, Target{id, t.next, len(t.pending), t.gone, t.withdraw, t.parts, t.to})
	}
	return list
}

// NextSeq is the sequence that the next item routed to the target gets.
func (o *Outbox) NextSeq(target uint64) uint64 {
	if t := o.targets[target]; t != nil {
		return t.next
	}
	return 1
}

// Progress tells up to which sequence the target is done with, and up to which letters
// that are pending are to be withdrawn, 0 if none.
func (o *Outbox) Progress(target uint64) (done, withdraw uint64) {
	t := o.targets[target]
	if t == nil {
		return 0, 0
	}
	return t.first() - 1, t.withdraw
}

// Known reports whether the target has a sequence, and whether it is closed.
func (o *Outbox) Known(target uint64) (known, gone bool) {
	t := o.targets[target]
	return t != nil, t != nil && t.gone
}

// Pending returns up to limit items under way to target with sequences above
// after, in order.
func (o *Outbox) Pending(target uint64, after uint64, limit int) []Pending {
	t := o.targets[target]
	if t == nil || after >= t.next-1 || limit <= 0 {
		return nil
	}
	seq := max(after+1, t.first())
	ids := t.pending[seq-t.first():]
	ids = ids[:min(limit, len(ids))]
	list := make([]Pending, len(ids))
	for i, id := range ids {
		p, slot := o.find(id)
		x := &p.items[slot]
		list[i] = Pending{
			Seq: seq + uint64(i), Item: id, Ref: queue.Ref{Index: x.index, Offset: x.offset, Length: x.length},
			BodyBytes: x.body, TimeMillis: x.timeMillis, Reason: x.reason, Detail: p.details[slot], Alone: x.flags&(isFan|isTaken) == 0,
		}
	}
	return list
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

func (o *Outbox) target(id uint64) *target {
	t := o.targets[id]
	if t == nil {
		t = &target{next: 1}
		if o.targets == nil {
			o.targets = map[uint64]*target{}
		}
		o.targets[id] = t
		o.met++
	}
	return t
}

// Done records that target has taken everything up to sequence upTo, but not what is
// named as withdrawn, ascending. Items without a further leg leave the outbox and are
// passed to left, or wait to be routed again if they were withdrawn. An item of a redrive
// that was withdrawn keeps its way, under a new sequence; one that no target has taken or may
// still take leaves instead if returns is set. It reports whether that was news.
func (o *Outbox) Done(target, upTo uint64, withdrawn []uint64, returns bool, left func(Item)) (news bool) {
	t := o.targets[target]
	if t == nil || len(t.pending) == 0 || t.first() > upTo {
		return false
	}
	upTo = min(upTo, t.next-1) // not what is renewed
	for len(t.pending) > 0 && t.first() <= upTo {
		id, seq := t.pending[0], t.first()
		t.pending = t.pending[1:]
		p, slot := o.change(id)
		if p.items[slot].reason == Transaction {
			t.parts--
		}
		last := p.dropLeg(slot, target) == 0
		_, back := slices.BinarySearch(withdrawn, seq)
		switch {
		case back && p.items[slot].reason == Redrive:
			if !returns || !last || p.items[slot].flags&isTaken != 0 {
				o.renew(p, slot, id, target)
				continue
			}
		case back:
			p.items[slot].flags |= isAnew
		case !last, p.items[slot].flags&isAnew != 0, p.items[slot].reason == Redrive:
			p.take(slot, target)
		default:
			left(o.remove(id))
			continue
		}
		if last {
			o.finish(id, left)
		}
	}
	if len(t.pending) == 0 {
		o.clear(target, t)
	}
	if t.withdraw < t.first() {
		o.mark(t, 0)
	}
	return true
}

// finish ends the way of a routed item that has no leg left. It leaves if it is a part of
// a transaction or of a redrive, or if some target has taken it and none was withdrawn; else its targets
// have to be named again.
func (o *Outbox) finish(id ItemID, left func(Item)) {
	p, slot := o.change(id)
	x := &p.items[slot]
	if x.reason == Transaction || x.reason == Redrive || x.flags&isTaken != 0 && x.flags&isAnew == 0 {
		left(o.remove(id))
		return
	}
	x.flags &^= isAnew
	o.setState(id, Unrouted, nil)
}

// Gone records that target was closed with this final watermark: items up to it
// are done, but those named as withdrawn; the others lose the leg. An item left without a
// leg leaves if some target has taken it or if it is a part of a transaction, and is
// unrouted again otherwise. It reports whether that was news.
func (o *Outbox) Gone(target, watermark uint64, withdrawn []uint64, left func(Item)) (news bool) {
	o.Done(target, watermark, withdrawn, true, left)
	t := o.target(target)
	if t.gone {
		return false
	}
	t.gone = true
	for _, id := range t.pending {
		p, slot := o.change(id)
		if p.dropLeg(slot, target) == 0 {
			o.finish(id, left)
		}
	}
	o.clear(target, t)
	t.parts = 0
	o.mark(t, 0)
	return true
}

// mark notes up to which sequence letters to a target are to be withdrawn, 0 for none.
func (o *Outbox) mark(t *target, upTo uint64) {
	if (t.withdraw > 0) != (upTo > 0) {
		if upTo > 0 {
			o.withdrawing++
		} else {
			o.withdrawing--
		}
	}
	t.withdraw = upTo
}

// Withdraw asks for letters back: those under way to target with sequences up to upTo.
// They keep their legs until the target says whether it has taken them. It reports whether
// that was news.
func (o *Outbox) Withdraw(target, upTo uint64) (news bool) {
	t := o.targets[target]
	if t == nil || len(t.pending) == 0 {
		return false
	}
	upTo = min(upTo, t.next-1)
	if upTo < t.first() || upTo <= t.withdraw {
		return false
	}
	o.mark(t, upTo)
	return true
}

// WithdrawAll asks for every letter back that is under way.
func (o *Outbox) WithdrawAll() (news bool) {
	for id := range o.targets {
		news = o.Withdraw(id, math.MaxUint64) || news
	}
	return news
}

// Forget drops what is known of a closed target. Of one that may still live the
// sequence must stay, or its next item would look like one it had before.
func (o *Outbox) Forget(target uint64) {
	if t := o.targets[target]; t != nil && t.gone {
		delete(o.targets, target)
		o.met++
	}
}
