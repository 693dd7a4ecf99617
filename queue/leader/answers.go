package leader

import (
	"time"

	"github.com/warrenmq/warren/fsm"
	"github.com/warrenmq/warren/queue/wire"
)

// answer tells a node how far its stream was applied.
func (l *Leader) answer(r fsm.StreamResult) {
	p := l.peers[r.Origin.Node]
	if p == nil || p.origin != r.Origin || r.Stale {
		return
	}
	if r.Gap {
		p.next, p.pending, p.bytes, p.acks = r.UpTo+1, nil, 0, acksWaiting{}
	}
	m := &wire.Answer{Queue: l.cfg.Queue, Origin: r.Origin, UpTo: r.UpTo, Above: p.told, Rewind: r.Gap, Next: r.UpTo + 1, Pace: l.flow.share}
	if r.UpTo > p.told {
		// Not only those of this run: it need not be the next after the last answer.
		l.replica.View(func(f *fsm.Machine) { m.Outcomes = f.Recorded(p.origin, p.told) })
		p.told = r.UpTo
	}
	l.out.send(p.id, m)
}

// parkedQuery is a Query that waits for its node's stream, or for what may keep the queue from being empty.
type parkedQuery struct {
	from  string
	q     *wire.Query
	since time.Time
}

func (l *Leader) serveQueries() {
	if l.phase != phaseActive || l.closing.itself && !l.closing.closed {
		return // the answer is that it has ended, as soon as that is so
	}
	rest := l.queries[:0]
	for _, q := range l.queries {
		if !l.closing.closed && q.q.After > 0 && l.watermark(q.q.Origin) < q.q.After {
			rest = append(rest, q)
			continue
		}
		if l.closing.closed {
			l.out.send(q.from, &wire.Detached{Queue: l.cfg.Queue, No: wire.ConsumerNo(q.q.Req), Gone: true})
			continue
		}
		if q.q.End != wire.EndNever {
			if !l.endEmpty(q) {
				rest = append(rest, q)
			}
			continue
		}
		s := l.status()
		s.Req = q.q.Req
		l.out.send(q.from, s)
	}
	clear(l.queries[len(rest):])
	l.queries = rest
}

func (l *Leader) status() *wire.Status {
	n, delayed := l.readyCount()
	_, bytes := l.readyNow()
	s := &wire.Status{
		Queue: l.cfg.Queue, Ready: uint64(n), Delayed: uint64(delayed), ReadyBytes: uint64(max(0, bytes)),
		Consumers: uint64(l.consumers.len()),
	}
	s.Unacked = uint64(len(l.held) - l.named)
	l.replica.View(func(m *fsm.Machine) {
		o := m.Outbox()
		s.Outbox, s.OutboxBytes = uint64(o.Len()), uint64(o.Bytes())
		c := m.Counters()
		s.Transferred, s.Dropped = c.Transferred, c.DroppedTotal()
		s.Duplicates, s.DedupForgotten = c.Duplicates, c.Forgotten
		s.DedupIDs = uint64(m.Dedup().Len())
		s.Parked = uint64(o.Parked(fsm.ParkUnrouted) + o.Parked(fsm.ParkCycle))
	})
	return s
}
