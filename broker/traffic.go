package broker

import (
	"sync/atomic"

	"github.com/warrenmq/warren/catalog"
	"github.com/warrenmq/warren/fsm"
	"github.com/warrenmq/warren/stats"
)

// Traffic counts the messages that the clients of this node sent and got since the process
// began.
type Traffic struct {
	Received        uint64 // published and let in
	ReceivedConfirm uint64 // of these, on channels in confirm mode
	Routed          uint64 // copies for queues
	Confirmed       uint64 // acks to publishers
	// UnroutableReturned were mandatory, UnroutableDropped were not.
	UnroutableReturned, UnroutableDropped uint64
	ByType                                [queueTypes]TypeTraffic
}

// TypeTraffic is the part that belongs to queues of one type.
type TypeTraffic struct {
	DeliveredManual, DeliveredAuto uint64 // to consumers, with acks and without
	GotManual, GotAuto, GetEmpty   uint64 // by basic.get
	Redelivered                    uint64
	Acked                          uint64
}

// traffic is the Traffic of one virtual host in the making: added to once for a burst of messages.
type traffic struct {
	received, receivedConfirm, routed, confirmed, returned, dropped atomic.Uint64

	byType [queueTypes]typeTraffic
}

type typeTraffic struct {
	deliveredManual, deliveredAuto, gotManual, gotAuto, getEmpty, redelivered, acked atomic.Uint64
}

// QueueChurn counts what happened to queues.
type QueueChurn struct {
	Declared uint64 // declarations by clients of this node that succeeded
	Created  uint64 // of these, new queues
	Deleted  uint64 // queues led here that have ended
}

// churn is QueueChurn in the making.
type churn struct{ declared, created, deleted atomic.Uint64 }

// arrivals are fsm.Arrivals of all queues together.
type arrivals struct{ taken, duplicates, forgotten atomic.Uint64 }

// add has the form of leader.Config.Arrived.
func (a *arrivals) add(came fsm.Arrivals) {
	a.taken.Add(came.Taken)
	if came.Duplicates > 0 {
		a.duplicates.Add(came.Duplicates)
	}
	if came.Forgotten > 0 {
		a.forgotten.Add(came.Forgotten)
	}
}

// Arrivals are what the leaders on this node have taken since the process began. An entry is counted as for [Broker.DeadTotals].
func (b *Broker) Arrivals() fsm.Arrivals {
	a := &b.arrived
	return fsm.Arrivals{Taken: a.taken.Load(), Duplicates: a.duplicates.Load(), Forgotten: a.forgotten.Load()}
}

// Traffic reads the counters.
func (b *Broker) Traffic() Traffic {
	return b.traffics.sum()
}

// add adds what one counts.
func (t *Traffic) add(c *traffic) {
	t.Received += c.received.Load()
	t.ReceivedConfirm += c.receivedConfirm.Load()
	t.Routed += c.routed.Load()
	t.Confirmed += c.confirmed.Load()
	t.UnroutableReturned += c.returned.Load()
	t.UnroutableDropped += c.dropped.Load()
	for i := range c.byType {
		x, to := &c.byType[i], &t.ByType[i]
		to.DeliveredManual += x.deliveredManual.Load()
		to.DeliveredAuto += x.deliveredAuto.Load()
		to.GotManual += x.gotManual.Load()
		to.GotAuto += x.gotAuto.Load()
		to.GetEmpty += x.getEmpty.Load()
		to.Redelivered += x.redelivered.Load()
		to.Acked += x.acked.Load()
	}
}

// QueueChurn reads the counters.
func (b *Broker) QueueChurn() QueueChurn {
	return QueueChurn{b.churn.declared.Load(), b.churn.created.Load(), b.churn.deleted.Load()}
}

// tally is what one channel has counted since it was flushed last: plain numbers of the
// one goroutine that publishes and settles.
type tally struct {
	received, receivedConfirm, routed, confirmed, returned, dropped uint64
	// in and out are messages into exchange and copies out of it, the one that was published to last.
	in, out  uint64
	exchange *exchangeCounts

	acked [queueTypes]uint64
}

// unconfirmedTag marks tags by which a gateway waits for a verdict and confirms nothing.
const unconfirmedTag = 1 << 63

// published counts one message that was let in, for so many queues.
func (t *tally) published(p *Publish, routed bool, queues int) {
	t.received++
	t.in++
	confirms := p.Tag != 0 && p.Tag&unconfirmedTag == 0
	if confirms {
		t.receivedConfirm++
	}
	if routed {
		t.routed += uint64(queues)
		t.out += uint64(queues)
		return
	}
	if confirms {
		t.confirmed++
	}
	if p.Mandatory {
		t.returned++
	} else {
		t.dropped++
	}
}

// settled counts the acks of a settlement.
func (t *tally) settled(kind fsm.SettleKind, ds []*Delivery) {
	if kind != fsm.Ack {
		return
	}
	for _, d := range ds {
		t.acked[d.queue.kind]++
	}
}

// flush adds the tally to the counters of the virtual host, the channel and the exchange.
func (t *tally) flush(c *traffic, ch *counts) {
	if *t == (tally{exchange: t.exchange}) {
		return
	}
	t.flushExchange()
	add(&ch[stats.Publish], t.received)
	add(&ch[stats.Confirm], t.confirmed)
	add(&ch[stats.ReturnUnroutable], t.returned)
	add(&ch[stats.DropUnroutable], t.dropped)
	add(&c.received, t.received)
	add(&c.receivedConfirm, t.receivedConfirm)
	add(&c.routed, t.routed)
	add(&c.confirmed, t.confirmed)
	add(&c.returned, t.returned)
	add(&c.dropped, t.dropped)
	for i, n := range t.acked {
		add(&c.byType[i].acked, n)
		add(&ch[stats.Ack], n)
	}
	*t = tally{exchange: t.exchange}
}

func add(to *atomic.Uint64, n uint64) {
	if n > 0 {
		to.Add(n)
	}
}

// confirm passes confirms of one burst to the channel's client.
func (ch *Channel) confirm(batch []Confirm) {
	n := uint64(0)
	for i := range batch {
		if !batch[i].Refused && batch[i].Tag&unconfirmedTag == 0 {
			n++
		}
	}
	if n > 0 && ch.conn != nil {
		ch.conn.traffic.confirmed.Add(n)
		ch.counts[stats.Confirm].Add(n)
	}
	ch.sink.Confirm(batch)
}

// delivered counts deliveries of one queue to consumers of this node.
func (s *stream) delivered(out []*Delivery) {
	if len(out) == 0 || out[0].Consumer.ch.conn == nil {
		return
	}
	var sum, of handedOut
	ch := out[0].Consumer.ch
	for _, d := range out {
		if d.Consumer.ch != ch {
			of.flush(ch)
			ch = d.Consumer.ch
		}
		of.count(d)
		sum.count(d)
	}
	of.flush(ch)
	x := &ch.conn.traffic.byType[s.kind]
	add(&x.deliveredAuto, sum.auto)
	add(&x.deliveredManual, sum.manual)
	add(&x.redelivered, sum.again)
}

// handedOut counts deliveries of one burst.
type handedOut struct{ auto, manual, again uint64 }

func (h *handedOut) count(d *Delivery) {
	if d.Consumer.spec.NoAck {
		h.auto++
	} else {
		h.manual++
	}
	if d.Redelivered {
		h.again++
	}
}

func (h *handedOut) flush(ch *Channel) {
	add(&ch.counts[stats.DeliverNoAck], h.auto)
	add(&ch.counts[stats.Deliver], h.manual)
	add(&ch.counts[stats.Redeliver], h.again)
	*h = handedOut{}
}

// fetched counts a basic.get of a queue; d is nil if that was empty.
func (ch *Channel) fetched(s *stream, d *Delivery, noAck bool) {
	x := &ch.conn.traffic.byType[s.kind]
	count := func(c stats.Counter, vhost *atomic.Uint64) {
		vhost.Add(1)
		ch.counts[c].Add(1)
		s.mu.Lock()
		s.used.of(c)
		s.mu.Unlock()
	}
	switch {
	case d == nil:
		count(stats.GetEmpty, &x.getEmpty)
		return
	case noAck:
		count(stats.GetNoAck, &x.gotAuto)
	default:
		count(stats.Get, &x.gotManual)
	}
	if d.Redelivered {
		count(stats.Redeliver, &x.redelivered)
	}
}

// QueueFigures are the figures of one queue that this node leads.
type QueueFigures struct {
	ID          uint64
	VHost, Name string
	DelayOf     string // the delayed exchange it belongs to; it has no name then
	Closing     bool   // it is being deleted; another may have its name
	Type        QueueType
	// Ready, Unacked and Delayed messages; Bytes are those of all their bodies, UnackedBytes of them those that clients hold.
	Ready, Unacked, Delayed int
	Bytes, UnackedBytes     int64
	Consumers               int
	Held                    bool // publishers are held to what goes out
	Counters                fsm.Counters
	DedupIDs                int // remembered by deduplication
	Outbox                  OutboxStates
	OutboxBytes             int64
	OutboxAgeMillis         int64 // of the oldest item, 0 if there is none
	// Full and Unreachable are how many targets of the outbox are so.
	Full, Unreachable int
}

// Figures reads the figures of every queue led here, in no order. It wakes no leader.
func (b *Broker) Figures() []QueueFigures {
	list := []QueueFigures{}
	for _, h := range b.queues.all() {
		l := h.replica.Leader()
		if l == nil {
			continue
		}
		h.mu.Lock()
		q := h.q
		h.mu.Unlock()
		f := QueueFigures{ID: h.id, VHost: q.Vhost, Name: q.Name, DelayOf: q.DelayOf, Type: typeOf(q), Closing: q.State == catalog.Closing}
		if q.DelayOf != "" {
			f.Name = ""
		}
		c := l.Counts()
		f.Unacked, f.Delayed, f.Consumers, f.Held = c.Unacked, c.Delayed, c.Consumers, c.Held
		var status OutboxStatus
		h.replica.View(func(m *fsm.Machine) {
			f.Bytes, f.Counters = max(0, m.Queue().Bytes()-c.AwayBytes), m.Counters()
			f.UnackedBytes = min(c.UnackedBytes, f.Bytes) // it is of another moment
			f.DedupIDs = m.Dedup().Len()
			f.Ready = max(0, m.Queue().Len()-f.Unacked-f.Delayed-c.Away)
			if m.Outbox().Len() > 0 {
				status.read(m, b.cfg.Now())
			}
		})
		f.Outbox, f.OutboxBytes, f.OutboxAgeMillis = status.States, status.MessageBytes, status.OldestAge
		f.Full, f.Unreachable = h.troubles(l)
		list = append(list, f)
	}
	return list
}

// Clients are what the clients of this node have on queues.
type Clients struct{ Consumers int }

// Clients counts.
func (b *Broker) Clients() (c Clients) {
	for _, s := range b.allStreams() {
		s.mu.Lock()
		c.Consumers += len(s.consumers)
		s.mu.Unlock()
	}
	return c
}

// MoveTotals are what the movers of this node have counted.
type MoveTotals struct {
	Sent       uint64 // dead letters sent to targets, repeats included
	Full       uint64 // answers that a target is full
	Unanswered uint64 // times that no leader of a target answered in time
}

// MoveTotals reads the counters.
func (b *Broker) MoveTotals() MoveTotals {
	return MoveTotals{b.moves.Sent.Load(), b.moves.Full.Load(), b.moves.Unanswered.Load()}
}
