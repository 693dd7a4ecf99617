package fsm

import (
	"cmp"
	"maps"
	"math"
	"slices"

	"github.com/warrenmq/warren/dlx"
	"github.com/warrenmq/warren/queue"
)

// model is the machine written down without any cleverness: lists, linear
// searches, messages by value. It says what apply means.
type model struct {
	time       int64
	session    uint64
	mark       queue.MessageID
	closed     bool
	tenure     Tenure
	settings   queue.Settings
	rev, floor uint64
	set        bool
	tail       queue.MessageID
	live       []queue.Message
	delays     map[queue.MessageID]int64
	out        []dlx.Item
	lastItem   OutboxID
	next       map[uint64]uint64 // next sequence of each target
	gone       map[uint64]bool
	withdraw   map[uint64]uint64 // asked back, by target
	way        [3]any            // exchange, key, key set
	streams    map[uint32]*modelStream
	sources    map[Source]*modelSource
	counters   Counters
	redriving  dlx.Redriving
	away       map[OutboxID]queue.MessageID // live messages that a redrive has sent
	undecided  map[OutboxID]queue.MessageID // expired messages that may stay
	catalogRev uint64                       // of the entry
	dedup      []queue.DedupEntry           // ids in the order in which they were taken
	newest     uint64                       // catalog revision of any entry
	plan       Plan                         // of the entry
	cancelled  []queue.MessageID

	// of the present entry
	removed, returned []queue.MessageID
	freed             []queue.MessageID
	outcomes          [][]Outcome
	transfers         [][]uint64 // withdrawn sequences of each answer
}

type modelStream struct {
	incarnation, watermark, answered uint64
	outcomes                         map[uint64]Outcome
}

type modelSource struct {
	watermark, answered uint64
	withdrawn           map[uint64]bool
}

func newModel() *model {
	return &model{
		settings: New().settings, next: map[uint64]uint64{}, gone: map[uint64]bool{}, withdraw: map[uint64]uint64{},
		delays: map[queue.MessageID]int64{}, away: map[OutboxID]queue.MessageID{}, undecided: map[OutboxID]queue.MessageID{},
		streams: map[uint32]*modelStream{}, sources: map[Source]*modelSource{},
	}
}

// entry applies an entry; refs gives the places of its messages in order.
func (o *model) entry(e *Entry, refs []queue.Ref) {
	o.removed, o.returned, o.freed, o.outcomes, o.transfers = nil, nil, nil, nil, nil
	if e.Session < o.session {
		return
	}
	o.session = e.Session
	o.time = max(o.time, e.TimeMillis)
	o.mark = max(o.mark, e.Mark)
	for len(o.dedup) > 0 && o.dedup[0].Until <= o.time {
		o.dedup = o.dedup[1:]
	}
	maps.DeleteFunc(o.delays, func(_ queue.MessageID, at int64) bool { return at <= o.time })
	o.catalogRev, o.newest, o.plan = e.CatalogRev, max(o.newest, e.CatalogRev), Plan{}
	tail := o.tail
	ref := func() (r queue.Ref) { r, refs = refs[0], refs[1:]; return r }
	for _, c := range e.Commands {
		switch c := c.(type) {
		case Stream:
			o.stream(c, ref)
		case TransferIn:
			o.transferIn(c, ref)
		case Return:
			o.settle(c.Kind, c.Runs, "")
		case Expire:
			for _, id := range o.named(c.IDs) {
				if m := o.get(id); m.ExpiresAt != 0 && m.ExpiresAt <= o.time {
					o.expire(m)
				}
			}
		case DropHeads:
			for _, id := range o.named(c.IDs) {
				o.die(o.remove(id), dlx.MaxLen)
			}
		case Route:
			for _, d := range c.Items {
				if c.Settings == 0 || c.Settings == o.rev {
					o.route(d)
				}
			}
		case Plan:
			o.plan = c
			for _, it := range slices.Clone(o.out) {
				if it.State == dlx.Unrouted {
					if !o.planned(it.Reason) || o.older(it.ID) || len(it.Taken) > 0 {
						break
					}
					o.route(Routed{Item: it.ID, Targets: c.Targets})
				}
			}
		case TransferDone:
			o.done(c.Target, c.UpTo, c.Withdrawn, o.redriving.Stopped && len(o.away) > 0)
		case TargetGone:
			o.targetGone(c)
		case Withdraw:
			o.withdrawTo(c.Target, c.UpTo)
		case Release:
			if s, ok := c.Kind.State(); ok {
				for i := range o.out {
					if o.out[i].State == s {
						o.out[i].State = dlx.Unrouted
					}
				}
			}
		case ForgetSources:
			o.floor = max(o.floor, e.CatalogRev)
			for _, s := range c.Sources {
				delete(o.sources, s)
				if o.gone[s.Queue] {
					delete(o.next, s.Queue)
					delete(o.withdraw, s.Queue)
					delete(o.gone, s.Queue)
				}
			}
		case SetSettings:
			if !o.set || c.Revision > o.rev {
				o.settings, o.rev, o.set = c.Settings, c.Revision, true
				o.forget(c.Settings.Dedup.Size)
				if c.Settings.DeadLetter {
					way := [3]any{c.Settings.DeadLetterExchange, c.Settings.DeadLetterRoutingKey, c.Settings.DeadLetterKeySet}
					if o.way != way {
						for target := range o.next {
							o.withdrawTo(target, math.MaxUint64)
						}
						for i := range o.out {
							if o.out[i].State > dlx.Routed {
								o.out[i].State = dlx.Unrouted
							}
						}
					}
					o.way = way
				}
			}
		case Close:
			if !o.closed {
				o.closeRedrive()
				for _, id := range slices.Sorted(maps.Keys(o.undecided)) {
					o.depart(id)
				}
				for !buries(&o.settings) && len(o.live) > 0 {
					o.remove(o.live[0].ID)
					o.counters.Closed++
				}
				o.closed, o.dedup, o.cancelled = true, nil, nil
			}
		case Tenure:
			o.tenure = c
		case Bury:
			for _, id := range o.named([]queue.IDRange{{First: 1, Last: c.UpTo}}) {
				if o.closed {
					o.die(o.remove(id), dlx.QueueRemoved)
				}
			}
		case StartRedrive, StopRedrive, TakeRedrive:
			o.redriveCommand(c)
		}
	}
	if e.MarkSelf && o.tail > tail {
		o.mark = max(o.mark, o.tail)
	}
}

func (o *model) get(id queue.MessageID) *queue.Message {
	for i := range o.live {
		if o.live[i].ID == id {
			return &o.live[i]
		}
	}
	return nil
}

// named lists the live ids of ranges in the order named, repeats included once.
func (o *model) named(ranges []queue.IDRange) (list []queue.MessageID) {
	for _, r := range ranges {
		for _, m := range o.live {
			if m.ID >= r.First && m.ID <= r.Last && !slices.Contains(list, m.ID) && !o.leaving(m.ID) {
				list = append(list, m.ID)
			}
		}
	}
	return list
}

func (o *model) remove(id queue.MessageID) queue.Message {
	m := *o.get(id)
	o.live = slices.DeleteFunc(o.live, func(x queue.Message) bool { return x.ID == id })
	o.removed = append(o.removed, id)
	delete(o.delays, id)
	return m
}

func (o *model) die(m queue.Message, r dlx.Reason) {
	o.counters.Died[r]++
	if !o.settings.DeadLetter {
		o.counters.Dropped[r][DropDisabled]++
		return
	}
	o.lastItem++
	o.out = append(o.out, dlx.Item{ID: o.lastItem, Ref: m.Ref, BodyBytes: m.BodyBytes, TimeMillis: o.time, Reason: r})
	if o.planned(r) && !o.older(o.lastItem) {
		o.route(Routed{Item: o.lastItem, Targets: o.plan.Targets})
	}
}

func (o *model) enqueue(ref queue.Ref, body uint32, prio uint8, hasPrio bool, ttl int64, dead bool) {
	o.tail++
	m := queue.Message{ID: o.tail, Ref: ref, BodyBytes: body, Priority: o.settings.DefaultPriority}
	if hasPrio {
		m.Priority = prio
	}
	m.Priority = min(m.Priority, o.settings.MaxPriority)
	if q := o.settings.MessageTTLMillis; q >= 0 && (ttl < 0 || ttl > q) && (!dead || !o.settings.DeadLettersKeep) {
		ttl = q
	}
	if o.settings.Delayed && ttl < 0 {
		ttl = 0
	}
	if ttl >= 0 {
		m.ExpiresAt = max(o.time+ttl, 1)
	}
	o.live = append(o.live, m)
}

// dueOrder lists expiring messages in the order in which they expire.
func (o *model) dueOrder(now int64) []queue.MessageID {
	var due []queue.Message
	for _, m := range o.live {
		if m.ExpiresAt != 0 && m.ExpiresAt <= now {
			due = append(due, m)
		}
	}
	slices.SortStableFunc(due, func(a, b queue.Message) int { return cmp.Compare(a.ExpiresAt, b.ExpiresAt) })
	var ids []queue.MessageID
	for _, m := range due {
		ids = append(ids, m.ID)
	}
	return ids
}
