package leader

import (
	"time"

	"github.com/warrenmq/warren/failpoint"
	"github.com/warrenmq/warren/fsm"
	"github.com/warrenmq/warren/queue"
	"github.com/warrenmq/warren/queue/wire"
)

// begin proposes the session's first entry. Once it is applied, everything
// earlier leaders got into the log is applied too.
func (l *Leader) begin() {
	l.limits.condemned = map[queue.MessageID]uint32{}
	if l.cfg.ClockError != nil {
		if l.clockError = l.cfg.ClockError(); l.clockError != 0 {
			l.cfg.Logger.Debug("this node's clock is not that of most nodes", "queue", l.cfg.Queue, "ahead_ms", l.clockError)
		}
	}
	l.replica.View(func(m *fsm.Machine) { l.epoch.start(m.Time(), l.nodeTime()) })
	e := &fsm.Entry{CatalogRev: l.cfg.CatalogRevision()}
	if c, news := l.newSettings(); news {
		e.Commands = append(e.Commands, c)
	}
	l.submit(e, proposal{}, 0)
}

// newSettings returns the queue's settings if the catalog has newer ones than the machine,
// and they are others.
func (l *Leader) newSettings() (c fsm.SetSettings, news bool) {
	s, rev, vhost, name := l.cfg.Settings()
	l.replica.View(func(m *fsm.Machine) {
		have := m.SettingsRevision()
		news = rev > have && (have == 0 || s != m.Settings() || name != m.Name() || vhost != m.VHost())
	})
	return fsm.SetSettings{Revision: rev, Settings: s, Name: name, VHost: vhost}, news
}

// SettingsPending tells whether the machine has other settings than the catalog says. It
// may be called by anybody.
func (l *Leader) SettingsPending() bool {
	_, news := l.newSettings()
	return news
}

// renewSettings proposes the queue's settings if they are not what the machine has. It runs
// at each change of the catalog, and again when settings were applied: others may have
// become right while those were under way.
func (l *Leader) renewSettings() {
	if c, news := l.newSettings(); news {
		l.pending.add(c, false)
	}
}

// onSettings runs when settings were applied. Dead letters that had nowhere to go under the
// former ones are decided on again.
func (l *Leader) onSettings() {
	old := l.limits.set
	l.limits.reload(l)
	l.planning.reload(l)
	l.renewSettings()
	if deadLettering(&old) != deadLettering(&l.limits.set) {
		l.parked = parked{look: true, cycles: true}
	}
}

// deadLettering is the part of the settings that says where dead letters go.
func deadLettering(s *queue.Settings) queue.Settings {
	return queue.Settings{
		DeadLetter: s.DeadLetter, DeadLetterExchange: s.DeadLetterExchange,
		DeadLetterRoutingKey: s.DeadLetterRoutingKey, DeadLetterKeySet: s.DeadLetterKeySet, AtLeastOnce: s.AtLeastOnce,
	}
}

func (l *Leader) onCatalogChanged() {
	l.renewSettings()
	l.parked.look = true
	if l.mover != nil {
		l.mover.Wake()
	}
}

// opened runs when the first entry is applied: the roll is called. What came in
// early was counted from a machine that had not applied everything; the nodes say it
// again behind their answers. If it is the first entry of all, the queue is new.
func (l *Leader) opened(first bool) {
	l.phase = phaseRoll
	l.isOpen.Store(true)
	l.parked.look, l.parked.cycles = true, true // a route may have come while nobody led
	l.forgets.wanted = true
	l.limits.reload(l)
	l.planning.reload(l)
	l.renewSettings() // an earlier leader's last ones may have been applied just now
	l.loadDelays()
	l.loadLeaving()
	l.replica.View(func(m *fsm.Machine) {
		l.epoch.raise(m.Time(), l.nodeTime())
		if !failpoint.Sown(failpoint.SkipMark) {
			l.maybeDelivered = m.Mark()
		}
		l.recounting.init(l.maybeDelivered)
		l.closing.closed = m.Closed()
	})
	early, said, unkept := l.peers, l.early, l.unkept
	l.peers, l.early, l.unkept = map[uint32]*peer{}, nil, nil
	l.awaited = map[uint32]uint64{}
	l.rollBefore, l.rollLast = time.Now().Add(l.rollPatience()), false
	l.single.quiet = time.Now()
	if first && l.cfg.New {
		l.openNew(early, said, unkept)
	} else {
		l.openOld(early)
	}
	l.wakeMover()
}

// openOld calls the roll.
func (l *Leader) openOld(early map[uint32]*peer) {
	for _, n := range l.cfg.LiveNodes() {
		l.awaited[n.Origin.Node] = n.Origin.Incarnation
		l.callRoll(n.ID)
	}
	for node, p := range early {
		if _, ok := l.awaited[node]; !ok {
			l.callRoll(p.id)
		}
	}
}

// openNew begins a queue that nobody led before: nobody can hold anything, and nobody waits for an answer of another leader.
// What came early is as good as what comes now, unless something is missing among it.
func (l *Leader) openNew(early map[uint32]*peer, said []received, unkept map[string]bool) {
	resynced := map[string]bool{}
	for _, e := range said {
		if _, ok := e.m.(*wire.Resync); ok && !unkept[e.from] {
			resynced[e.from] = true
		}
	}
	for _, p := range early {
		if !resynced[p.id] {
			l.awaited[p.origin.Node] = p.origin.Incarnation
			l.callRoll(p.id)
		}
	}
	for _, e := range said {
		if resynced[e.from] {
			l.onMessage(e.from, e.m)
		}
	}
}

// earlyMax bounds what is kept until the first entry is applied.
const earlyMax = 64

// keepEarly keeps what a declaration says to its queue. Everything else is said again: by nodes' streams when the roll is called there.
func (l *Leader) keepEarly(from string, m wire.Message) {
	switch m.(type) {
	case *wire.Resync, *wire.Query:
		if len(l.early) >= earlyMax {
			l.early = nil // the roll is called where their Resync is not among those that come now
		}
		l.early = append(l.early, received{from, m})
	case *wire.Batch, *wire.Attach, *wire.Detach, *wire.Get, *wire.TxAsk:
		if l.unkept == nil {
			l.unkept = map[string]bool{}
		}
		l.unkept[from] = true
	}
}

// callRoll asks a node for its consumers and what they hold.
func (l *Leader) callRoll(node string) {
	if l.phase != phaseOpen {
		l.out.send(node, &wire.RollCall{Queue: l.cfg.Queue, Session: l.cfg.Session})
	}
}

// rollPatience is how long the roll call waits for nodes that live: longer the more deliveries their answers may name. A node that is
// found dead is waited for no longer.
func (l *Leader) rollPatience() time.Duration {
	held := uint64(0)
	l.replica.View(func(m *fsm.Machine) {
		if first, ok := m.Queue().NextLive(0); ok && first.ID <= m.Mark() {
			held = min(uint64(m.Queue().Len()), uint64(m.Mark()-first.ID)+1)
		}
	})
	return min(rollCallTimeout+time.Duration(held)*rollHoldPatience, rollCallMax)
}

// checkRollCall ends the roll call when everybody alive has answered. What came while an answer was worked on is looked at before the time is over.
func (l *Leader) checkRollCall() {
	if l.phase != phaseRoll {
		return
	}
	left := time.Until(l.rollBefore)
	if len(l.awaited) > 0 && left > 0 {
		l.wake(left)
		return
	}
	if len(l.awaited) > 0 && !l.rollLast {
		l.rollLast = true
		l.wake(0)
		return
	}
	if len(l.awaited) > 0 {
		l.cfg.Logger.Warn("roll call incomplete", "queue", l.cfg.Queue, "missing", len(l.awaited))
	}
	l.missing, l.awaited = l.awaited, nil
	l.phase = phaseActive
	l.contradictions()
	l.letIn()
	l.wakeRedriver()
	l.rollComplete()
}

// rollComplete looks whether an auto-delete queue has lost its last consumer while nobody
// led, once every node has said what it has.
func (l *Leader) rollComplete() {
	if len(l.missing) == 0 && l.cfg.AutoDelete {
		l.checkUnused(l.everConsumed())
	}
}

// heardOf ends the waiting for a node that did not answer in time.
func (l *Leader) heardOf(node uint32) {
	if _, ok := l.missing[node]; ok {
		delete(l.missing, node)
		l.use() // as far as anybody knows it was, until now
		l.letIn()
		l.rollComplete()
	}
}

// everConsumed tells whether the log knows of a consumer that was once.
func (l *Leader) everConsumed() (yes bool) {
	l.replica.View(func(m *fsm.Machine) { yes = m.Consumed() })
	return yes
}

// onResync replaces what is known of a node's consumers and holds. Messages
// that the node should hold and does not were lost on the way to it; they are
// ready again under the same attempt number, marked as possibly delivered.
func (l *Leader) onResync(from string, m *wire.Resync) {
	p := l.peer(from, m.Origin)
	switch {
	case p == nil || l.phase == phaseOpen:
		return // the roll will be called there
	case m.Newest > l.cfg.Session:
		l.out.send(from, &wire.NotLeader{Queue: l.cfg.Queue})
		return
	}
	if m.No < p.resync {
		return // a newer one has overtaken it, with all that is said behind it
	}
	if m.Session == l.cfg.Session {
		delete(l.awaited, m.Origin.Node)
	}
	p.resync = m.No
	l.catchUp(p)
	says := make(map[queue.MessageID]wire.Hold, len(m.Held))
	for _, h := range m.Held {
		p.announced = max(p.announced, h.Settled)
		// A settlement that was proposed has named its hold, or came too late for one.
		if h.Settled == 0 || h.Settled >= p.next-uint64(len(p.pending)) {
			says[h.ID] = h
		}
	}
	l.dropUnclaimed(m.Origin.Node, says)
	l.claim(m.Origin.Node, says)
	l.dropRequests(m.Origin.Node) // they are sent again behind this
	had := l.consumers.len() > 0 || l.promised(p)
	l.consumers.removeNode(m.Origin.Node)
	p.attaching = nil
	for _, no := range m.Attaching {
		if p.attaching == nil {
			p.attaching = map[wire.ConsumerNo]bool{}
		}
		p.attaching[no] = true
	}
	unacked := l.unackedOf(m.Origin.Node, m.Consumers)
	for _, c := range m.Consumers {
		l.attach(p, c, unacked[c.No])
	}
	l.contradictions()
	l.checkUnused(had)
	l.heardOf(m.Origin.Node)
	l.answerAgain(p, false)
}

// unackedOf counts what a node's consumers hold and have not given back, and what was taken back from them
// because the node was thought dead: it comes before all else that they get. What was held for a consumer that is
// not there counts no more: another process on the node may give its number again.
func (l *Leader) unackedOf(node uint32, consumers []wire.Consumer) map[wire.ConsumerNo]uint32 {
	n := make(map[wire.ConsumerNo]uint32, len(consumers))
	for _, c := range consumers {
		n[c.No] = 0
	}
	for id, h := range l.held {
		if h.node != node || h.free {
			continue
		}
		if _, there := n[h.no]; there {
			n[h.no]++
			continue
		}
		h.free = true
		l.held[id] = h
	}
	return n
}

func (l *Leader) dropUnclaimed(node uint32, says map[queue.MessageID]wire.Hold) {
	for id, h := range l.held {
		if h.node != node || h.named {
			continue
		}
		if s, ok := says[id]; ok && s.Attempt == h.attempt {
			continue
		}
		l.maybeDelivered = max(l.maybeDelivered, id)
		l.unhold(id)
	}
}

// unhold makes a message ready again without a word in the log.
func (l *Leader) unhold(id queue.MessageID) {
	l.letGo(id)
	l.replica.View(func(f *fsm.Machine) {
		if msg, ok := f.Queue().Get(id); ok {
			l.ready.putBack(msg)
			l.mayExpire(msg)
		}
	})
}

// claim records the deliveries a node says it holds, if the message is there
// under that attempt and nobody else has it.
func (l *Leader) claim(node uint32, says map[queue.MessageID]wire.Hold) {
	l.replica.View(func(f *fsm.Machine) {
		for id, s := range says {
			msg, ok := f.Queue().Get(id)
			if !ok || msg.Attempt != s.Attempt || !l.reachable(id) {
				continue
			}
			h := hold{node: node, no: s.No, attempt: s.Attempt, bytes: msg.BodyBytes}
			l.setBack(&h, s.Settled > 0) // maybe; its operation tells
			l.held[id] = h
			l.limits.heldBytes += int64(msg.BodyBytes)
		}
	})
}
