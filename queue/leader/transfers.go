package leader

import (
	"github.com/warrenmq/warren/failpoint"
	"github.com/warrenmq/warren/fsm"
	"github.com/warrenmq/warren/queue/wire"
)

// inbound is another queue's stream of dead letters into this one.
type inbound struct {
	from     string
	next     uint64
	answered uint64
	pending  []fsm.Transfer
	bytes    int
}

func transferBytes(t fsm.Transfer) int { return len(t.Message) + len(t.Part) + 32 }

// onTransfer takes dead letters and parts of transactions from a source's leader. "Full"
// is an answer of the moment and never gets into the log; parts of transactions
// and what comes before them are not answered so: an ack that waits for room could wait for ever.
func (l *Leader) onTransfer(from string, m *wire.Transfer) {
	if l.phase == phaseOpen {
		return // the source sends again
	}
	s := m.In.Source
	if l.closing.closed {
		a := l.stands(s)
		a.Gone = true
		l.sendTransferAnswer(&inbound{from: from}, a)
		return
	}
	t := l.transfers[s]
	if t == nil {
		if !l.cfg.SourceExists(s.Queue) {
			return // the source asks again; by then the catalog copy knows it or the source is gone
		}
		t = &inbound{next: l.sourceWatermark(s) + 1}
		l.transfers[s] = t
		l.forgets.wanted = true
	}
	t.from = from
	t.answered = max(t.answered, m.In.AnsweredUpTo)
	if w := l.sourceWatermark(s); w >= t.next {
		// Another leader took these: this one is deposed and does not know it yet.
		l.supply.bytes -= t.bytes
		t.next, t.pending, t.bytes = w+1, nil, 0
	}
	end := m.In.First + uint64(len(m.In.Items))
	switch {
	case m.In.First > t.next:
		// UpTo is what is committed: the source forgets up to there. What is pending
		// here comes twice then, and is trimmed.
		a := l.stands(s)
		a.Gap = true
		l.sendTransferAnswer(t, a)
	case end <= t.next:
		l.sendTransferAnswer(t, l.stands(s))
	case l.full() && !m.Urgent:
		a := l.stands(s)
		a.Full = true
		l.sendTransferAnswer(t, a)
	default:
		items := m.In.Items[t.next-m.In.First:]
		if len(t.pending) == 0 {
			l.supply.sources = append(l.supply.sources, s)
		}
		for _, it := range items {
			t.bytes += transferBytes(it)
			l.supply.bytes += transferBytes(it)
		}
		t.pending = append(t.pending, items...)
		t.next = end
		failpoint.Pass(failpoint.MoveReceived, l.cfg.Queue)
		if failpoint.Sown(failpoint.MoveEarly) {
			l.sendTransferAnswer(t, &wire.TransferAnswer{Source: s.Queue, Epoch: s.Epoch, UpTo: end - 1})
		}
	}
}

func (l *Leader) sourceWatermark(s fsm.Source) (seq uint64) {
	l.replica.View(func(m *fsm.Machine) { seq, _ = m.SourceWatermark(s) })
	return seq
}

// stands is an answer with what the log has of the source.
func (l *Leader) stands(s fsm.Source) *wire.TransferAnswer {
	a := &wire.TransferAnswer{Source: s.Queue, Epoch: s.Epoch}
	l.replica.View(func(m *fsm.Machine) {
		a.UpTo, _ = m.SourceWatermark(s)
		a.Withdrawn = m.Withdrawn(s)
	})
	return a
}

// knows tells whether the log has taken anything from the source.
func (l *Leader) knows(s fsm.Source) (known bool) {
	l.replica.View(func(m *fsm.Machine) { _, known = m.SourceWatermark(s) })
	return known
}

// supply names the sources whose transfers wait for an entry, in the order of their
// coming, and counts the bytes.
type supply struct {
	sources []fsm.Source
	bytes   int
}

// takeSupply moves waiting dead letters into the entry. A source may be named that has
// none left.
func (l *Leader) takeSupply(e *fsm.Entry, p *proposal, room int) int {
	rest := l.supply.sources[:0]
	for _, s := range l.supply.sources {
		t := l.transfers[s]
		if t == nil {
			continue // forgotten
		}
		if !l.knows(s) && !l.cfg.SourceExists(s.Queue) {
			// It ended since its letters came in. What it sent was taken before, and perhaps
			// forgotten since.
			l.supply.bytes -= t.bytes
			delete(l.transfers, s)
			continue
		}
		if room = l.takeTransfers(e, p, s, t, room); len(t.pending) > 0 {
			rest = append(rest, s)
		}
	}
	l.supply.sources = rest
	return room
}

// takeTransfers moves dead letters of one source into the entry.
func (l *Leader) takeTransfers(e *fsm.Entry, p *proposal, s fsm.Source, t *inbound, room int) int {
	if room <= 0 || len(t.pending) == 0 {
		return room
	}
	n, size := 0, 0
	for n < len(t.pending) && (n == 0 || size+transferBytes(t.pending[n]) <= room) {
		size += transferBytes(t.pending[n])
		if part := t.pending[n].Part; part != nil {
			l.takePart(p, part)
		} else if !t.pending[n].Withdrawn {
			l.limits.expect(p, int64(t.pending[n].BodyBytes))
		}
		n++
	}
	e.Commands = append(e.Commands, fsm.TransferIn{
		Source: s, First: t.next - uint64(len(t.pending)), AnsweredUpTo: t.answered,
		Items: t.pending[:n:n],
	})
	t.pending = t.pending[n:]
	t.bytes -= size
	l.supply.bytes -= size
	if len(t.pending) == 0 {
		t.pending, t.bytes = nil, 0
	}
	return room - size
}

// answerTransfer tells a source what applying its transfers did.
func (l *Leader) answerTransfer(r fsm.TransferResult) {
	t := l.transfers[r.Source]
	if t == nil {
		return
	}
	if r.Gap || r.Unknown {
		l.supply.bytes -= t.bytes
		t.next, t.pending, t.bytes = r.UpTo+1, nil, 0
	} else {
		failpoint.Pass(failpoint.MoveTaken, l.cfg.Queue)
		if len(r.Withdrawn) > 0 {
			failpoint.Pass(failpoint.WithdrawTaken, l.cfg.Queue)
		}
	}
	l.sendTransferAnswer(t, &wire.TransferAnswer{
		Source: r.Source.Queue, Epoch: r.Source.Epoch, UpTo: r.UpTo, Gap: r.Gap || r.Unknown, Gone: r.Gone, Withdrawn: r.Withdrawn,
	})
}

func (l *Leader) sendTransferAnswer(t *inbound, a *wire.TransferAnswer) {
	a.Target = l.cfg.Queue
	l.out.send(t.from, a)
}

// wakeMover starts the mover when there is something to move.
func (l *Leader) wakeMover() {
	if l.mover != nil {
		l.mover.Wake()
		return
	}
	var waiting int
	l.replica.View(func(m *fsm.Machine) { waiting = m.Outbox().Len() })
	if waiting > 0 {
		l.mover = l.cfg.StartMover(l)
	}
}
