package leader

import (
	"slices"

	"github.com/warrenmq/warren/queue/wire"
)

type consumerKey struct {
	node uint32
	no   wire.ConsumerNo
}

// consumer is one consumer of the queue, on whatever node its client is.
type consumer struct {
	wire.Consumer
	no      wire.ConsumerNo
	node    uint32
	peer    string
	unacked uint32
	window  window
}

// window is the room a consumer's node has for deliveries not yet written to
// the client.
type window struct{ messages, bytes int64 }

func (c *consumer) credit() bool {
	return (c.Prefetch == 0 || c.unacked < c.Prefetch) && c.window.messages > 0 && c.window.bytes > 0
}

// consumers holds them by descending priority; equal ones are served in turn.
type consumers struct {
	list  []*consumer
	byKey map[consumerKey]*consumer
	turn  int
	// withCredit counts those that can take a message now.
	withCredit int
}

func (cs *consumers) len() int        { return len(cs.list) }
func (cs *consumers) anyCredit() bool { return cs.withCredit > 0 }

func (cs *consumers) find(node uint32, no wire.ConsumerNo) *consumer {
	return cs.byKey[consumerKey{node, no}]
}

func (cs *consumers) add(c *consumer) {
	i, _ := slices.BinarySearchFunc(cs.list, c, func(a, b *consumer) int {
		if a.Priority >= b.Priority {
			return -1
		}
		return 1
	})
	cs.list = slices.Insert(cs.list, i, c)
	cs.byKey[consumerKey{c.node, c.no}] = c
	cs.recount()
}

func (cs *consumers) remove(c *consumer) {
	delete(cs.byKey, consumerKey{c.node, c.no})
	cs.list = slices.DeleteFunc(cs.list, func(x *consumer) bool { return x == c })
	cs.recount()
}

func (cs *consumers) removeNode(node uint32) {
	cs.list = slices.DeleteFunc(cs.list, func(c *consumer) bool {
		if c.node == node {
			delete(cs.byKey, consumerKey{c.node, c.no})
			return true
		}
		return false
	})
	cs.recount()
}

func (cs *consumers) recount() {
	cs.withCredit = 0
	for _, c := range cs.list {
		if c.credit() {
			cs.withCredit++
		}
	}
}

// changed is called after a consumer's credit may have changed.
func (cs *consumers) changed(*consumer) { cs.recount() }

// spent is called after a delivery to c.
func (cs *consumers) spent(c *consumer) {
	if !c.credit() {
		cs.recount()
	}
}

// next returns the consumer whose turn it is: of those with credit, one of the
// highest priority, in turn. There is one, as anyCredit said.
func (cs *consumers) next() *consumer {
	n := len(cs.list)
	best := -1
	for k := range n {
		i := (cs.turn + k) % n
		if c := cs.list[i]; c.credit() && (best < 0 || c.Priority > cs.list[best].Priority) {
			best = i
		}
	}
	cs.turn = best + 1
	return cs.list[best]
}

func (cs *consumers) exclusive() bool {
	return len(cs.list) == 1 && cs.list[0].Exclusive
}

func (l *Leader) onAttach(from string, m *wire.Attach) {
	p := l.peer(from, m.Origin)
	if p == nil {
		return
	}
	reply := &wire.Attached{Queue: l.cfg.Queue, No: m.Consumer.No}
	switch {
	case l.closing.wanted:
		l.out.send(from, &wire.Detached{Queue: l.cfg.Queue, No: m.Consumer.No, Gone: true})
		return
	case l.consumers.find(m.Origin.Node, m.Consumer.No) != nil:
		// A repeat after a lost answer.
	case l.consumers.exclusive(), m.Consumer.Exclusive && l.consumers.len() > 0:
		reply.Refusal = "exclusive"
	default:
		l.attach(p, m.Consumer)
	}
	l.out.send(from, reply)
}

func (l *Leader) attach(p *peer, wc wire.Consumer) *consumer {
	c := &consumer{Consumer: wc, no: wc.No, node: p.origin.Node, peer: p.id}
	c.window = window{wc.WindowMessages, wc.WindowBytes}
	for _, h := range l.held {
		if h.node == c.node && h.no == c.no && !h.named {
			c.unacked++
		}
	}
	l.consumers.add(c)
	return c
}

func (l *Leader) onDetach(from string, m *wire.Detach) {
	if c := l.consumers.find(m.Origin.Node, m.No); c != nil {
		l.consumers.remove(c)
		l.use()
		l.checkUnused(true)
	}
	l.out.send(from, &wire.Detached{Queue: l.cfg.Queue, No: m.No})
}

func (l *Leader) onWindow(m *wire.Window) {
	if c := l.consumers.find(m.Origin.Node, m.No); c != nil {
		c.window.messages += m.Messages
		c.window.bytes += m.Bytes
		l.consumers.changed(c)
	}
}

// checkUnused reports the loss of the last consumer. Before the roll call is
// complete nobody counts as absent.
func (l *Leader) checkUnused(had bool) {
	if had && l.phase == phaseActive && l.consumers.len() == 0 && l.cfg.Unused != nil {
		l.cfg.Unused()
	}
}
