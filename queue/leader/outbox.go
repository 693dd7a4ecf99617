package leader

import (
	"time"

	"github.com/warrenmq/warren/queue/wire"
)

// Bounds of what goes out.
const (
	deliverBytesMax = 256 << 10 // one Deliver message
	// stepBytesMax is how much of messages a step hands to one node, exceeded by one message: what more there is waits for the next step, when this has
	// gone or the node has taken its room back.
	stepBytesMax = 2 << 20
	// roomRetry is when a node is looked at again whose link has no room, the first time and at most.
	roomRetry, roomRetryMax = 2 * time.Millisecond, 64 * time.Millisecond
)

// outbox collects a step's messages and sends them at its end, deliveries of
// one node together.
type outbox struct {
	list  []outgoing
	nodes map[string]*outNode
	items int // in the largest Deliver of the step before, about
}

// outNode is what a step does for one node.
type outNode struct {
	deliver *wire.Deliver // takes more, nil: none does
	bytes   int           // of it
	handed  int           // of messages, in this step
	asked   bool          // whether there is room, in this step
	pause   time.Duration // until it is asked again: there was none
}

type outgoing struct {
	to string
	m  wire.Message
}

func (o *outbox) init() { o.nodes = map[string]*outNode{} }

func (o *outbox) node(id string) *outNode {
	n := o.nodes[id]
	if n == nil {
		n = &outNode{}
		o.nodes[id] = n
	}
	return n
}

// send queues m behind everything queued for that node before.
func (o *outbox) send(to string, m wire.Message) {
	if n := o.nodes[to]; n != nil {
		n.deliver = nil // later deliveries must not overtake m
	}
	o.list = append(o.list, outgoing{to, m})
}

func (o *outbox) deliver(to string, queue, session, resync uint64, item wire.Item) {
	n := o.node(to)
	if n.deliver == nil || n.bytes > deliverBytesMax {
		n.deliver = &wire.Deliver{Queue: queue, Session: session, Resync: resync, Items: make([]wire.Item, 0, max(o.items, 1))}
		n.bytes = 0
		o.list = append(o.list, outgoing{to, n.deliver})
	}
	n.deliver.Items = append(n.deliver.Items, item)
	n.bytes += len(item.Message) + 32
	n.handed += len(item.Message) + 32
}

// fewer tells the gets served in this step that n of what they counted as remaining has expired since: a message with a time to live of 0
// is not there for a get, and is not counted either.
func (o *outbox) fewer(n int) {
	if n <= 0 {
		return
	}
	for _, m := range o.list {
		if g, ok := m.m.(*wire.Got); ok {
			g.Remaining -= min(g.Remaining, uint32(n))
		}
	}
}

func (o *outbox) flush(send func(string, wire.Message)) {
	items := 0
	for i, m := range o.list {
		if d, ok := m.m.(*wire.Deliver); ok {
			items = max(items, len(d.Items))
		}
		send(m.to, m.m)
		o.list[i] = outgoing{}
	}
	o.items = items
	o.list = o.list[:0]
	for _, n := range o.nodes {
		*n = outNode{pause: n.pause}
	}
}

// takes tells whether a node can be handed a message now. What its link does not take is lost, and made good by a roll call that sends
// all that is on its way there once more, flagged: so it is asked before. If it can not, a step follows that looks again.
func (l *Leader) takes(node string) bool {
	n := l.out.node(node)
	if !n.asked {
		n.asked = true
		if l.cfg.Room == nil || l.cfg.Room(node) {
			n.pause = 0
		} else {
			n.pause = min(max(2*n.pause, roomRetry), roomRetryMax)
		}
	}
	switch {
	case n.pause > 0:
		l.wake(n.pause)
	case n.handed >= stepBytesMax:
		l.wake(0)
	default:
		return true
	}
	l.heldBack = true
	return false
}
