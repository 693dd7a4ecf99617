package broker

import (
	"github.com/warrenmq/warren/catalog"
	"github.com/warrenmq/warren/fsm"
	"github.com/warrenmq/warren/stats"
)

// QueueRow has the figures of a queue that this node leads, read without waking its leader.
type QueueRow struct {
	ID uint64
	// Session orders what several nodes say that believe they lead: the highest counts.
	Session                  uint64
	Ready, Unacked, Delayed  uint64
	Bytes, UnackedBytes      uint64 // of bodies; Bytes are those of all messages
	Consumers                uint64
	Outbox, OutboxBytes      uint64
	Parked                   uint64
	Transferred              uint64
	Duplicates, DedupIDs     uint64
	DedupForgotten           uint64
	ActiveNode, ActiveNumber uint64 // of the single active consumer's client and the consumer there; 0: there is none
	blocked                  uint64 // ms in which there were consumers and none could take a message
	vhost                    string
	hidden                   bool // the queue of a delayed exchange
}

// Rows reads the rows of all queues led here, in no order. It waits for nothing but an entry that is just being applied. A row is yield's for
// the time of the call.
func (b *Broker) Rows(yield func(r *QueueRow) bool) {
	view := b.cat.View()
	var r QueueRow
	for _, h := range b.queues.all() {
		ok := false
		if r, ok = h.row(view); ok && !yield(&r) {
			return
		}
	}
}

func (h *hosted) row(view *catalog.View) (r QueueRow, ok bool) {
	l := h.replica.Leader()
	if l == nil {
		return r, false
	}
	q := view.QueueByID(h.id)
	if q == nil || q.State == catalog.Closing {
		return r, false
	}
	c := l.Counts()
	r = QueueRow{
		ID: h.id, Session: l.Session(), Unacked: uint64(c.Unacked), UnackedBytes: uint64(max(0, c.UnackedBytes)), Consumers: uint64(c.Consumers),
		blocked: uint64(l.Blocked().Milliseconds()), vhost: q.Vhost, hidden: q.DelayOf != "",
	}
	h.replica.View(func(m *fsm.Machine) {
		queue, outbox, counters := m.Queue(), m.Outbox(), m.Counters()
		r.Delayed, r.Bytes = uint64(c.Delayed), uint64(max(0, queue.Bytes()-c.AwayBytes))
		r.Ready = uint64(max(0, queue.Len()-c.Unacked-c.Delayed-c.Away))
		if n := outbox.Len(); n > 0 {
			r.Outbox, r.OutboxBytes = uint64(n), uint64(outbox.Bytes())
			r.Parked = uint64(outbox.Parked(fsm.ParkUnrouted) + outbox.Parked(fsm.ParkCycle))
		}
		r.Transferred, r.Duplicates, r.DedupForgotten, r.DedupIDs = counters.Transferred, counters.Duplicates, counters.Forgotten, uint64(m.Dedup().Len())
		if t := m.Tenure(); t.Origin.Node != 0 {
			r.ActiveNode, r.ActiveNumber = uint64(t.Origin.Node), t.Consumer
		}
	})
	return r, true
}

// Sample is a source of samples: what the clients of this node do, by node, virtual host, exchange, queue and channel, and the lengths of the
// queues that it leads.
func (b *Broker) Sample(yield func(stats.Key, *stats.Set)) {
	view := b.cat.View()
	b.traffics.forget(view)
	b.exchanges.forget(view)
	vhosts := map[string]*stats.Set{}
	of := func(name string) *stats.Set {
		s := vhosts[name]
		if s == nil {
			s = new(stats.Set)
			vhosts[name] = s
		}
		return s
	}
	var s stats.Set
	for r := range b.Rows {
		s = stats.Set{stats.Ready: r.Ready, stats.Unacked: r.Unacked}
		if s != (stats.Set{}) {
			of(r.vhost).Add(&s)
		}
		s[stats.Blocked] = r.blocked
		if !r.hidden {
			yield(stats.Key{Kind: stats.Led, ID: r.ID}, &s)
		}
	}
	b.traffics.read(of)
	node := b.nodeSet()
	for name, s := range vhosts {
		node[stats.Ready] += s[stats.Ready]
		node[stats.Unacked] += s[stats.Unacked]
		yield(stats.Key{Kind: stats.VHost, Name: name}, s)
	}
	yield(stats.Key{Kind: stats.Node}, &node)
	b.exchanges.read(yield)
	b.UsedQueues(func(id uint64, s *stats.Set) { yield(stats.Key{Kind: stats.Queue, ID: id}, s) })
	for _, ch := range b.channels() {
		var s stats.Set
		ch.counts.read(&s)
		yield(stats.Key{Kind: stats.Channel, ID: ch.id}, &s)
	}
}

// UsedQueues calls yield for each queue that clients of this node have used.
func (b *Broker) UsedQueues(yield func(id uint64, s *stats.Set)) {
	for _, st := range b.allStreams() {
		st.mu.Lock()
		u, gone := st.used, st.gone
		st.mu.Unlock()
		if gone || u == (used{}) {
			continue
		}
		var s stats.Set
		u.read(&s)
		yield(st.id, &s)
	}
}

func (b *Broker) channels() (list []*Channel) {
	b.mu.Lock()
	conns := make([]*Conn, 0, len(b.conns))
	for _, c := range b.conns {
		conns = append(conns, c)
	}
	b.mu.Unlock()
	for _, c := range conns {
		c.mu.Lock()
		for ch := range c.channels {
			list = append(list, ch)
		}
		c.mu.Unlock()
	}
	return list
}

// nodeSet is the node's traffic.
func (b *Broker) nodeSet() (s stats.Set) {
	t := b.Traffic()
	t.read(&s)
	return s
}

// read adds the traffic to a set.
func (t *Traffic) read(s *stats.Set) {
	s[stats.Publish] += t.Received
	s[stats.Confirm] += t.Confirmed
	s[stats.ReturnUnroutable] += t.UnroutableReturned
	s[stats.DropUnroutable] += t.UnroutableDropped
	for _, x := range t.ByType {
		s[stats.Deliver] += x.DeliveredManual
		s[stats.DeliverNoAck] += x.DeliveredAuto
		s[stats.Get] += x.GotManual
		s[stats.GetNoAck] += x.GotAuto
		s[stats.GetEmpty] += x.GetEmpty
		s[stats.Ack] += x.Acked
		s[stats.Redeliver] += x.Redelivered
	}
}

// read adds the counters of each virtual host.
func (t *traffics) read(of func(vhost string) *stats.Set) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for k, c := range t.live {
		var sum Traffic
		sum.add(c)
		sum.read(of(k.name))
	}
}

func (e *exchanges) read(yield func(stats.Key, *stats.Set)) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for k, c := range e.live {
		s := stats.Set{stats.PublishIn: c.in.Load(), stats.PublishOut: c.out.Load()}
		yield(ExchangeKey(k.vhost, k.name), &s)
	}
}

// ExchangeKey is the key of an exchange's samples.
func ExchangeKey(vhost, name string) stats.Key {
	return stats.Key{Kind: stats.Exchange, Name: vhost + "\x00" + name}
}

// NodeCounters tell what the clients of this node have done, VhostCounters in which virtual host, ExchangeCounters what they have published
// where.
func (b *Broker) NodeCounters() stats.Set { return b.nodeSet() }

// VhostCounters is documented with NodeCounters.
func (b *Broker) VhostCounters() map[string]*stats.Set {
	sets := map[string]*stats.Set{}
	b.traffics.read(func(name string) *stats.Set {
		if sets[name] == nil {
			sets[name] = new(stats.Set)
		}
		return sets[name]
	})
	return sets
}

// ExchangeCounters is documented with NodeCounters.
func (b *Broker) ExchangeCounters(yield func(stats.Key, *stats.Set)) { b.exchanges.read(yield) }
