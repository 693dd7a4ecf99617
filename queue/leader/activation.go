package leader

import (
	"time"

	"github.com/warrenmq/warren/fsm"
	"github.com/warrenmq/warren/queue"
	"github.com/warrenmq/warren/queue/wire"
)

// begin proposes the session's first entry. Once it is applied, everything
// earlier leaders got into the log is applied too.
func (l *Leader) begin() {
	l.limits.condemned = map[queue.MessageID]uint32{}
	l.replica.View(func(m *fsm.Machine) { l.epoch.start(m.Time(), l.cfg.Now()) })
	e := &fsm.Entry{}
	l.addSettings(e)
	l.submit(e, proposal{}, 0)
}

// addSettings puts the queue's settings into the entry if the catalog has newer
// ones than the machine.
func (l *Leader) addSettings(e *fsm.Entry) {
	s, rev, vhost, name := l.cfg.Settings()
	var have uint64
	l.replica.View(func(m *fsm.Machine) { have = m.SettingsRevision() })
	if rev > have {
		e.Commands = append(e.Commands, fsm.SetSettings{Revision: rev, Settings: s, Name: name, VHost: vhost})
	}
}

func (l *Leader) onCatalogChanged() {
	var e fsm.Entry
	l.addSettings(&e)
	for _, c := range e.Commands {
		l.pending.add(c, false)
	}
	var parked bool
	l.replica.View(func(m *fsm.Machine) { parked = m.Outbox().Parked(fsm.ParkUnrouted) > 0 })
	if parked && l.phase != phaseOpen {
		l.pending.add(fsm.Release{Kind: fsm.ParkUnrouted}, true)
	}
	if l.mover != nil {
		l.mover.Wake()
	}
}

// opened runs when the first entry is applied: the roll is called.
func (l *Leader) opened() {
	l.phase = phaseRoll
	l.limits.reload(l)
	l.replica.View(func(m *fsm.Machine) {
		l.maybeDelivered = m.Mark()
		l.closing.closed = m.Closed()
	})
	// Streams that came in early were counted from a machine that had not
	// applied everything yet.
	for node, p := range l.peers {
		delete(l.peers, node)
		l.answerAgain(l.peer(p.id, p.origin), true)
	}
	l.awaited = map[uint32]uint64{}
	l.rollBefore = time.Now().Add(rollCallTimeout)
	for _, n := range l.cfg.LiveNodes() {
		l.awaited[n.Origin.Node] = n.Origin.Incarnation
		l.out.send(n.ID, &wire.RollCall{Queue: l.cfg.Queue, Session: l.cfg.Session})
	}
	l.wakeMover()
}

// checkRollCall ends the roll call when everybody alive has answered.
func (l *Leader) checkRollCall() {
	if l.phase != phaseRoll {
		return
	}
	left := time.Until(l.rollBefore)
	if len(l.awaited) > 0 && left > 0 {
		l.wake(left)
		return
	}
	if len(l.awaited) > 0 {
		l.cfg.Logger.Warn("roll call incomplete", "queue", l.cfg.Queue, "missing", len(l.awaited))
	}
	l.awaited = nil
	l.phase = phaseActive
}

// onResync replaces what is known of a node's consumers and holds. Messages
// that the node should hold and does not were lost on the way to it; they are
// ready again under the same attempt number, marked as possibly delivered.
func (l *Leader) onResync(from string, m *wire.Resync) {
	if m.Session == l.cfg.Session {
		delete(l.awaited, m.Origin.Node)
	}
	p := l.peer(from, m.Origin)
	if p == nil {
		return
	}
	says := make(map[queue.MessageID]wire.Hold, len(m.Held))
	for _, h := range m.Held {
		says[h.ID] = h
	}
	l.dropUnclaimed(m.Origin.Node, says)
	l.claim(m.Origin.Node, says)
	l.dropRequests(m.Origin.Node) // they are sent again behind this
	had := l.consumers.len() > 0
	l.consumers.removeNode(m.Origin.Node)
	for _, c := range m.Consumers {
		l.attach(p, c)
	}
	l.checkUnused(had)
	l.answerAgain(p, true)
}

func (l *Leader) dropUnclaimed(node uint32, says map[queue.MessageID]wire.Hold) {
	for id, h := range l.held {
		if h.node != node || h.named {
			continue
		}
		if s, ok := says[id]; ok && s.Attempt == h.attempt {
			continue
		}
		l.release(h)
		l.limits.heldBytes -= int64(h.bytes)
		delete(l.held, id)
		l.maybeDelivered = max(l.maybeDelivered, id)
		l.replica.View(func(f *fsm.Machine) {
			if msg, ok := f.Queue().Get(id); ok {
				l.ready.putBack(msg)
			}
		})
	}
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
			l.held[id] = hold{node: node, no: s.No, attempt: s.Attempt, bytes: msg.BodyBytes}
			l.limits.heldBytes += int64(msg.BodyBytes)
		}
	})
}
