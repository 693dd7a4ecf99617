package fsm

import (
	"iter"
	"maps"
	"slices"

	"github.com/warrenmq/warren/dlx"
	"github.com/warrenmq/warren/queue"
)

// StartRedrive begins a redrive of the messages that are there, unless one is under way: the
// job then has another token. One with the token of the newest redrive is a repeat, also when
// that one has ended.
type StartRedrive struct{ Spec dlx.RedriveSpec }

// StopRedrive ends the search of a redrive. What is under way arrives, or comes back if its
// target has no room for it.
type StopRedrive struct{ Number uint64 }

// TakeRedrive is the leader's decision on the messages above After, where the redrive has
// come to, up to Through: these are sent, the others stay.
type TakeRedrive struct {
	Number         uint64
	After, Through queue.MessageID
	Items          []RedriveItem
	Passed         dlx.RedriveCounts
}

// RedriveItem names a message that nobody holds, under its attempt number. The
// targets are queue ids, each once; none with a redrive that discards.
type RedriveItem struct {
	ID      queue.MessageID
	Attempt uint32
	Targets []uint64
}

func (StartRedrive) command() {}
func (StopRedrive) command()  {}
func (TakeRedrive) command()  {}

// leaving are live messages that are in the outbox too. They are at their
// place in the queue, out of everybody's reach: those of a redrive until a target has taken them,
// expired ones until it is decided whether they stay.
type leaving struct {
	items map[OutboxID]queue.MessageID
	ids   map[queue.MessageID]OutboxID
}

func (l *leaving) add(it OutboxID, id queue.MessageID) {
	if l.items == nil {
		l.items, l.ids = map[OutboxID]queue.MessageID{}, map[queue.MessageID]OutboxID{}
	}
	l.items[it], l.ids[id] = id, it
}

func (l *leaving) remove(it OutboxID) (id queue.MessageID, ok bool) {
	if id, ok = l.items[it]; ok {
		delete(l.items, it)
		delete(l.ids, id)
	}
	return id, ok
}

func (l *leaving) has(id queue.MessageID) bool {
	_, ok := l.ids[id]
	return ok
}

// Redriving is the newest redrive of the queue, zero if there was none.
func (m *Machine) Redriving() dlx.Redriving { return m.redriving }

// Leaving lists the live messages that are out of reach, ascending: those on their way out by a
// redrive, and expired ones that may stay.
func (m *Machine) Leaving() []queue.MessageID {
	list := slices.AppendSeq(slices.Collect(maps.Keys(m.leaving.ids)), maps.Keys(m.undecided.ids))
	slices.Sort(list)
	return list
}

// Redriven yields the outbox items of messages on their way out by a redrive, in no order.
func (m *Machine) Redriven() iter.Seq[dlx.Item] {
	return func(yield func(dlx.Item) bool) {
		for id := range m.leaving.items {
			if it, ok := m.outbox.Item(id); ok && !yield(it) {
				return
			}
		}
	}
}

// LeavingLen is the number of messages on their way out by a redrive.
func (m *Machine) LeavingLen() int { return len(m.leaving.ids) }

func (a *apply) startRedrive(s *dlx.RedriveSpec) {
	r := &a.redriving
	if a.closed || r.Number > 0 && (r.EndedMillis == 0 || s.Token != 0 && s.Token == r.Spec.Token) {
		return
	}
	a.redriving = dlx.Redriving{
		Number: a.redriving.Number + 1, Spec: cloneSpec(s), StartedMillis: a.time, Tail: a.queue.Tail(),
	}
	a.endRedrive()
}

func (a *apply) stopRedrive(number uint64) {
	if number == a.redriving.Number && a.redriving.EndedMillis == 0 {
		a.redriving.Stopped = true
		a.changed(len(a.leaving.ids) > 0)
		a.endRedrive()
	}
}

// CallsBack tells whether what a redrive has under way may come back to its place: the redrive was
// stopped, and the place is there.
func (m *Machine) CallsBack() bool {
	return m.redriving.Stopped && len(m.leaving.ids) > 0
}

// endRedrive notes the end when nothing is left to decide on and nothing under way.
func (a *apply) endRedrive() {
	r := &a.redriving
	a.res.RedriveChanged = true
	if r.Number > 0 && r.EndedMillis == 0 && !r.Searching() && len(a.leaving.ids) == 0 {
		r.EndedMillis = max(a.time, 1)
	}
}

// takeRedrive puts messages into the outbox, and says of the others that were named that
// they are free again.
func (a *apply) takeRedrive(c *TakeRedrive) {
	r := &a.redriving
	fits := c.Number == r.Number && r.Searching() && c.After == r.Cursor && c.Through > c.After
	for i := range c.Items {
		it := &c.Items[i]
		m, live := a.queue.Get(it.ID)
		switch {
		case !live || a.away(it.ID):
			continue
		case !fits || it.ID <= c.After || it.ID > min(c.Through, r.Tail) || m.Attempt != it.Attempt || a.delays.Until(it.ID) > 0:
			if fits {
				r.Busy++
			}
			a.res.Freed = queue.AppendID(a.res.Freed, it.ID)
		case r.Spec.Discard:
			a.release(a.take(it.ID).Ref)
			a.counters.Purged++
			r.Moved++
		default:
			a.leave(&m, it.Targets)
		}
	}
	if fits {
		r.Cursor = min(c.Through, r.Tail)
		r.NoOrigin += c.Passed.NoOrigin
		r.Missing += c.Passed.Missing
		r.Busy += c.Passed.Busy
		a.endRedrive()
	}
}

// leave puts a live message into the outbox, unless its targets are gone, or are not known here
// while the deciding catalog is too old to know that they are.
func (a *apply) leave(m *queue.Message, targets []uint64) {
	unknown := a.e.CatalogRev < a.floor && slices.ContainsFunc(targets, func(t uint64) bool {
		known, _ := a.outbox.Known(t)
		return !known
	})
	if !unknown {
		if item, ok := a.outbox.Redrive(m.Ref, m.BodyBytes, a.time, targets); ok {
			a.leaving.add(item, m.ID)
			a.changed(true)
			return
		}
	}
	a.redriving.Missing++
	a.res.Freed = queue.AppendID(a.res.Freed, m.ID)
}

// redriven ends an outbox item of a redrive. If a target has taken it, the message leaves
// the queue; else it is free again at its place. Without a place, because
// the queue was closed meanwhile, it ends as what was in the queue then.
func (a *apply) redriven(it dlx.Item, taken bool) {
	id, live := a.leaving.remove(it.ID)
	switch {
	case taken:
		if live {
			a.take(id)
		}
		a.release(it.Ref)
		a.counters.Redriven++
		a.dead().Redriven++
		a.redriving.Moved++
	case live:
		a.redriving.Returned++
		a.res.Freed = queue.AppendID(a.res.Freed, id)
	case buries(&a.settings):
		a.die(queue.Message{Ref: it.Ref, BodyBytes: it.BodyBytes}, dlx.QueueRemoved)
	default:
		a.release(it.Ref)
		a.counters.Closed++
		a.countDropped(0, HasTargets, 1)
	}
	a.endRedrive()
}

// closeRedrive takes the place of messages that are under way when the queue is
// closed: they go on from the outbox alone.
func (a *apply) closeRedrive() {
	for _, id := range slices.Sorted(maps.Keys(a.leaving.ids)) {
		a.take(id)
	}
	a.leaving = leaving{}
	if a.redriving.Number > 0 && a.redriving.EndedMillis == 0 {
		a.redriving.Stopped = true
		a.endRedrive()
	}
}

// without cuts the messages that are leaving out of a range.
func (l *leaving) without(r queue.IDRange) []queue.IDRange {
	var inside []queue.MessageID
	switch {
	case r.First > r.Last:
		return nil
	case uint64(r.Last-r.First) < uint64(len(l.ids)): // as of most acks
		for id := r.First; ; id++ {
			if l.has(id) {
				inside = append(inside, id)
			}
			if id == r.Last {
				break
			}
		}
	default:
		for id := range l.ids {
			if id >= r.First && id <= r.Last {
				inside = append(inside, id)
			}
		}
		slices.Sort(inside)
	}
	var parts []queue.IDRange
	for _, id := range inside {
		if id > r.First {
			parts = append(parts, queue.IDRange{First: r.First, Last: id - 1})
		}
		r.First = id + 1
	}
	if r.First <= r.Last {
		parts = append(parts, r)
	}
	return parts
}
