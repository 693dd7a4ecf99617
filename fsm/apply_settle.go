package fsm

import (
	"cmp"
	"math"
	"slices"

	"github.com/warrenmq/warren/dlx"
	"github.com/warrenmq/warren/queue"
)

// ids are the messages of the run, which is not empty.
func (r Run) ids() queue.IDRange {
	last := r.First + queue.MessageID(r.Count) - 1
	if last < r.First {
		last = math.MaxUint64
	}
	return queue.IDRange{First: r.First, Last: last}
}

// settle ends deliveries; detail is what the client said of why, of a Discard.
func (a *apply) settle(kind SettleKind, runs []Run, detail string) {
	for _, run := range runs {
		if run.Count == 0 {
			continue
		}
		r := run.ids()
		if kind == Ack && run.Attempt == 0 && a.queue.Untouched(r) {
			a.counters.Acked += a.removeRange(r)
			continue
		}
		a.eachLive([]queue.IDRange{r}, func(m queue.Message) {
			if m.Attempt == run.Attempt {
				a.settleOne(kind, m, detail)
			}
		})
	}
}

func (a *apply) settleOne(kind SettleKind, m queue.Message, detail string) {
	switch kind {
	case Ack:
		a.counters.Acked++
		a.release(a.take(m.ID).Ref)
		return
	case Discard:
		a.reject(a.take(m.ID), detail)
		return
	case RequeueFailed:
		m.Failed = saturate(m.Failed)
		if limit := a.settings.DeliveryLimit; limit >= 0 && int64(m.Failed) > limit {
			a.die(a.take(m.ID), dlx.DeliveryLimit)
			return
		}
	}
	attempt := saturate(m.Attempt)
	a.queue.Touch(m.ID, attempt, m.Failed)
	if kind != Recount {
		a.delay(kind == RequeueFailed, m.ID, attempt, m.Failed)
	}
	a.res.Returned = queue.AppendID(a.res.Returned, m.ID)
}

// delay keeps a returned message from consumers for the queue's retry delay.
func (a *apply) delay(failed bool, id queue.MessageID, attempt, failures uint32) {
	a.delays.Remove(id)
	if d := a.settings.Retry.For(failed, id, attempt, failures); d > 0 {
		a.delays.Set(id, a.time+min(d, math.MaxInt64-a.time))
	}
}

func saturate(n uint32) uint32 {
	if n == math.MaxUint32 {
		return n
	}
	return n + 1
}

func (a *apply) purge(upTo queue.MessageID, except []queue.IDRange) (OutcomeKind, uint64) {
	if a.closed {
		return Gone, 0
	}
	except = slices.Clone(except)
	slices.SortFunc(except, func(x, y queue.IDRange) int { return cmp.Compare(x.First, y.First) })
	var n uint64
	first := queue.MessageID(1)
	for _, r := range except {
		if r.Last < r.First {
			continue
		}
		if r.First > first {
			n += a.removeRange(queue.IDRange{First: first, Last: min(upTo, r.First-1)})
		}
		if r.Last >= upTo {
			first = math.MaxUint64
			break
		}
		first = max(first, r.Last+1)
	}
	n += a.removeRange(queue.IDRange{First: first, Last: upTo})
	a.counters.Purged += n
	return Purged, n
}

// removeRange removes live messages for good, but those that are away, and lets their
// bytes go.
func (a *apply) removeRange(r queue.IDRange) (removed uint64) {
	before := a.queue.Stored()
	if len(a.leaving.ids) == 0 && len(a.undecided.ids) == 0 { // nearly always: no list of one range is needed then
		removed = a.removePart(r)
	} else {
		for _, near := range a.leaving.without(r) {
			for _, part := range a.undecided.without(near) {
				removed += a.removePart(part)
			}
		}
	}
	a.reclaimable += before - a.queue.Stored()
	return removed
}

// removePart removes every live message of a range.
func (a *apply) removePart(r queue.IDRange) uint64 {
	var n int
	a.res.Removed, n = a.queue.RemoveRange(r, a.res.Removed)
	a.delays.RemoveRange(r)
	return uint64(n)
}
