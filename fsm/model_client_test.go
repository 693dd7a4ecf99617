package fsm

import (
	"slices"

	"github.com/warrenmq/warren/dlx"
	"github.com/warrenmq/warren/queue"
)

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
			if op.Tell {
				out = Outcome{Kind: Kept, Count: uint64(o.tail)}
			}
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
		o.settle(op.Kind, op.Runs, op.Detail)
	case Cancel:
		switch m := o.get(op.ID); {
		case o.closed:
			out.Kind = Gone
		case slices.Contains(o.cancelled, op.ID):
			out.Kind = Cancelled
		case m != nil && o.settings.Delayed && !o.leaving(op.ID):
			o.remove(op.ID)
			o.counters.Purged++
			o.cancelled = append(o.cancelled, op.ID)
			out.Kind = Cancelled
		}
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
				o.settle(op.Kind, []Run{one}, "")
			}
		}
	}
	return at
}

func (o *model) settle(kind SettleKind, runs []Run, detail string) {
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
				if o.settings.DeadLetter {
					o.out[len(o.out)-1].Detail = detail
				}
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
