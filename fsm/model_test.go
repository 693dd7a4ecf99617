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
			o.settle(c.Kind, c.Runs)
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
				o.closed, o.dedup = true, nil
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

// planned tells whether the entry's plan is for deaths of this reason.
func (o *model) planned(r dlx.Reason) bool {
	for _, t := range o.plan.Targets {
		if o.gone[t] {
			return false
		}
	}
	if o.plan.Settings == 0 || o.plan.Settings != o.rev || !o.settings.DeadLetter || o.settings.Delayed || o.closed || o.catalogRev < o.newest {
		return false
	}
	automatic := r == dlx.Expired || r == dlx.MaxLen || r == dlx.DeliveryLimit
	return r == dlx.Rejected || automatic && o.plan.Automatic && o.counters.Transferred == 0
}

// older tells whether a letter must wait for others: older ones without targets, such without
// a way, such that are called back.
func (o *model) older(than OutboxID) bool {
	for target := range o.next {
		if o.asked(target) > 0 {
			return true
		}
	}
	return slices.ContainsFunc(o.out, func(it dlx.Item) bool {
		return it.State == dlx.Unrouted && it.ID < than || it.State == dlx.ParkedUnrouted
	})
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

func (o *model) stream(c Stream, ref func() queue.Ref) {
	s := o.streams[c.Origin.Node]
	if s == nil || s.incarnation < c.Origin.Incarnation {
		s = &modelStream{incarnation: c.Origin.Incarnation, outcomes: map[uint64]Outcome{}}
		o.streams[c.Origin.Node] = s
	}
	live := s.incarnation == c.Origin.Incarnation && c.First <= s.watermark+1 && (c.First > 0 || len(c.Ops) == 0)
	if live {
		s.answered = max(s.answered, min(c.AnsweredUpTo, s.watermark))
	}
	var outcomes []Outcome
	for i, op := range c.Ops {
		seq := c.First + uint64(i)
		var at []queue.Ref
		switch op := op.(type) {
		case Publish:
			at = append(at, ref())
		case Tx:
			for _, x := range op.Ops {
				if _, ok := x.(Publish); ok {
					at = append(at, ref())
				}
			}
			for range op.Parts {
				at = append(at, ref())
			}
		}
		if live && seq == s.watermark+1 {
			if out := o.op(op, at); out.Kind != Done {
				out.Seq = seq
				s.outcomes[seq] = out
			}
			s.watermark = seq
		}
		if out, ok := s.outcomes[seq]; ok && live && seq > s.answered {
			outcomes = append(outcomes, out)
		}
	}
	for seq := range s.outcomes {
		if seq <= s.answered {
			delete(s.outcomes, seq)
		}
	}
	o.outcomes = append(o.outcomes, outcomes)
}

func (o *model) op(op Op, at []queue.Ref) (out Outcome) {
	switch op := op.(type) {
	case Tx:
		return o.tx(op, at)
	case Publish:
		if o.closed {
			return Outcome{Kind: Gone}
		}
		if o.duplicate(op.Dedup) {
			return Outcome{}
		}
		if op.Verdict != Accept {
			o.counters.Refused++
		}
		switch op.Verdict {
		case Accept:
			o.counters.Published++
			o.take(op.Dedup)
			o.enqueue(at[0], op.BodyBytes, op.Priority, op.HasPriority, op.TTLMillis, false)
		case RefuseFull:
			out.Kind = RefusedFull
		case RefuseFullDLX:
			out.Kind = RefusedFull
			if o.settings.DeadLetter {
				o.counters.RefusedDead++
				o.die(queue.Message{Ref: at[0], BodyBytes: op.BodyBytes}, dlx.MaxLen)
			}
		case RefuseOutbox:
			out.Kind = RefusedOutbox
		case RefuseConsumers:
			out.Kind = RefusedConsumers
		}
	case Settle:
		o.settle(op.Kind, op.Runs)
	case Purge:
		if o.closed {
			return Outcome{Kind: Gone}
		}
		out.Kind = Purged
		for _, id := range o.named([]queue.IDRange{{First: 1, Last: op.UpTo}}) {
			if !slices.ContainsFunc(op.Except, func(r queue.IDRange) bool { return r.First <= id && id <= r.Last }) {
				o.remove(id)
				out.Count++
				o.counters.Purged++
			}
		}
	}
	return out
}

func (o *model) tx(t Tx, at []queue.Ref) (out Outcome) {
	for _, p := range t.Parts {
		for _, q := range p.Targets {
			if o.next[q] == 0 && !o.gone[q] && o.catalogRev < o.floor && out.Kind == Done {
				out.Kind = RefusedCatalog
			}
		}
	}
	if t.Verdict != Accept {
		out.Kind = map[Verdict]OutcomeKind{RefuseFull: RefusedFull, RefuseFullDLX: RefusedFull, RefuseOutbox: RefusedOutbox, RefuseConsumers: RefusedConsumers}[t.Verdict]
	}
	if o.closed {
		out.Kind = Gone
	}
	if out.Kind != Done {
		return out
	}
	for _, op := range t.Ops {
		at = o.part(op, at)
	}
	for i, p := range t.Parts {
		it := dlx.Item{ID: o.lastItem + 1, Ref: at[i], TimeMillis: o.time, Reason: dlx.Transaction, State: dlx.Routed}
		if op, err := DecodePart(p.Part); err != nil {
			panic(err)
		} else if p, ok := op.(Publish); ok {
			it.BodyBytes = p.BodyBytes
		}
		for _, q := range p.Targets {
			if !o.gone[q] {
				o.next[q] = max(o.next[q], 1)
				it.Legs = append(it.Legs, dlx.Leg{Target: q, Seq: o.next[q]})
				o.next[q]++
			}
		}
		if len(it.Legs) > 0 {
			o.lastItem++
			o.out = append(o.out, it)
			o.counters.Relayed++
			out = Outcome{Kind: Relayed, Count: uint64(it.ID)}
		}
	}
	return out
}

// part does one operation of a transaction and returns the places that are left.
func (o *model) part(op Op, at []queue.Ref) []queue.Ref {
	switch op := op.(type) {
	case Publish:
		if o.duplicate(op.Dedup) {
			return at[1:]
		}
		o.counters.Published++
		o.take(op.Dedup)
		o.enqueue(at[0], op.BodyBytes, op.Priority, op.HasPriority, op.TTLMillis, false)
		return at[1:]
	case Settle:
		for _, r := range op.Runs {
			for i := range uint64(r.Count) {
				one := Run{r.First + queue.MessageID(i), 1, r.Attempt}
				if m := o.get(one.First); m != nil && (op.Kind == Ack || op.Kind == Discard) {
					one.Attempt = m.Attempt
				}
				o.settle(op.Kind, []Run{one})
			}
		}
	}
	return at
}

func (o *model) settle(kind SettleKind, runs []Run) {
	for _, run := range runs {
		for i := range uint64(run.Count) {
			m := o.get(run.First + queue.MessageID(i))
			if m == nil || m.Attempt != run.Attempt || o.leaving(m.ID) {
				continue
			}
			switch kind {
			case Ack:
				o.remove(m.ID)
				o.counters.Acked++
				continue
			case Discard:
				o.die(o.remove(m.ID), dlx.Rejected)
				continue
			case RequeueFailed:
				m.Failed++
				if o.settings.DeliveryLimit >= 0 && int64(m.Failed) > o.settings.DeliveryLimit {
					o.die(o.remove(m.ID), dlx.DeliveryLimit)
					continue
				}
			}
			m.Attempt++
			o.returned = append(o.returned, m.ID)
			if kind == Recount {
				continue
			}
			delete(o.delays, m.ID)
			if d := o.settings.Retry.For(kind == RequeueFailed, m.ID, m.Attempt, m.Failed); d > 0 {
				o.delays[m.ID] = o.time + d
			}
		}
	}
}

func (o *model) item(id OutboxID) *dlx.Item {
	for i := range o.out {
		if o.out[i].ID == id {
			return &o.out[i]
		}
	}
	return nil
}

func (o *model) leave(id OutboxID) {
	o.out = slices.DeleteFunc(o.out, func(it dlx.Item) bool { return it.ID == id })
}

func (o *model) route(d Routed) {
	it := o.item(d.Item)
	if it == nil || it.State != dlx.Unrouted {
		return
	}
	if len(d.Targets) > 0 {
		for _, t := range d.Targets {
			if o.next[t] == 0 && !o.gone[t] && o.catalogRev < o.floor {
				return
			}
		}
		for i, t := range d.Targets {
			if o.gone[t] || slices.Contains(d.Targets[:i], t) || slices.Contains(it.Taken, t) {
				continue
			}
			o.next[t] = max(o.next[t], 1)
			it.Legs = append(it.Legs, dlx.Leg{Target: t, Seq: o.next[t]})
			it.State = dlx.Routed
			o.next[t]++
		}
	}
	if it.State == dlx.Routed {
		o.depart(it.ID)
	}
	if it.State == dlx.Unrouted && len(it.Taken) > 0 && (len(d.Targets) > 0 || d.NoRoute != HasTargets) {
		o.leave(it.ID)
		o.counters.Moved++
		return
	}
	if len(d.Targets) > 0 {
		return
	}
	switch d.NoRoute {
	case DropDisabled, DropUnrouted, DropCycle:
		o.depart(it.ID)
		o.counters.Dropped[it.Reason][d.NoRoute]++
		o.leave(it.ID)
	case ParkUnrouted:
		o.depart(it.ID)
		it.State = dlx.ParkedUnrouted
	case ParkCycle:
		o.depart(it.ID)
		it.State = dlx.ParkedCycle
	case Stay:
		id, ok := o.undecided[it.ID]
		if !ok {
			it.State = dlx.ParkedCycle
			return
		}
		delete(o.undecided, it.ID)
		o.leave(it.ID)
		o.counters.Stayed++
		o.freed = append(o.freed, id)
	}
}

func hasLeg(it dlx.Item, target uint64) bool {
	return slices.ContainsFunc(it.Legs, func(l dlx.Leg) bool { return l.Target == target })
}

func (o *model) done(target, upTo uint64, withdrawn []uint64, returns bool) {
	items := slices.Clone(o.out)
	slices.SortStableFunc(items, func(x, y dlx.Item) int { return cmp.Compare(legTo(x, target), legTo(y, target)) })
	for _, it := range items {
		x, renewed := o.item(it.ID), false
		x.Legs = slices.DeleteFunc(slices.Clone(x.Legs), func(l dlx.Leg) bool {
			done := l.Target == target && l.Seq <= upTo
			if back := done && slices.Contains(withdrawn, l.Seq); back && x.Reason == dlx.Redrive {
				renewed = !returns || len(x.Legs) > 1 || len(x.Taken) > 0
			} else if back {
				x.Anew = true
			} else if done {
				x.Taken = append(slices.Clone(x.Taken), target)
				slices.Sort(x.Taken)
			}
			return done
		})
		if renewed {
			x.Legs = append(x.Legs, dlx.Leg{Target: target, Seq: o.next[target]})
			slices.SortFunc(x.Legs, func(a, b dlx.Leg) int { return cmp.Compare(a.Target, b.Target) })
			o.next[target]++
		}
		o.finish(x)
	}
}

// legTo is the sequence of an item to a target, 0 if it has none.
func legTo(it dlx.Item, target uint64) uint64 {
	for _, l := range it.Legs {
		if l.Target == target {
			return l.Seq
		}
	}
	return 0
}

// finish ends the way of an item that was routed and has no leg left.
func (o *model) finish(x *dlx.Item) {
	if x.State != dlx.Routed || len(x.Legs) > 0 {
		return
	}
	if x.Reason == dlx.Redrive {
		it := *x
		o.leave(it.ID)
		o.redriven(it, len(it.Taken) > 0)
		return
	}
	if x.Reason == dlx.Transaction || len(x.Taken) > 0 && !x.Anew {
		o.leave(x.ID)
		o.counters.Moved++
		return
	}
	x.State, x.Anew = dlx.Unrouted, false
}

func (o *model) targetGone(c TargetGone) {
	o.done(c.Target, c.Watermark, c.Withdrawn, true)
	o.gone[c.Target] = true
	o.next[c.Target] = max(o.next[c.Target], 1)
	for _, it := range slices.Clone(o.out) {
		x := o.item(it.ID)
		if !hasLeg(*x, c.Target) {
			continue
		}
		x.Legs = slices.DeleteFunc(slices.Clone(x.Legs), func(l dlx.Leg) bool { return l.Target == c.Target })
		o.finish(x)
	}
}

// pending lists the sequences under way to a target.
func (o *model) pending(target uint64) (list []uint64) {
	for _, it := range o.out {
		for _, l := range it.Legs {
			if l.Target == target {
				list = append(list, l.Seq)
			}
		}
	}
	return list
}

// asked is the sequence up to which letters to a target are to be withdrawn, 0 if none is
// under way.
func (o *model) asked(target uint64) uint64 {
	if list := o.pending(target); len(list) > 0 && o.withdraw[target] >= slices.Min(list) {
		return o.withdraw[target]
	}
	return 0
}

func (o *model) withdrawTo(target, upTo uint64) {
	if len(o.pending(target)) > 0 {
		o.withdraw[target] = max(o.withdraw[target], min(upTo, o.next[target]-1))
	}
}

func (o *model) transferIn(c TransferIn, ref func() queue.Ref) {
	s := o.sources[c.Source]
	w := uint64(0)
	if s != nil {
		w = s.watermark
	}
	refused := o.closed || s == nil && o.catalogRev < o.floor || c.First > w+1 || c.First == 0 && len(c.Items) > 0
	if s == nil && !refused && len(c.Items) > 0 {
		s = &modelSource{withdrawn: map[uint64]bool{}}
		o.sources[c.Source] = s
	}
	if s != nil && !refused {
		s.answered = max(s.answered, min(c.AnsweredUpTo, s.watermark))
	}
	for i, x := range c.Items {
		var at queue.Ref
		op, _ := DecodePart(x.Part)
		if _, publish := op.(Publish); publish || x.Part == nil && !x.Withdrawn {
			at = ref()
		}
		if seq := c.First + uint64(i); !refused && seq == s.watermark+1 {
			s.watermark = seq
			if x.Withdrawn {
				s.withdrawn[seq] = true
			} else if op != nil {
				o.part(op, []queue.Ref{at})
			} else if !o.duplicate(x.Dedup) {
				o.take(x.Dedup)
				o.counters.Transferred++
				ttl := int64(-1)
				if x.HasTTL {
					ttl = x.TTLMillis
				}
				if o.settings.Delayed {
					ttl = x.DelayMillis
				}
				o.enqueue(at, x.BodyBytes, x.Priority, x.HasPriority, ttl, x.Dead)
			}
		}
	}
	var withdrawn []uint64
	if s != nil {
		for seq := range s.withdrawn {
			if seq > s.answered {
				withdrawn = append(withdrawn, seq)
			}
		}
		slices.Sort(withdrawn)
	}
	o.transfers = append(o.transfers, withdrawn)
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

// duplicate counts a message whose id is taken.
func (o *model) duplicate(id queue.DedupID) bool {
	for _, e := range o.dedup {
		if e.ID == id && e.Until > o.time {
			o.counters.Duplicates++
			return true
		}
	}
	return false
}

func (o *model) take(id queue.DedupID) {
	if s := o.settings.Dedup; s.WindowMillis > 0 && id != (queue.DedupID{}) {
		o.forget(s.Size - 1)
		o.dedup = append(slices.Clone(o.dedup), queue.DedupEntry{ID: id, Until: o.time + s.WindowMillis})
	}
}

// forget keeps the newest ids. Without a window none is kept, and that is not early.
func (o *model) forget(keep int64) {
	for int64(len(o.dedup)) > keep {
		if o.settings.Dedup.WindowMillis > 0 && o.dedup[0].Until > o.time {
			o.counters.Forgotten++
		}
		o.dedup = o.dedup[1:]
	}
}
