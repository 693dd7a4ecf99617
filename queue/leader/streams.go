package leader

import (
	"slices"
	"time"

	"github.com/warrenmq/warren/failpoint"
	"github.com/warrenmq/warren/fsm"
	"github.com/warrenmq/warren/queue"
	"github.com/warrenmq/warren/queue/wire"
)

// peer is a node's stream into this queue.
type peer struct {
	id     string
	origin fsm.Origin
	// next is the sequence expected from the node; everything below it is
	// applied, in flight or pending.
	next      uint64
	answered  uint64
	pending   []fsm.Op
	bytes     int
	acks      acksWaiting
	published intake
	// told: the outcomes up to here are on their way to the node, or it has them.
	told uint64
	// resync is the No of the newest Resync, 0 before the first.
	resync uint64
	// announced is the newest operation that its Resync spoke of; it may still be on its way.
	announced uint64
	// attaching are the consumers whose Attach its Resync promised and has not come: the queue is not unused.
	attaching map[wire.ConsumerNo]bool
}

// peer finds or begins the stream of an origin. It returns nil for an
// incarnation older than the one known: that process is dead.
func (l *Leader) peer(from string, o fsm.Origin) *peer {
	p := l.peers[o.Node]
	switch {
	case p != nil && p.origin == o:
		p.id = from
		return p
	case p != nil && p.origin.Incarnation > o.Incarnation:
		return nil
	case p != nil:
		l.dropNode(p.origin)
	}
	p = &peer{id: from, origin: o, next: l.watermark(o) + 1}
	l.peers[o.Node] = p
	return p
}

// heard finds the stream of a node whose consumers and holds are known. It returns
// nil for another: what it says comes again behind its Resync, for which the roll is
// called there.
func (l *Leader) heard(from string, o fsm.Origin) *peer {
	p := l.peer(from, o)
	if p == nil || p.resync > 0 && l.phase != phaseOpen {
		return p
	}
	if _, called := l.awaited[o.Node]; !called {
		l.callRoll(from)
	}
	return nil
}

func (l *Leader) watermark(o fsm.Origin) (seq uint64) {
	l.replica.View(func(m *fsm.Machine) {
		if known, w, ok := m.Watermark(o.Node); ok && known == o {
			seq = w
		}
	})
	return seq
}

// catchUp moves p past what was applied since its stream began here. Entries can be under
// way then: those of a node that was taken for dead and lives, whose stream begins anew
// with what is applied at that moment. Once it was told of them it never says them again.
func (l *Leader) catchUp(p *peer) {
	if len(p.pending) == 0 {
		p.next = max(p.next, l.watermark(p.origin)+1)
	}
}

func (l *Leader) onBatch(from string, m *wire.Batch) {
	s := m.Stream
	p := l.heard(from, s.Origin)
	if p == nil {
		return
	}
	p.answered = max(p.answered, s.AnsweredUpTo)
	l.catchUp(p)
	end := s.First + uint64(len(s.Ops))
	switch {
	case s.First > p.next:
		l.answerAgain(p, true)
		return
	case end <= p.next:
		l.answerAgain(p, false)
		return
	}
	ops := s.Ops[p.next-s.First:]
	for _, op := range ops {
		p.bytes += opBytes(op)
		p.acks.came(op)
	}
	p.pending = append(p.pending, ops...)
	p.next = end
	l.announced(p, ops)
	if failpoint.Sown(failpoint.ConfirmEarly) {
		l.out.send(p.id, &wire.Answer{Queue: l.cfg.Queue, Origin: p.origin, UpTo: end - 1, Above: p.told, Next: end})
	}
}

// announced notes what the settlements of a batch make of the deliveries they end. The operations
// wait for room in an entry, consumers do not wait for theirs: what is settled for good gives its
// credit back now. What goes back does not, and in a queue with a single active consumer it is from
// now on what the deliveries behind it wait for. A transaction may be refused yet: it says nothing.
func (l *Leader) announced(p *peer, ops []fsm.Op) {
	for _, op := range ops {
		if s, ok := op.(fsm.Settle); ok {
			l.settled(p, s, func(id queue.MessageID, h hold) {
				l.ends(&h, s.Kind.Requeues())
				l.held[id] = h
			})
		}
	}
}

// answerAgain repeats what the machine knows of a stream, because an answer was
// lost or a batch did not fit.
func (l *Leader) answerAgain(p *peer, rewind bool) {
	a := &wire.Answer{Queue: l.cfg.Queue, Origin: p.origin, Above: p.answered, Rewind: rewind, Next: p.next}
	l.replica.View(func(m *fsm.Machine) {
		if known, w, ok := m.Watermark(p.origin.Node); ok && known == p.origin {
			a.UpTo = w
			if !failpoint.Sown(failpoint.BareAck) {
				a.Outcomes = m.Recorded(p.origin, p.answered)
			}
		}
	})
	p.told = max(p.told, a.UpTo)
	l.out.send(p.id, a)
}

func opBytes(op fsm.Op) int {
	switch op := op.(type) {
	case fsm.Publish:
		return len(op.Message) + 32
	case fsm.Settle:
		return 12*len(op.Runs) + 16 + len(op.Detail)
	case fsm.Tx:
		return txBytes(op)
	default:
		return 64
	}
}

// decide fills in what only the leader knows, at the moment an operation is
// put into an entry.
func (l *Leader) decide(p *peer, was fsm.Op) fsm.Op {
	switch op := was.(type) {
	case fsm.Publish:
		verdict := l.limits.verdict(l, op)
		if verdict == op.Verdict {
			return was // the same, without another copy
		}
		op.Verdict = verdict
		return op
	case fsm.Settle:
		op.Runs = l.settling(p, op)
		return op
	case fsm.Purge:
		return l.purge()
	case fsm.Tx:
		return l.decideTx(p, op)
	}
	return was
}

// settling keeps of a settlement the runs that the node really holds, and names them.
func (l *Leader) settling(p *peer, s fsm.Settle) []fsm.Run {
	kept := make([]fsm.Run, 0, len(s.Runs))
	l.settled(p, s, func(id queue.MessageID, h hold) {
		l.name(id, h, s.Kind.Requeues())
		if !s.Kind.Requeues() {
			l.flow.now.out++
		}
		kept = appendRun(kept, id, h.attempt)
	})
	return kept
}

// settled calls f for each hold of the node that a settlement ends.
func (l *Leader) settled(p *peer, s fsm.Settle, f func(queue.MessageID, hold)) {
	for _, r := range s.Runs {
		l.heldIn(r, func(id queue.MessageID, h hold) {
			if h.node == p.origin.Node && h.attempt == r.Attempt && !h.named {
				f(id, h)
			}
		})
	}
}

// heldIn calls f for each held message of a run, in order. A run costs no more than what is held, however many messages a peer claims it has.
func (l *Leader) heldIn(r fsm.Run, f func(queue.MessageID, hold)) {
	if uint64(r.Count) <= uint64(len(l.held)) {
		for i := range r.Count {
			id := r.First + queue.MessageID(i)
			if h, ok := l.held[id]; ok {
				f(id, h)
			}
		}
		return
	}
	var ids []queue.MessageID
	for id := range l.held {
		if id >= r.First && id-r.First < queue.MessageID(r.Count) {
			ids = append(ids, id)
		}
	}
	sortIDs(ids)
	for _, id := range ids {
		f(id, l.held[id])
	}
}

// onUnsent takes back deliveries that no client has seen: they are ready again as they were, and come before what is
// behind them. They keep their attempt number, under which the node says nothing more of them.
func (l *Leader) onUnsent(from string, m *wire.Unsent) {
	p := l.heard(from, m.Origin)
	if p == nil || p.resync != m.Resync {
		return // its Resync does not name them
	}
	var ids []queue.MessageID
	l.settled(p, fsm.Settle{Runs: m.Runs}, func(id queue.MessageID, _ hold) { ids = append(ids, id) })
	for _, id := range slices.Backward(ids) {
		l.letGo(id)
		l.replica.View(func(f *fsm.Machine) {
			if msg, ok := f.Queue().Get(id); ok {
				l.ready.unhand(msg)
				l.mayExpire(msg)
			}
		})
	}
}

func appendRun(runs []fsm.Run, id queue.MessageID, attempt uint32) []fsm.Run {
	if n := len(runs); n > 0 {
		last := &runs[n-1]
		if last.Attempt == attempt && last.First+queue.MessageID(last.Count) == id {
			last.Count++
			return runs
		}
	}
	return append(runs, fsm.Run{First: id, Count: 1, Attempt: attempt})
}

func appendID(ids []queue.IDRange, id queue.MessageID) []queue.IDRange {
	if n := len(ids); n > 0 && ids[n-1].Last+1 == id {
		ids[n-1].Last = id
		return ids
	}
	return append(ids, queue.IDRange{First: id, Last: id})
}

// purge names every message but the held ones: it sees what is applied now, and with
// it everything its node sent before.
func (l *Leader) purge() fsm.Purge {
	var up queue.MessageID
	l.replica.View(func(m *fsm.Machine) { up = m.Queue().Tail() })
	except := make([]queue.MessageID, 0, len(l.held))
	for id := range l.held {
		if id <= up {
			except = append(except, id)
		}
	}
	sortIDs(except)
	p := fsm.Purge{UpTo: up}
	for _, id := range except {
		p.Except = appendID(p.Except, id)
	}
	l.ready.purging, l.ready.purgedBy = max(l.ready.purging, up), l.ordinal+1
	return p
}

func (l *Leader) onNodeGone(node uint32, incarnation uint64) {
	p := l.peers[node]
	if inc, ok := l.awaited[node]; ok && inc <= incarnation {
		delete(l.awaited, node) // a newer incarnation answers for itself
	}
	if inc, ok := l.missing[node]; ok && inc <= incarnation {
		l.heardOf(node)
	}
	if p == nil || p.origin.Incarnation > incarnation {
		return
	}
	if node == l.seen.tenure.Origin.Node {
		l.single.quiet = time.Now()
	}
	l.dropNode(p.origin)
	l.callRoll(p.id) // in case it lives after all
}

// dropNode takes back everything a dead process held and forgets its
// consumers. Its stream's record stays in the machine until a newer incarnation
// speaks.
func (l *Leader) dropNode(o fsm.Origin) {
	had := l.consumers.len() > 0 || l.promised(l.peers[o.Node])
	l.consumers.removeNode(o.Node)
	var ids []queue.MessageID
	for id, h := range l.held {
		if h.node == o.Node && !h.named {
			ids = append(ids, id)
		}
	}
	l.takeBack(ids, fsm.RequeueCounted)
	l.dropRequests(o.Node)
	delete(l.peers, o.Node)
	l.checkUnused(had)
}

// dropRequests forgets the unanswered requests of a node.
func (l *Leader) dropRequests(node uint32) {
	l.gets = slices.DeleteFunc(l.gets, func(g *wire.Get) bool {
		if g.Origin.Node == node {
			delete(l.getsFrom, g)
			return true
		}
		return false
	})
	l.asks = slices.DeleteFunc(l.asks, func(a parkedAsk) bool { return a.ask.Origin.Node == node })
	l.queries = slices.DeleteFunc(l.queries, func(q parkedQuery) bool { return q.q.Origin.Node == node })
	l.attaches = slices.DeleteFunc(l.attaches, func(a parkedAttach) bool { return a.attach.Origin.Node == node })
}

// takeBack returns held messages through the log.
func (l *Leader) takeBack(ids []queue.MessageID, kind fsm.SettleKind) {
	if len(ids) == 0 {
		return
	}
	sortIDs(ids)
	r := fsm.Return{Kind: kind}
	for _, id := range ids {
		h := l.held[id]
		l.name(id, h, kind.Requeues())
		r.Runs = appendRun(r.Runs, id, h.attempt)
	}
	l.pending.add(r, false)
}
