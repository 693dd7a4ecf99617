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

// supplyMax is how many bytes of transfers wait for entries, exceeded by what one source sends at a time: some batches of each of a hundred sources. A
// queue may have thousands.
const supplyMax = 32 << 20

// isLetter tells whether the transfer brings a message that waits for room.
func isLetter(t *fsm.Transfer) bool { return t.Part == nil && !t.Withdrawn }

// onTransfer takes dead letters and parts of transactions from a source's leader, as many as there is room for. "Full"
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
		l.supply.drop(t)
		t.next = w + 1
	}
	end := m.In.First + uint64(len(m.In.Items))
	switch {
	case end <= t.next:
		a := l.stands(s)
		if len(m.In.Items) == 0 { // the source asks whether it is to send some; not while what it has sent is not committed
			a.Full, a.Gap = !m.Urgent && l.full(), !l.mayWait() || a.UpTo+1 < t.next
		}
		l.sendTransferAnswer(t, a)
	case m.In.First > t.next || !l.mayWait():
		// UpTo is what is committed: the source forgets up to there. What is pending
		// here comes twice then, and is trimmed.
		// It may have to wait for room all the same, as what came before it.
		a := l.stands(s)
		a.Gap, a.Full = true, !m.Urgent && l.full()
		l.sendTransferAnswer(t, a)
	default:
		items := m.In.Items[t.next-m.In.First:]
		if n := l.fitting(items); n < len(items) && !m.Urgent {
			a := l.stands(s)
			a.Full = true
			l.sendTransferAnswer(t, a)
			items = items[:n]
		}
		if len(items) > 0 {
			l.accept(s, t, items)
		}
	}
}

// mayWait tells whether what a source sends may wait for an entry. If not, it is for the source to send it again: it does so after a while.
func (l *Leader) mayWait() bool {
	n := l.supply.bytes
	return n == 0 || n < supplyMax && !l.cfg.Flight.crowded()
}

// accept has what a source sent wait for an entry.
func (l *Leader) accept(s fsm.Source, t *inbound, items []fsm.Transfer) {
	if len(t.pending) == 0 {
		l.supply.sources = append(l.supply.sources, s)
	}
	for i := range items {
		t.bytes += transferBytes(items[i])
		l.supply.count(&items[i], 1)
	}
	t.pending = append(t.pending, items...)
	t.next += uint64(len(items))
	failpoint.Pass(failpoint.MoveReceived, l.cfg.Queue)
	if failpoint.Sown(failpoint.MoveEarly) {
		l.sendTransferAnswer(t, &wire.TransferAnswer{Source: s.Queue, Epoch: s.Epoch, UpTo: t.next - 1})
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
// coming, and counts the bytes, and the letters with those of their bodies.
type supply struct {
	flight             *Flight // of the node, may be nil
	sources            []fsm.Source
	bytes              int
	letters, bodyBytes int64
}

// count adds n times what a transfer counts.
func (s *supply) count(t *fsm.Transfer, n int) {
	s.waits(n * transferBytes(*t))
	if isLetter(t) {
		s.letters += int64(n)
		s.bodyBytes += int64(n) * int64(t.BodyBytes)
	}
}

// waits notes that so many bytes wait, or not any more.
func (s *supply) waits(n int) {
	s.bytes += n
	if s.flight != nil {
		s.flight.waiting.Add(int64(n))
	}
}

// drop lets go of what waits of a source: it comes again.
func (s *supply) drop(t *inbound) {
	for i := range t.pending {
		s.count(&t.pending[i], -1)
	}
	t.pending, t.bytes = nil, 0
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
			l.supply.drop(t)
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
		it := &t.pending[n]
		size += transferBytes(*it)
		l.supply.count(it, -1)
		if it.Part != nil {
			l.takePart(p, it.Part)
		} else if isLetter(it) {
			l.limits.expect(p, it.BodyBytes, len(it.Message))
		}
		n++
	}
	e.Commands = append(e.Commands, fsm.TransferIn{
		Source: s, First: t.next - uint64(len(t.pending)), AnsweredUpTo: t.answered,
		Items: t.pending[:n:n],
	})
	t.pending = t.pending[n:]
	t.bytes -= size
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
		l.supply.drop(t)
		t.next = r.UpTo + 1
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
