package dlx

import (
	"maps"
	"math"
	"slices"

	"github.com/warrenmq/warren/queue"
)

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
