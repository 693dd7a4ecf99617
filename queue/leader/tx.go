package leader

import (
	"slices"

	"github.com/warrenmq/warren/dlx"
	"github.com/warrenmq/warren/fsm"
	"github.com/warrenmq/warren/queue"
	"github.com/warrenmq/warren/queue/wire"
)

// txBytes is about what a transaction takes in an entry.
func txBytes(t fsm.Tx) int {
	n := 64
	for _, op := range t.Ops {
		n += opBytes(op)
	}
	for i := range t.Parts {
		n += len(t.Parts[i].Part) + 8*len(t.Parts[i].Targets) + 8
	}
	return n
}

// decideTx gives the verdict on a transaction as a whole, and names the holds it ends.
func (l *Leader) decideTx(p *peer, t fsm.Tx) fsm.Op {
	var n, bytes int64
	for _, op := range t.Ops {
		if pub, ok := op.(fsm.Publish); ok {
			n, bytes = n+1, bytes+int64(pub.BodyBytes)
		}
	}
	t.Verdict = l.limits.txVerdict(l, n, bytes)
	if t.Verdict == fsm.Accept && len(t.Parts) > 0 && l.outboxFull() {
		t.Verdict = fsm.RefuseOutbox
	}
	if txBytes(t) > EntryBytesMax { // a node of now refuses it itself
		t.Verdict, t.Ops, t.Parts = fsm.RefuseOutbox, nil, nil
	}
	if t.Verdict != fsm.Accept {
		return t
	}
	t.Parts = l.withoutGone(t.Parts)
	t.Ops = slices.Clone(t.Ops) // the node may keep its own
	for i, op := range t.Ops {
		s, ok := op.(fsm.Settle)
		switch {
		case !ok:
		case s.Kind == fsm.Ack || s.Kind == fsm.Discard:
			l.nameHeld(s.Kind, s.Runs)
		default:
			s.Runs = l.settling(p, s)
			t.Ops[i] = s
		}
	}
	return t
}

// withoutGone leaves out the targets that have left the catalog: the outbox may have
// forgotten that they are gone, and would begin a new sequence.
func (l *Leader) withoutGone(parts []fsm.TxPart) []fsm.TxPart {
	revision := l.cfg.CatalogRevision() // before the lookups
	gone := func(queue uint64) bool { return queue <= revision && !l.cfg.SourceExists(queue) && !l.succeeded(queue) }
	if !slices.ContainsFunc(parts, func(p fsm.TxPart) bool { return slices.ContainsFunc(p.Targets, gone) }) {
		return parts
	}
	var kept []fsm.TxPart
	for _, p := range parts {
		p.Targets = slices.DeleteFunc(slices.Clone(p.Targets), gone)
		if len(p.Targets) > 0 {
			kept = append(kept, p)
		}
	}
	return kept
}

// txVerdict decides on some publishes together. Nothing of a refused transaction is
// dead-lettered: nothing of it was published.
func (m *limits) txVerdict(l *Leader, n, bytes int64) fsm.Verdict {
	switch {
	case n == 0:
		return fsm.Accept
	case m.set.DeadLetter && l.outboxFull():
		return fsm.RefuseOutbox
	case l.tooLarge():
		return fsm.RefuseFull
	case m.set.Overflow == queue.DropHead || m.set.MaxLength < 0 && m.set.MaxLengthBytes < 0:
		return fsm.Accept
	}
	if !m.takes(l, n, bytes) {
		return fsm.RefuseFull
	}
	return fsm.Accept
}

// nameHeld names deliveries that end with a transaction, whoever holds them under that
// attempt: they are not given out again. Apply finds the others.
func (l *Leader) nameHeld(kind fsm.SettleKind, runs []fsm.Run) {
	for _, r := range runs {
		l.heldIn(r, func(id queue.MessageID, h hold) {
			if h.attempt == r.Attempt && !h.named {
				l.name(id, h, kind.Requeues())
			}
		})
	}
}

// expectTx counts the publishes of a transaction that was accepted.
func (l *Leader) expectTx(p *proposal, ops []fsm.Op) {
	for _, op := range ops {
		if pub, ok := op.(fsm.Publish); ok {
			l.limits.expect(p, pub.BodyBytes, len(pub.Message))
		}
	}
}

// takePart prepares for a part of another queue's transaction that goes into an entry.
func (l *Leader) takePart(p *proposal, part []byte) {
	op, err := fsm.DecodePart(part)
	if err != nil {
		return // it has been decoded on its way here
	}
	switch op := op.(type) {
	case fsm.Publish:
		l.limits.expect(p, op.BodyBytes, len(op.Message))
	case fsm.Settle:
		l.nameHeld(op.Kind, op.Runs)
	}
}

// parkedAsk is a TxAsk that waits for its answer.
type parkedAsk struct {
	from string
	ask  *wire.TxAsk
}

// serveAsks answers whether publishes would be taken, and tells of parts that have
// reached all their targets.
func (l *Leader) serveAsks() {
	if l.phase != phaseActive {
		return
	}
	rest := l.asks[:0]
	for _, a := range l.asks {
		told := &wire.TxTold{Queue: l.cfg.Queue, Req: a.ask.Req}
		switch {
		case a.ask.Last == 0:
			told.Refusal = l.roomFor(int64(a.ask.Publishes), int64(a.ask.Bytes))
		case !l.partsTaken(a.ask):
			rest = append(rest, a)
			continue
		}
		l.out.send(a.from, told)
	}
	clear(l.asks[len(rest):])
	l.asks = rest
}

func (l *Leader) roomFor(n, bytes int64) fsm.OutcomeKind {
	switch l.limits.txVerdict(l, n, bytes) {
	case fsm.RefuseFull:
		return fsm.RefusedFull
	case fsm.RefuseOutbox:
		return fsm.RefusedOutbox
	}
	return fsm.Done
}

// partsTaken moves the ask's first item past those that every target has committed, and
// tells whether none is left. A target's own word is enough: it is recorded here a little later.
func (l *Leader) partsTaken(a *wire.TxAsk) (all bool) {
	l.replica.View(func(m *fsm.Machine) {
		if uint64(m.Outbox().Last()) < a.Last {
			return // another leader has given the item; this one is deposed and learns of it
		}
		for ; a.First <= a.Last; a.First++ {
			it, ok := m.Outbox().Item(dlx.ItemID(a.First))
			if ok && slices.ContainsFunc(it.Legs, func(g dlx.Leg) bool { return g.Seq > l.taken[g.Target] }) {
				return
			}
		}
		all = true
	})
	return all
}
