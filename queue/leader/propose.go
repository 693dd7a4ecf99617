package leader

import (
	"cmp"
	"slices"
	"time"

	"github.com/warrenmq/warren/dirty"
	"github.com/warrenmq/warren/failpoint"
	"github.com/warrenmq/warren/fsm"
	"github.com/warrenmq/warren/queue"
)

// entrySlack is room in an entry's buffer for what the size does not count.
const entrySlack = 512

// proposal is an entry on its way through the log.
type proposal struct {
	ordinal uint64
	bytes   int
	// publishes, their body bytes and their length that the leader expects to be enqueued; they
	// count toward the limits until applied.
	publishes, publishBytes, publishLength int64
	mark                                   queue.MessageID
	names                                  int // holds whose end the entry names
	applied                                []func()
}

// batch collects the commands of the next entry beside the streams.
type batch struct {
	commands []fsm.Command
	lazy     int       // how many of them can wait
	lazyFrom time.Time // since when the oldest waits
	mark     queue.MessageID
	names    int      // holds that the next entry names
	applied  []func() // to be called when the commands are applied
}

func (b *batch) add(c fsm.Command, lazy bool) {
	if d, ok := c.(fsm.TransferDone); ok && b.coalesce(d) {
		if !lazy {
			b.lazyFrom = time.Time{} // what it joins need not wait any more
		}
		return
	}
	if lazy {
		if b.lazy == 0 {
			b.lazyFrom = time.Now()
		}
		b.lazy++
	}
	b.commands = append(b.commands, c)
}

// coalesce merges a cumulative command into one that already waits.
func (b *batch) coalesce(d fsm.TransferDone) bool {
	for i, c := range b.commands {
		if have, ok := c.(fsm.TransferDone); ok && have.Target == d.Target {
			have.UpTo = max(have.UpTo, d.UpTo)
			have.Withdrawn = append(slices.Clone(have.Withdrawn), d.Withdrawn...)
			slices.Sort(have.Withdrawn)
			have.Withdrawn = slices.Compact(have.Withdrawn)
			b.commands[i] = have
			return true
		}
	}
	return false
}

// propose puts entries into the log: at once while little is in flight, in
// larger batches when much is, so that batches grow with load and an idle queue
// waits for nothing, but for what nobody waits for: that joins the next entry, if
// one comes soon.
func (l *Leader) propose() {
	for l.phase != phaseOpen && l.mayFly() {
		waiting := l.pendingBytes()
		urgent := len(l.pending.commands) > l.pending.lazy || l.pending.mark > 0 || waiting > 0 && !l.onlyAcks()
		if !urgent {
			if l.pending.lazy == 0 && waiting == 0 {
				return
			}
			if left := l.lingers(waiting > 0); left > 0 {
				l.wake(left)
				return
			}
		}
		if len(l.inFlight) >= eagerEntries && waiting < eagerBytes {
			return
		}
		l.proposeOne()
	}
}

func (l *Leader) pendingBytes() (n int) {
	for _, p := range l.peers {
		if len(p.pending) > 0 && !l.waits(p, 0) {
			n += p.bytes + len(p.pending)
		}
	}
	return n + l.supply.bytes
}

// waits tells whether a pending operation can not be decided on yet. A purge waits until
// all earlier operations of its node are applied: it removes what they have enqueued. An
// immediate publish waits until all consumers are known.
func (l *Leader) waits(p *peer, i int) bool {
	switch op := p.pending[i].(type) {
	case fsm.Publish:
		return op.Immediate && l.phase != phaseActive
	case fsm.Purge:
	default:
		return false
	}
	seq := p.next - uint64(len(p.pending)) + uint64(i)
	return l.watermark(p.origin) < seq-1
}

func (l *Leader) proposeOne() {
	// What was decided on an older copy of the catalog is looked up again behind the
	// revision that the entry carries: the machine compares that one with its clean-ups.
	e := fsm.Entry{Commands: l.pending.commands, Mark: l.pending.mark, CatalogRev: l.cfg.CatalogRevision()}
	p := proposal{mark: l.pending.mark, applied: l.pending.applied}
	names := l.pending.names
	l.pending = batch{}
	l.dropStaleRoutes(&e)
	room := entryBytesMax
	for _, node := range l.peerOrder() {
		room = l.takeStream(&e, &p, l.peers[node], room)
	}
	room = l.takeSupply(&e, &p, room)
	if p.publishes > 0 && l.consumers.anyCredit() {
		e.MarkSelf = true
	}
	l.plan(&e)
	p.names, l.pending.names = names+l.pending.names, 0
	l.submit(&e, p, entryBytesMax-room)
}

// dropStaleRoutes takes the routes to queues that have left the catalog out: the outbox
// may have forgotten that such a target is gone. The mover decides on the items again.
func (l *Leader) dropStaleRoutes(e *fsm.Entry) {
	for i, c := range e.Commands {
		if t, ok := c.(fsm.TakeRedrive); ok {
			e.Commands[i] = l.dropStaleTargets(t)
		}
		r, ok := c.(fsm.Route)
		if !ok {
			continue
		}
		r.Items = slices.DeleteFunc(r.Items, func(d fsm.Routed) bool {
			return slices.ContainsFunc(d.Targets, func(t uint64) bool { return !l.cfg.SourceExists(t) })
		})
		e.Commands[i] = r
	}
}

// peerOrder rotates who is served first, so that one node's load cannot starve
// another's. A few acks alone go before: they take little room, and what they end is soon in the
// log for good however much the others publish.
func (l *Leader) peerOrder() []uint32 {
	nodes := make([]uint32, 0, len(l.peers))
	for n, p := range l.peers {
		if len(p.pending) > 0 && !l.waits(p, 0) {
			nodes = append(nodes, n)
		}
	}
	slices.Sort(nodes)
	if len(nodes) > 1 {
		turn := int(l.ordinal) % len(nodes)
		nodes = slices.Concat(nodes[turn:], nodes[:turn])
		slices.SortStableFunc(nodes, func(a, b uint32) int {
			return cmp.Compare(l.peers[a].publishes(), l.peers[b].publishes())
		})
	}
	return nodes
}

// takeStream moves operations of one node into the entry while there is room,
// and at least one.
func (l *Leader) takeStream(e *fsm.Entry, p *proposal, from *peer, room int) int {
	if room <= 0 {
		return room
	}
	n, size := 0, 0
	for n < len(from.pending) && (n == 0 || size+opBytes(from.pending[n]) <= room) && (n == 0 || !l.waits(from, n)) {
		size += opBytes(from.pending[n])
		n++
	}
	s := fsm.Stream{Origin: from.origin, First: from.next - uint64(len(from.pending)), AnsweredUpTo: from.answered}
	s.Ops = make([]fsm.Op, n)
	for i, op := range from.pending[:n] {
		from.acks.taken(op)
		op = l.decide(from, op)
		s.Ops[i] = op
		if pub, ok := op.(fsm.Publish); ok && pub.Verdict == fsm.Accept {
			l.limits.expect(p, pub.BodyBytes, len(pub.Message))
			from.published.now++
		}
		if tx, ok := op.(fsm.Tx); ok && tx.Verdict == fsm.Accept {
			l.expectTx(p, tx.Ops)
		}
	}
	clear(from.pending[:n])
	from.pending = from.pending[n:]
	from.bytes -= size
	if len(from.pending) == 0 {
		from.pending, from.bytes, from.acks = nil, 0, acksWaiting{}
	}
	e.Commands = append(e.Commands, s)
	return room - size
}

// submit puts an entry of about size bytes into the log.
func (l *Leader) submit(e *fsm.Entry, p proposal, size int) {
	l.ordinal++
	p.ordinal = l.ordinal
	e.Session, e.Ordinal = l.cfg.Session, l.ordinal
	e.TimeMillis = l.now()
	data := fsm.EncodeEntry(dirty.Lend(size + entrySlack)[:0], e)
	p.bytes = len(data)
	l.inFlight = append(l.inFlight, p)
	l.fly(p.bytes)
	l.cfg.Log.Propose(data, func(err error) {
		if err != nil {
			l.post(proposeFailed{err})
			return
		}
		dirty.Return(data)
	})
	if failpoint.Enabled {
		l.passProposed(e)
	}
}

// passProposed passes the points behind the proposal of the move's commands.
func (l *Leader) passProposed(e *fsm.Entry) {
	for _, c := range e.Commands {
		switch c.(type) {
		case fsm.Plan:
			failpoint.Pass(failpoint.MovePlanProposed, l.cfg.Queue)
		case fsm.Route:
			failpoint.Pass(failpoint.MoveRouteProposed, l.cfg.Queue)
		case fsm.TransferIn:
			failpoint.Pass(failpoint.MoveTakeProposed, l.cfg.Queue)
		case fsm.TransferDone:
			failpoint.Pass(failpoint.MoveDoneProposed, l.cfg.Queue)
		case fsm.TakeRedrive:
			failpoint.Pass(failpoint.RedriveProposed, l.cfg.Queue)
		}
	}
}

func (l *Leader) now() int64 { return l.epoch.now(l.nodeTime()) }

// nodeTime is the node's clock, corrected.
func (l *Leader) nodeTime() int64 { return l.cfg.Now() - l.clockError }

// onApplied acts on the result of an entry. Entries of other sessions are an
// earlier leader's tail.
func (l *Leader) onApplied(r fsm.Result, first bool) {
	if r.Session > l.cfg.Session {
		// Marks that it raises are for its own deliveries, not for this one's.
		l.fail("another leader has taken over", nil)
		return
	}
	if r.Session == l.cfg.Session {
		for len(l.inFlight) > 0 && l.inFlight[0].ordinal <= r.Ordinal {
			l.fly(-l.inFlight[0].bytes)
			l.limits.settle(l.inFlight[0])
			l.flow.now.in += l.inFlight[0].publishes
			for _, f := range l.inFlight[0].applied {
				f()
			}
			l.inFlight = slices.Delete(l.inFlight, 0, 1)
		}
		if l.phase == phaseOpen && r.Ordinal >= 1 {
			l.opened(first)
		}
	}
	if l.phase == phaseOpen {
		return
	}
	if r.Session == l.cfg.Session && r.Ordinal >= l.ready.purgedBy {
		l.ready.purging = 0
	}
	l.onRemoved(r.Removed)
	l.onReturned(r.Returned)
	l.onFreed(r.Freed)
	if r.Session == l.cfg.Session {
		l.reviveNamed(r.Ordinal)
	}
	l.limits.fresh(r.Enqueued)
	l.expiring(r.Enqueued)
	l.regulate()
	for _, s := range r.Streams {
		l.answer(s)
	}
	for _, t := range r.Transfers {
		l.answerTransfer(t)
	}
	if r.OutboxChanged || r.Closed {
		l.wakeMover()
	}
	if r.RedriveChanged {
		l.wakeRedriver()
	}
	if r.SettingsSet {
		l.onSettings()
	}
	if r.Closed {
		l.closing.closed = true
	}
}
