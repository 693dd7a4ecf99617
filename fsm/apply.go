package fsm

import (
	"fmt"
	"math"
	"strings"

	"github.com/warrenmq/warren/dlx"
	"github.com/warrenmq/warren/queue"
)

// apply is the work of applying one entry.
type apply struct {
	*Machine
	r   reader
	e   Entry // header only
	res Result
	// plan is where what dies goes, zero if every message has to be looked at.
	plan Plan
}

// Apply applies the payload of the log entry at index, which must be above every
// earlier one, and returns what came of it. It panics with all ids on a payload
// that does not decode or has an unknown version or command: a replica that does
// not understand its log must stop. The machine keeps no part of data.
//
// An entry of an older session than one before it does nothing: its leader was deposed
// when it came into the log, and what it knew of consumers is out of date. Whoever
// waits for it is answered by the next leader.
func (m *Machine) Apply(index uint64, data []byte) Result {
	if index <= m.index {
		panic(fmt.Sprintf("fsm: queue %q in %q: apply index %d after index %d", m.name, m.vhost, index, m.index))
	}
	a := apply{Machine: m, r: reader{b: data}}
	a.res = Result{Index: index, Enqueued: queue.IDRange{First: m.queue.Tail() + 1, Last: m.queue.Tail()}}
	m.index = index
	n := a.r.header(&a.e)
	if a.r.err == nil {
		a.res.Session, a.res.Ordinal = a.e.Session, a.e.Ordinal
		m.reclaimable += int64(len(data))
		if a.e.Session < m.session {
			return a.res
		}
		m.session = a.e.Session
		m.time = max(m.time, a.e.TimeMillis)
		m.delays.Lapse(m.time)
		m.dedup.Expire(m.time, dedupPerEntry)
		m.catalogRev = max(m.catalogRev, a.e.CatalogRev)
		m.mark = max(m.mark, a.e.Mark)
	}
	for i := 0; i < n && a.r.err == nil; i++ {
		a.command(a.r.byte())
	}
	if err := a.r.end(); err != nil {
		panic(fmt.Sprintf("fsm: queue %q in %q: apply entry %d of session %d ordinal %d, %d bytes: %v",
			m.name, m.vhost, index, a.e.Session, a.e.Ordinal, len(data), err))
	}
	if a.e.MarkSelf && a.res.Enqueued.First <= a.res.Enqueued.Last {
		m.mark = max(m.mark, a.res.Enqueued.Last)
	}
	if invariants {
		m.check()
	}
	return a.res
}

// command decodes and applies one command. Streams and transfers are applied as
// they are decoded; their messages are stepped over.
func (a *apply) command(tag byte) {
	switch tag {
	case tagStream:
		a.stream()
		return
	case tagTransferIn:
		a.transferIn()
		return
	}
	c := a.r.command(tag)
	if a.r.err != nil {
		return
	}
	switch c := c.(type) {
	case Return:
		a.settle(c.Kind, c.Runs, "")
	case Expire:
		a.eachLive(c.IDs, func(m queue.Message) {
			if m.ExpiresAt != 0 && m.ExpiresAt <= a.time {
				a.expire(m)
			}
		})
	case DropHeads:
		a.eachLive(c.IDs, func(m queue.Message) { a.die(a.take(m.ID), dlx.MaxLen) })
	case Plan:
		a.takePlan(&c)
	case Route:
		a.route(&c)
	case TransferDone:
		a.changed(a.outbox.Done(c.Target, c.UpTo, c.Withdrawn, a.CallsBack(), a.moved))
	case TargetGone:
		a.changed(a.outbox.Gone(c.Target, c.Watermark, c.Withdrawn, a.moved))
	case TargetMoved:
		a.changed(a.outbox.Moved(c.Target, c.Watermark, c.Withdrawn, c.To, a.CallsBack(), a.moved))
	case Withdraw:
		a.changed(a.outbox.Withdraw(c.Target, c.UpTo))
	case Release:
		a.changed(a.outbox.Release(c.Kind) > 0)
	case ForgetSources:
		a.forgetSources(c.Sources)
	case SetSettings:
		a.setSettings(&c)
	case Close:
		a.close()
	case Consumed:
		a.consumed = true
	case Tenure:
		a.tenure = c
	case Bury:
		a.bury(c.UpTo)
	case StartRedrive:
		a.startRedrive(&c.Spec)
	case StopRedrive:
		a.stopRedrive(c.Number)
	case TakeRedrive:
		a.takeRedrive(&c)
	}
}

func (a *apply) stream() {
	s, n := a.r.streamHeader()
	if a.r.err != nil {
		return
	}
	x := a.streams[s.Origin.Node]
	if x == nil || x.incarnation < s.Origin.Incarnation {
		x = &stream{incarnation: s.Origin.Incarnation}
		a.streams[s.Origin.Node] = x
	}
	res := StreamResult{Origin: s.Origin, Stale: x.incarnation > s.Origin.Incarnation}
	res.Gap = !res.Stale && gap(s.First, n, x.watermark)
	if res.Stale || res.Gap {
		for range n {
			a.r.skipOp()
		}
	} else {
		x.forget(s.AnsweredUpTo)
		for i := range n {
			if s.First+uint64(i) <= x.watermark {
				a.r.skipOp()
				continue
			}
			kind, count := a.op()
			if a.r.err != nil {
				return
			}
			x.advance(kind, count)
		}
		res.Outcomes = x.recorded(s.First-1, s.First+uint64(n)-1)
	}
	if !res.Stale {
		res.UpTo = x.watermark
	}
	a.res.Streams = append(a.res.Streams, res)
}

// op decodes and applies one operation.
func (a *apply) op() (OutcomeKind, uint64) {
	switch tag := a.r.byte(); tag {
	case tagPublish:
		p := a.r.publish()
		if a.r.err != nil {
			return Done, 0
		}
		before := a.queue.Tail()
		kind := a.publish(&p)
		if id := a.queue.Tail(); p.Tell && kind == Done && id > before {
			return Kept, uint64(id)
		}
		return kind, 0
	case tagSettle:
		kind, runs := a.r.settleKind(), a.r.runs()
		if a.r.err == nil {
			a.settle(kind, runs, "")
		}
	case tagReject:
		detail, runs := a.r.detail(), a.r.runs()
		if a.r.err == nil {
			a.settle(Discard, runs, strings.Clone(detail))
		}
	case tagPurge:
		upTo, except := queue.MessageID(a.r.uvarint()), a.r.ranges()
		if a.r.err == nil {
			return a.purge(upTo, except)
		}
	case tagTx:
		return a.tx()
	case tagCancel:
		id := queue.MessageID(a.r.uvarint())
		if a.r.err == nil {
			return a.cancel(id), 0
		}
	default:
		a.r.fail(ErrCommand, fmt.Sprintf("operation tag %d", tag))
	}
	return Done, 0
}

// skipOp steps over one operation.
func (r *reader) skipOp() {
	if r.err == nil {
		r.op()
	}
}

// ref says where the message just decoded lies.
func (a *apply) ref(message []byte) queue.Ref {
	return queue.Ref{Index: a.res.Index, Offset: uint32(a.r.pos - len(message)), Length: uint32(len(message))}
}

func (a *apply) publish(p *Publish) OutcomeKind {
	if a.closed {
		return Gone
	}
	if a.duplicate(p.Dedup) {
		return Done // whatever the verdict: its first one is stored
	}
	if p.Verdict != Accept {
		a.counters.Refused++
	}
	switch p.Verdict {
	case RefuseFull:
		return RefusedFull
	case RefuseOutbox:
		return RefusedOutbox
	case RefuseConsumers:
		return RefusedConsumers
	case RefuseFullDLX:
		if a.settings.DeadLetter {
			a.counters.RefusedDead++
			a.reclaimable -= int64(len(p.Message))
			a.die(queue.Message{Ref: a.ref(p.Message), BodyBytes: p.BodyBytes}, dlx.MaxLen)
		}
		return RefusedFull
	}
	a.counters.Published++
	a.remember(p.Dedup)
	a.enqueue(p.Message, p.BodyBytes, p.Priority, p.HasPriority, a.ttl(p.TTLMillis))
	return Done
}

// ttl is the time to live of a message that has its own, -1 if it has none: the smaller of this
// and the queue's.
func (a *apply) ttl(own int64) int64 {
	if q := a.settings.MessageTTLMillis; q >= 0 && (own < 0 || q < own) {
		return q
	}
	return own
}

// enqueue appends the message just decoded. ttlMillis, -1 for none, fixes the instant of expiry.
func (a *apply) enqueue(message []byte, bodyBytes uint32, priority uint8, hasPriority bool, ttlMillis int64) {
	if a.settings.Delayed && ttlMillis < 0 {
		ttlMillis = 0 // nobody else would ever fetch it
	}
	msg := queue.Message{Ref: a.ref(message), BodyBytes: bodyBytes}
	if ttlMillis >= 0 {
		msg.ExpiresAt = a.time + min(ttlMillis, math.MaxInt64-a.time)
		msg.ExpiresAt = max(msg.ExpiresAt, 1) // 0 would mean never
	}
	if !hasPriority {
		priority = a.settings.DefaultPriority
	}
	msg.Priority = min(priority, a.settings.MaxPriority)
	a.reclaimable -= int64(len(message))
	a.res.Enqueued.Last = a.queue.Append(msg)
}

// eachLive visits the live messages of the ranges, in the order named, but those that are
// away. visit may remove the message.
func (a *apply) eachLive(ranges []queue.IDRange, visit func(queue.Message)) {
	for _, r := range ranges {
		for id := r.First; id <= r.Last; {
			m, ok := a.queue.NextLive(max(id, 1) - 1)
			if !ok || m.ID > r.Last {
				break
			}
			if !a.away(m.ID) {
				visit(m)
			}
			id = m.ID + 1
		}
	}
}

// take removes a live message for good.
func (a *apply) take(id queue.MessageID) queue.Message {
	m, _ := a.queue.Remove(id)
	a.delays.Remove(id)
	a.res.Removed = queue.AppendID(a.res.Removed, id)
	return m
}

// release says that nobody needs the stored bytes any more.
func (a *apply) release(ref queue.Ref) { a.reclaimable += int64(ref.Length) }

func (a *apply) setSettings(c *SetSettings) {
	if a.settingsSet && c.Revision <= a.settingsRev {
		return
	}
	s := c.Settings
	s.DeadLetterExchange = strings.Clone(s.DeadLetterExchange)
	s.DeadLetterRoutingKey = strings.Clone(s.DeadLetterRoutingKey)
	a.settings, a.settingsRev, a.settingsSet = s, c.Revision, true
	if way := wayOf(&s); way != a.way && way != (deadWay{}) {
		a.way = way
		a.changed(a.outbox.WithdrawAll())
		a.changed(a.outbox.Release(ParkUnrouted)+a.outbox.Release(ParkCycle) > 0)
	}
	a.setDedup(s.Dedup)
	a.name, a.vhost = strings.Clone(c.Name), strings.Clone(c.VHost)
	a.res.SettingsSet = true
}

func (a *apply) close() {
	if a.closed {
		return
	}
	a.closeRedrive()
	a.departAll()
	a.closed = true
	a.dedup.Clear()
	a.cancelled = nil
	a.res.Closed = true
	if buries(&a.settings) {
		return // the leader buries what is there
	}
	n := a.removeRange(queue.IDRange{First: 1, Last: a.queue.Tail()})
	if n > 0 {
		a.countDropped(0, HasTargets, n)
	}
	a.counters.Closed += n
}
