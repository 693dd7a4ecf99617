package fsm

import (
	"slices"

	"github.com/warrenmq/warren/dlx"
	"github.com/warrenmq/warren/queue"
)

// reject lets a message die that is in the queue no more. detail is what the client said of why.
func (a *apply) reject(m queue.Message, detail string) {
	a.die(m, dlx.Rejected)
	if detail != "" && a.settings.DeadLetter {
		a.outbox.Explain(a.outbox.Last(), detail)
	}
}

// die sends a message that is in the queue no more into the outbox or drops it.
func (a *apply) die(m queue.Message, reason dlx.Reason) {
	a.counters.Died[reason]++
	a.dead().Died[reason]++
	if !a.settings.DeadLetter {
		a.drop(m.Ref, reason, DropDisabled)
		return
	}
	if a.routesNow(reason) {
		a.outbox.AddRouted(m.Ref, m.BodyBytes, reason, a.time, a.plan.Targets)
	} else {
		a.outbox.Add(m.Ref, m.BodyBytes, reason, a.time)
	}
	a.changed(true)
}

// changed notes a change of the outbox.
func (a *apply) changed(news bool) { a.res.OutboxChanged = a.res.OutboxChanged || news }

// drop counts a message that ends without a target.
func (a *apply) drop(ref queue.Ref, reason dlx.Reason, cause NoRoute) {
	a.release(ref)
	a.counters.Dropped[reason][cause]++
	a.countDropped(reason, cause, 1)
}

func (a *apply) countDropped(reason dlx.Reason, cause NoRoute, n uint64) {
	i := slices.IndexFunc(a.res.Dropped, func(d Dropped) bool { return d.Reason == reason && d.Cause == cause })
	if i < 0 {
		i = len(a.res.Dropped)
		a.res.Dropped = append(a.res.Dropped, Dropped{Reason: reason, Cause: cause})
	}
	a.res.Dropped[i].Count += n
}

// moved ends an outbox item that every target has taken.
func (a *apply) moved(it dlx.Item) {
	if it.Reason == dlx.Redrive {
		a.redriven(it, len(it.Taken) > 0)
		return
	}
	a.counters.Moved++
	a.release(it.Ref)
	if it.Reason != dlx.Transaction {
		a.dead().moved(a.time - it.TimeMillis)
	}
}

// dead is where the result counts dead letters.
func (a *apply) dead() *DeadCounts {
	if a.res.Dead == nil {
		a.res.Dead = &DeadCounts{}
	}
	return a.res.Dead
}

// route freezes decisions on unrouted items. An item stays unrouted if a target
// is unknown here and the deciding catalog is older than the last clean-up, which
// may have forgotten that the target is gone. One that some target has taken already and
// that has no other is done.
func (a *apply) route(c *Route) {
	if c.Settings != 0 && c.Settings != a.settingsRev {
		return
	}
	for _, d := range c.Items {
		it, ok := a.outbox.Item(d.Item)
		if !ok || it.State != dlx.Unrouted {
			continue
		}
		switch {
		case len(d.Targets) > 0:
			if a.e.CatalogRev < a.floor && slices.ContainsFunc(d.Targets, func(t uint64) bool {
				known, _ := a.outbox.Known(t)
				return !known
			}) {
				continue
			}
			if routed := a.outbox.Route(d.Item, d.Targets); routed || len(it.Taken) == 0 {
				if routed {
					a.depart(d.Item)
				}
				a.changed(routed)
				continue
			}
			a.outbox.Drop(d.Item)
			a.changed(true)
			a.moved(it)
		case len(it.Taken) > 0 && d.NoRoute != HasTargets:
			a.outbox.Drop(d.Item)
			a.changed(true)
			a.moved(it)
		case d.NoRoute == DropDisabled || d.NoRoute == DropUnrouted || d.NoRoute == DropCycle:
			a.depart(d.Item)
			_, dropped := a.outbox.Drop(d.Item)
			a.changed(dropped)
			a.drop(it.Ref, it.Reason, d.NoRoute)
		case d.NoRoute == Stay:
			a.stay(d.Item)
		case d.NoRoute == ParkUnrouted || d.NoRoute == ParkCycle:
			a.depart(d.Item)
			a.changed(a.outbox.Park(d.Item, d.NoRoute))
		}
	}
}

func (a *apply) transferIn() {
	t, n := a.r.transferHeader()
	if a.r.err != nil {
		return
	}
	res := TransferResult{Source: t.Source}
	x := a.sources[t.Source]
	if x != nil {
		res.UpTo, res.Withdrawn = x.watermark, slices.Clone(x.withdrawn)
	}
	res.Gone = a.closed
	res.Unknown = !res.Gone && x == nil && a.e.CatalogRev < a.floor
	res.Gap = !res.Gone && !res.Unknown && gap(t.First, n, res.UpTo)
	if res.Gone || res.Unknown || res.Gap {
		for range n {
			a.r.transfer()
		}
		a.res.Transfers = append(a.res.Transfers, res)
		return
	}
	if x == nil && n > 0 {
		x = &source{}
		a.sources[t.Source] = x
	}
	if x != nil {
		x.forget(t.AnsweredUpTo)
	}
	for i := range n {
		seq := t.First + uint64(i)
		item := a.r.transfer()
		switch {
		case a.r.err != nil:
			return
		case seq <= x.watermark:
			continue
		case item.Withdrawn:
			x.withdrawn = append(x.withdrawn, seq)
		case item.Part != nil:
			a.transferredPart(item.Part)
		case a.duplicate(item.Dedup):
		default:
			a.counters.Transferred++
			a.remember(item.Dedup)
			a.enqueue(item.Message, item.BodyBytes, item.Priority, item.HasPriority, a.transferTTL(&item))
		}
		x.watermark = seq
	}
	if x != nil {
		res.UpTo, res.Withdrawn = x.watermark, slices.Clone(x.withdrawn)
	}
	a.res.Transfers = append(a.res.Transfers, res)
}

// transferTTL is the time to live, -1 for none, of a message that was sent here.
func (a *apply) transferTTL(t *Transfer) int64 {
	own := int64(-1)
	switch {
	case a.settings.Delayed:
		own = t.DelayMillis
	case t.HasTTL:
		own = t.TTLMillis
	}
	if t.Dead && a.settings.DeadLettersKeep {
		return own
	}
	return a.ttl(own)
}

func (a *apply) forgetSources(sources []Source) {
	a.floor = max(a.floor, a.e.CatalogRev)
	for _, s := range sources {
		delete(a.sources, s)
		a.outbox.Forget(s.Queue)
	}
}
