package leader

import (
	"slices"

	"github.com/warrenmq/warren/fsm"
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

	// Kept by consumers: able is what credit said last, queued tells that it is in
	// its level's line.
	able, queued, removed bool
}

// window is the room a consumer's node has for deliveries not yet written to
// the client.
type window struct{ messages, bytes int64 }

func (c *consumer) credit() bool {
	return (c.Prefetch == 0 || c.unacked < c.Prefetch) && c.window.messages > 0 && c.window.bytes > 0
}

// consumers finds whose turn it is in time that does not depend on their number:
// those of a priority that can take a message stand in one line.
type consumers struct {
	byKey map[consumerKey]*consumer
	// levels by descending priority. A line may also hold some that lost their
	// credit or were removed since; they leave it at its head.
	levels    []*level
	able      int         // consumers with credit
	aside     []*consumer // with credit, on nodes that take nothing in this step
	exclusive int         // consumers that are exclusive

	// Of a queue with a single active consumer: the one, and all in the order in which
	// they follow each other.
	single bool
	active *consumer
	line   []*consumer
}

type level struct {
	priority int32
	line     []*consumer
	head     int
}

func (v *level) push(c *consumer) {
	if v.head > 32 && v.head > len(v.line)/2 {
		n := copy(v.line, v.line[v.head:])
		clear(v.line[n:])
		v.line, v.head = v.line[:n], 0
	}
	v.line = append(v.line, c)
	c.queued = true
}

func (v *level) pop() *consumer {
	if v.head == len(v.line) {
		v.line, v.head = v.line[:0], 0
		return nil
	}
	c := v.line[v.head]
	v.line[v.head] = nil
	v.head++
	c.queued = false
	return c
}

func (cs *consumers) init()           { *cs = consumers{byKey: map[consumerKey]*consumer{}, single: cs.single} }
func (cs *consumers) len() int        { return len(cs.byKey) }
func (cs *consumers) anyCredit() bool { return cs.able > 0 }

func (cs *consumers) find(node uint32, no wire.ConsumerNo) *consumer {
	return cs.byKey[consumerKey{node, no}]
}

func (cs *consumers) add(c *consumer) {
	cs.byKey[consumerKey{c.node, c.no}] = c
	if c.Exclusive {
		cs.exclusive++
	}
	cs.enter(c)
	cs.changed(c)
}

func (cs *consumers) remove(c *consumer) {
	delete(cs.byKey, consumerKey{c.node, c.no})
	if c.Exclusive {
		cs.exclusive--
	}
	c.removed = true
	cs.leave(c)
	cs.changed(c)
}

func (cs *consumers) removeNode(node uint32) {
	for _, c := range cs.byKey {
		if c.node == node {
			cs.remove(c)
		}
	}
}

// changed is called after a consumer's credit may have changed.
func (cs *consumers) changed(c *consumer) {
	able := !c.removed && c.credit() && (!cs.single || cs.active == c)
	if able != c.able {
		c.able = able
		if able {
			cs.able++
		} else {
			cs.able--
		}
	}
	if able && !c.queued {
		cs.level(c.Priority).push(c)
	}
}

func (cs *consumers) level(priority int32) *level {
	i, ok := slices.BinarySearchFunc(cs.levels, priority, func(v *level, p int32) int {
		switch {
		case v.priority > p:
			return -1
		case v.priority < p:
			return 1
		}
		return 0
	})
	if !ok {
		cs.levels = slices.Insert(cs.levels, i, &level{priority: priority})
	}
	return cs.levels[i]
}

// next returns the consumer whose turn it is: of those with credit on a node that takes
// a message, one of the highest priority, in turn; nil if there is none. changed must be called
// after the delivery, and restore when no more are asked for.
func (cs *consumers) next(takes func(node string) bool) *consumer {
	for i := 0; i < len(cs.levels); {
		v := cs.levels[i]
		c := v.pop()
		switch {
		case c == nil && len(cs.levels) > levelsMax:
			cs.levels = slices.Delete(cs.levels, i, i+1)
		case c == nil:
			i++
		case !c.able:
		case takes(c.peer):
			return c
		default:
			cs.aside = append(cs.aside, c)
		}
	}
	return nil
}

// restore puts those that were passed over back into their lines.
func (cs *consumers) restore() {
	for i, c := range cs.aside {
		cs.changed(c)
		cs.aside[i] = nil
	}
	cs.aside = cs.aside[:0]
}

// free is how many messages c can take now.
func (c *consumer) free() int64 {
	if !c.credit() {
		return 0
	}
	if c.Prefetch == 0 {
		return c.window.messages
	}
	return min(int64(c.Prefetch-c.unacked), c.window.messages)
}

// free is how many of n messages, length bytes in all, the consumers certainly take now.
func (l *Leader) free(n, length int64) (free int64) {
	if l.consumers.single {
		if c := l.coming(); c != nil && c.window.bytes >= length {
			return min(n, c.free())
		}
		return 0
	}
	if !l.consumers.anyCredit() {
		return 0
	}
	for _, v := range l.consumers.levels {
		for _, c := range v.line[v.head:] {
			if free >= n {
				return n
			}
			if c.able && c.window.bytes >= length {
				free += c.free()
			}
		}
	}
	return min(n, free)
}

// takesAtOnce tells whether a message proposed now finds a consumer with credit, behind
// everything that is ready or on its way in.
func (l *Leader) takesAtOnce() bool {
	if l.limits.set.Paused {
		return false
	}
	n, _ := l.readyCount()
	n += l.limits.expected + 1
	return l.free(n, 0) >= n
}

// levelsMax bounds the empty levels that are kept.
const levelsMax = 16

// refusedExclusive refuses a consumer that cannot be there with others, or with one that has the queue for itself.
const refusedExclusive = "exclusive"

func (l *Leader) onAttach(from string, m *wire.Attach) {
	p := l.heard(from, m.Origin)
	if p == nil {
		return
	}
	known := l.consumers.find(m.Origin.Node, m.Consumer.No)
	if known == nil && !l.closing.begun() && l.attachWaits(&m.Consumer) {
		l.dropAttach(m.Origin.Node, m.Consumer.No)
		l.attaches = append(l.attaches, parkedAttach{from, m})
		return
	}
	delete(p.attaching, m.Consumer.No)
	reply := &wire.Attached{Queue: l.cfg.Queue, No: m.Consumer.No}
	switch {
	case l.closing.begun():
		l.afterEnd(func() { l.out.send(from, &wire.Detached{Queue: l.cfg.Queue, No: m.Consumer.No, Gone: true}) })
		return
	case known != nil:
		// A repeat after a lost answer, or with another prefetch. Its window is what it was.
		known.Prefetch = m.Consumer.Prefetch
		l.consumers.changed(known)
		reply.Turn = known.Turn
	case l.consumers.exclusive > 0, m.Consumer.Exclusive && l.consumers.len() > 0:
		reply.Refusal = refusedExclusive
	default:
		c := m.Consumer
		l.turn(&c)
		reply.Turn = c.Turn
		if !l.attach(p, c, 0) {
			l.pending.applied = append(l.pending.applied, func() { l.out.send(from, reply) })
			return
		}
	}
	l.out.send(from, reply)
}

// attach adds a consumer that holds some deliveries already. recorded is false if its
// being there must be committed first: the next entry does.
func (l *Leader) attach(p *peer, wc wire.Consumer, unacked uint32) (recorded bool) {
	c := &consumer{Consumer: wc, no: wc.No, node: p.origin.Node, peer: p.id, unacked: unacked}
	c.window = window{wc.WindowMessages, wc.WindowBytes}
	l.consumers.add(c)
	if recorded = !l.cfg.AutoDelete || l.everConsumed(); !recorded {
		// The next leader must know, should this node die with the last consumer.
		l.pending.add(fsm.Consumed{}, false)
	}
	return recorded
}

func (l *Leader) onDetach(from string, m *wire.Detach) {
	p := l.heard(from, m.Origin)
	if p == nil {
		return
	}
	had := l.promised(p)
	delete(p.attaching, m.No)
	l.dropAttach(m.Origin.Node, m.No)
	if c := l.consumers.find(m.Origin.Node, m.No); c != nil {
		had = true
		if m.Returns && l.consumers.single && c.unacked > 0 {
			l.returnsOf(m.Origin.Node, m.No)
		}
		l.consumers.remove(c)
		l.use()
	}
	l.checkUnused(had)
	// Whoever hears that it is unused may take it out of the catalog.
	l.afterEnd(func() {
		l.out.send(from, &wire.Detached{Queue: l.cfg.Queue, No: m.No, Unused: l.cfg.AutoDelete && l.closing.closed})
	})
}

func (l *Leader) onWindow(from string, m *wire.Window) {
	if l.heard(from, m.Origin) == nil {
		return
	}
	if c := l.consumers.find(m.Origin.Node, m.No); c != nil {
		c.window.messages += m.Messages
		c.window.bytes += m.Bytes
		l.consumers.changed(c)
	}
}

// checkUnused ends a queue that has lost its last consumer. Before the roll call is
// complete nobody counts as absent.
func (l *Leader) checkUnused(had bool) {
	if had && l.unused() {
		l.endItself()
	}
}

// unused tells whether an auto-delete queue certainly has no consumer, and none that was told to have it.
func (l *Leader) unused() bool {
	if !l.cfg.AutoDelete || l.phase != phaseActive || len(l.missing) > 0 || l.consumers.len() > 0 {
		return false
	}
	for _, p := range l.peers {
		if len(p.attaching) > 0 {
			return false
		}
	}
	return true
}

// promised tells whether a queue that had a consumer was kept for an Attach of p that has not come.
func (l *Leader) promised(p *peer) bool { return p != nil && len(p.attaching) > 0 && l.everConsumed() }
