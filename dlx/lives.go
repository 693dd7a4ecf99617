package dlx

import "slices"

// A queue that has lost most of its replicas goes on in another life, under another id (docs/adr/0029-lost-majority.md). For its outbox that
// is another source, whose sequences begin anew; for the outboxes that send to it, another target.

// Restart begins every sequence anew, for a queue that goes on under another id: its targets know nothing of that one.
// It returns how many letters are under way, each counted once for each target that may have taken it already.
func (o *Outbox) Restart() (again uint64) {
	for id, t := range o.targets {
		shift := t.first() - 1
		for i, item := range t.pending {
			p, slot := o.change(item)
			p.setSeq(slot, id, uint64(i)+1)
		}
		t.next -= shift
		if t.withdraw > 0 {
			t.withdraw -= shift
		}
		again += uint64(len(t.pending))
	}
	return again
}

// Moved records that target goes on as another queue, and what it had taken then, as in Done: the others go to that queue, behind what is
// under way to it already. So does, from now on, what is routed to target. It reports whether that was news.
func (o *Outbox) Moved(target, watermark uint64, withdrawn []uint64, to uint64, returns bool, left func(Item)) (news bool) {
	o.Done(target, watermark, withdrawn, returns, left)
	t := o.target(target)
	now, open := o.present(to)
	if t.gone || to == target || open && now == target {
		return false
	}
	pending, back := t.pending, t.withdraw > 0
	o.mark(t, 0)
	o.clear(target, t)
	t.gone, t.to, t.parts = true, to, 0
	for _, id := range pending {
		p, slot := o.change(id)
		n := p.dropLeg(slot, target)
		it := p.item(slot)
		if open && !slices.Contains(it.Taken, now) && !slices.ContainsFunc(it.Legs, func(l Leg) bool { return l.Target == now }) {
			p.setLegs(slot, append(slices.Clone(it.Legs), o.leg(now, id)))
			if it.Reason == Transaction {
				o.targets[now].parts++
			}
			continue
		}
		if n == 0 {
			o.finish(id, left)
		}
	}
	if back && open {
		o.Withdraw(now, o.NextSeq(now)-1) // none may go there: those that it has taken before
	}
	return true
}

// Present is the queue in whose place letters to target go as far as is known here, itself if it is no former life of another.
func (o *Outbox) Present(target uint64) uint64 {
	id, _ := o.present(target)
	return id
}

// present returns the queue in whose place letters to target go, itself if it is no former life of another. open is false if
// that is closed.
func (o *Outbox) present(target uint64) (id uint64, open bool) {
	for range len(o.targets) + 1 {
		t := o.targets[target]
		switch {
		case t == nil || !t.gone:
			return target, true
		case t.to == 0:
			return target, false
		}
		target = t.to
	}
	return target, false // a ring, which is never recorded
}

// setSeq gives the leg to a target another sequence.
func (p *page) setSeq(slot int, target, seq uint64) {
	if p.items[slot].flags&isFan == 0 {
		p.items[slot].leg.Seq = seq
		return
	}
	legs := slices.Clone(p.fans[slot])
	for i := range legs {
		if legs[i].Target == target {
			legs[i].Seq = seq
		}
	}
	p.fans[slot] = legs
}
