package fsm

import (
	"cmp"
	"slices"

	"github.com/warrenmq/warren/dlx"
	"github.com/warrenmq/warren/queue"
)

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
