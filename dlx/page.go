package dlx

import (
	"maps"
	"slices"

	"github.com/warrenmq/warren/queue"
)

const (
	pageShift = 9
	pageSize  = 1 << pageShift
	pageMask  = pageSize - 1
)

// page holds the items of one block of ids.
type page struct {
	num    uint64
	n      int
	shared bool // a frozen view holds this page: clone before changing it
	items  []stored
	// fans are the legs of items that were routed to several targets. A list is
	// never changed in place.
	fans map[int][]Leg
	// took are the targets that have taken such an item. Lists are never changed in place.
	took map[int][]uint64
	// details are what clients said of items that they rejected: of few.
	details map[int]string
}

// stored is an item without pointers. Most items have one target.
type stored struct {
	index                uint64
	timeMillis           int64
	leg                  Leg // the only one, if any; its Seq is then not 0
	offset, length, body uint32
	reason               Reason
	state                State
	flags                uint8
}

const (
	isPresent = 1 << iota
	isTaken
	isFan // the legs are in the page's fans
	isAnew
	isExplained // the text is in the page's details
)

func (p *page) clone() *page {
	return &page{num: p.num, n: p.n, items: slices.Clone(p.items), fans: maps.Clone(p.fans), took: maps.Clone(p.took), details: maps.Clone(p.details)}
}

func (p *page) id(slot int) ItemID { return ItemID(p.num<<pageShift | uint64(slot)) }

func (p *page) item(slot int) Item {
	s := &p.items[slot]
	it := Item{
		ID: p.id(slot), Ref: queue.Ref{Index: s.index, Offset: s.offset, Length: s.length}, BodyBytes: s.body,
		TimeMillis: s.timeMillis, Reason: s.reason, State: s.state, Anew: s.flags&isAnew != 0,
	}
	if s.flags&isExplained != 0 {
		it.Detail = p.details[slot]
	}
	if s.flags&isTaken != 0 {
		it.Taken = p.took[slot]
	}
	switch {
	case s.flags&isFan != 0:
		it.Legs = p.fans[slot]
	case s.leg.Seq != 0:
		it.Legs = []Leg{s.leg}
	}
	return it
}

func (p *page) put(slot int, it *Item) {
	for len(p.items) <= slot {
		p.items = append(p.items, stored{})
	}
	s := &p.items[slot]
	*s = stored{
		index: it.Ref.Index, offset: it.Ref.Offset, length: it.Ref.Length, body: it.BodyBytes,
		timeMillis: it.TimeMillis, reason: it.Reason, state: it.State, flags: isPresent,
	}
	if it.Anew {
		s.flags |= isAnew
	}
	for _, t := range it.Taken {
		p.take(slot, t)
	}
	p.explain(slot, it.Detail)
	p.setLegs(slot, it.Legs)
	p.n++
}

func (p *page) clear(slot int) {
	p.setLegs(slot, nil)
	delete(p.took, slot)
	delete(p.details, slot)
	p.items[slot] = stored{}
	p.n--
}

// explain notes what the client said that rejected the item.
func (p *page) explain(slot int, detail string) {
	if detail == "" {
		return
	}
	if p.details == nil {
		p.details = map[int]string{}
	}
	p.details[slot] = detail
	p.items[slot].flags |= isExplained
}

// take notes that a target has taken the item.
func (p *page) take(slot int, target uint64) {
	if p.took == nil {
		p.took = map[int][]uint64{}
	}
	have := p.took[slot]
	if i, found := slices.BinarySearch(have, target); !found {
		p.took[slot] = slices.Insert(slices.Clone(have), i, target)
	}
	p.items[slot].flags |= isTaken
}

// setLegs stores the legs of an item. The page keeps the list if it has several.
func (p *page) setLegs(slot int, legs []Leg) {
	s := &p.items[slot]
	if s.flags&isFan != 0 && len(legs) < 2 {
		delete(p.fans, slot)
		s.flags &^= isFan
	}
	s.leg = Leg{}
	switch {
	case len(legs) == 1:
		s.leg = legs[0]
	case len(legs) > 1:
		if p.fans == nil {
			p.fans = map[int][]Leg{}
		}
		p.fans[slot] = legs
		s.flags |= isFan
	}
}

// dropLeg takes out the leg to a target and returns how many are left.
func (p *page) dropLeg(slot int, target uint64) (left int) {
	if p.items[slot].flags&isFan == 0 {
		p.items[slot].leg = Leg{}
		return 0
	}
	legs := make([]Leg, 0, len(p.fans[slot])-1)
	for _, l := range p.fans[slot] {
		if l.Target != target {
			legs = append(legs, l)
		}
	}
	p.setLegs(slot, legs)
	return len(legs)
}
