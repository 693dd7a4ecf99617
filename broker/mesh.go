package broker

import (
	"github.com/warrenmq/warren/catalog"
	"github.com/warrenmq/warren/fsm"
	"github.com/warrenmq/warren/queue/wire"
)

// send passes a message to a node; local ones stay Go values.
func (b *Broker) send(node string, m wire.Message) bool {
	if node == b.cfg.Node {
		return b.deliverLocal(m)
	}
	return b.cfg.Send(node, wire.Encode(nil, m)) == nil
}

// room tells whether a leader's deliveries to a node are not too many for its link now.
func (b *Broker) room(node string) bool {
	return node == b.cfg.Node || b.cfg.Room == nil || b.cfg.Room(node)
}

// deliverLocal passes a message within the node. false: it is for a leader,
// and this node does not lead.
func (b *Broker) deliverLocal(m wire.Message) bool {
	if toOrigin(m) {
		b.toStream(b.cfg.Node, m)
		return true
	}
	l := b.leaderNow(m)
	if l == nil {
		return b.queues.wait(b.cfg.Node, m)
	}
	l.Receive(b.cfg.Node, m)
	return true
}

// Receive takes a message from another node; it is the mesh's handler.
func (b *Broker) Receive(from string, payload []byte) {
	m, err := wire.Decode(payload)
	if err != nil {
		b.cfg.Logger.Error("undecodable message from peer", "node", from, "err", err)
		return
	}
	if toOrigin(m) {
		b.toStream(from, m)
		return
	}
	if l := b.leaderNow(m); l != nil {
		l.Receive(from, m)
		return
	}
	switch m.(type) {
	case *wire.TransferAnswer, *wire.TargetClosed, *wire.TargetForgotten:
		return // said again to the next leader
	}
	if b.queues.wait(from, m) {
		return
	}
	b.notLeader(from, m.QueueID())
}

func (b *Broker) notLeader(to string, queue uint64) {
	b.send(to, &wire.NotLeader{Queue: queue, Hint: b.queues.leaderOf(queue)})
}

// toOrigin tells messages for a node's stream from those for a leader.
func toOrigin(m wire.Message) bool {
	switch m.(type) {
	case *wire.Answer, *wire.Deliver, *wire.Attached, *wire.Detached, *wire.Got, *wire.Status, *wire.TxTold, *wire.RollCall, *wire.NotLeader:
		return true
	}
	return false
}

func (b *Broker) toStream(from string, m wire.Message) {
	switch m := m.(type) {
	case *wire.RollCall:
		b.rollCall(from, m)
		return
	case *wire.NotLeader:
		b.mu.Lock()
		if known := b.leaders[m.Queue]; known == from || known == "" {
			// A leader that ends with its queue says so too, and nobody asks for that one again.
			if delete(b.leaders, m.Queue); m.Hint != "" && b.cat.View().QueueByID(m.Queue) != nil {
				b.leaders[m.Queue] = m.Hint
			}
		}
		b.mu.Unlock()
	}
	s := b.streamByID(m.QueueID())
	if s == nil {
		return
	}
	switch m := m.(type) {
	case *wire.Answer:
		s.answer(m)
	case *wire.Deliver:
		s.deliver(from, m)
	case *wire.Attached:
		s.attachedMsg(m)
	case *wire.Detached:
		s.detachedMsg(m)
	case *wire.Got:
		s.got(from, m)
	case *wire.Status:
		s.replied(m.Req, m)
	case *wire.TxTold:
		s.replied(m.Req, m)
	case *wire.NotLeader:
		s.notLeader(from, m.Hint)
	}
}

// rollCall answers a new leader for this node, with or without a stream.
func (b *Broker) rollCall(from string, m *wire.RollCall) {
	b.mu.Lock()
	if b.cat.View().QueueByID(m.Queue) != nil {
		b.leaders[m.Queue] = from
	}
	s := b.streams[m.Queue]
	b.mu.Unlock()
	if s != nil {
		s.rollCall(from, m.Session)
		return
	}
	b.send(from, &wire.Resync{Queue: m.Queue, Session: m.Session, Origin: b.origin()})
}

// fromLeader sends a leader's message; what cannot be sent is made good by
// another roll call.
func (b *Broker) fromLeader(session uint64, node string, m wire.Message) {
	if b.send(node, m) {
		return
	}
	b.mu.Lock()
	b.lost[lostKey{node, m.QueueID()}] = session
	b.mu.Unlock()
	b.poke()
}

// PeerUp tells that the link to a node was made anew: what was on its way there, to
// a leader or from one, may be lost.
func (b *Broker) PeerUp(node string) {
	b.queues.eachLeader(func(l leaderHandle) { l.NodeUp(node) })
	for _, s := range b.allStreams() {
		s.peerUp(node)
	}
}

// NodeDead tells that a node's process is confirmed dead: its clients'
// deliveries go back to their queues. If another process of the node runs already,
// they go back when that one registers. ended tells that the process is gone, rather
// than not heard.
func (b *Broker) NodeDead(node string, restarted, ended bool) {
	n := b.cat.View().Node(catalog.NodeID(node))
	if n == nil {
		return
	}
	if ended && !restarted {
		b.mu.Lock()
		b.ended[n.Number] = max(b.ended[n.Number], n.Incarnation)
		b.mu.Unlock()
	}
	if !restarted {
		b.queues.eachLeader(func(l leaderHandle) { l.NodeGone(n.Number, n.Incarnation) })
	}
	for _, s := range b.allStreams() {
		s.leaderDied(node)
	}
}

// NodeAlive tells that a node is heard after its process was confirmed dead: that one, which had not ended, or another one, which may have
// registered before this node said so of the former.
func (b *Broker) NodeAlive(node string) {
	if n := b.cat.View().Node(catalog.NodeID(node)); n != nil {
		b.mu.Lock()
		delete(b.ended, n.Number)
		b.mu.Unlock()
	}
}

// processGone tells whether the process of a node's incarnation has certainly ended:
// its port refused connections, or a later one has registered.
func (b *Broker) processGone(o fsm.Origin) bool {
	b.mu.Lock()
	gone := b.ended[o.Node] >= o.Incarnation
	b.mu.Unlock()
	for n := range b.cat.View().Nodes() {
		gone = gone || n.Number == o.Node && n.Incarnation > o.Incarnation
	}
	return gone
}
