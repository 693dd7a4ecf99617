package broker

import (
	"github.com/warrenmq/warren/amqp"
	"github.com/warrenmq/warren/fsm"
	"github.com/warrenmq/warren/trace"
)

// publishSpan are the spans of a publish. A nil one stands for a message that is not traced.
type publishSpan struct {
	whole, commit *trace.Span
	// handed: from here on it ends with the last queue's answer, wherever that is taken. Set before anybody else has it.
	handed bool
}

// beginPublish begins the span of the message in hand, nil if it is not traced.
func (ch *Channel) beginPublish(p *Publish) *publishSpan {
	t := ch.conn.b.cfg.Trace
	parent, ok := t.Of(ch.headers)
	if !ok {
		return nil
	}
	whole := t.Publish(parent, ch.conn.vhost, p.Exchange, p.Key, p.Properties, len(p.Body))
	if whole == nil {
		return nil
	}
	return &publishSpan{whole: whole}
}

// routed ends the span unless queues have the message to answer for.
func (s *publishSpan) routed(routed bool, err error) {
	switch {
	case s == nil || s.handed:
	case err != nil:
		s.whole.End(err.Error(), true)
	case !routed:
		s.whole.End("unroutable", false)
	default:
		s.whole.End("taken", false) // by a transaction, or as a direct reply
	}
}

// hand is called before the first queue gets the message.
func (s *publishSpan) hand(ch *Channel) {
	if s == nil {
		return
	}
	s.handed = true
	names := make([]string, len(ch.targets))
	for i, q := range ch.targets {
		names[i] = q.Name
	}
	s.commit = s.whole.Commit(names)
}

// finished is called with the last queue's answer.
func (s *publishSpan) finished(p *publishing, last fsm.OutcomeKind) {
	if s == nil {
		return
	}
	outcome, failed := "committed", false
	switch {
	case p.refused.Load():
		outcome, failed = "refused", true
	case p.noTaker.Load() == p.queues:
		outcome = "no consumers"
	case last == fsm.Gone:
		outcome = "queue deleted"
	}
	s.commit.End(outcome, failed)
	s.whole.End(outcome, failed)
}

// deliverySpan are the spans of a delivery. A nil one stands for a message that is not traced.
type deliverySpan struct{ whole, settle *trace.Span }

// beginDelivery begins the span of a delivery, nil if it is not traced.
func (s *stream) beginDelivery(vhost string, redelivered bool, exchange, key string, props amqp.RawProperties, body int) *deliverySpan {
	t := s.hub.trace
	parent, ok := t.OfProperties(props)
	if !ok {
		return nil
	}
	whole := t.Deliver(parent, vhost, s.name, exchange, key, redelivered, body)
	if whole == nil {
		return nil
	}
	return &deliverySpan{whole: whole}
}

// settled is called when the client, or the broker in its place, has said what becomes of the message.
func (d *deliverySpan) settled(s *stream, kind fsm.SettleKind) {
	if d != nil {
		how := settleNames[kind]
		d.settle = d.whole.Settle(s.name, how)
		d.whole.End(how, false)
	}
}

// ended is called when the queue's log has the settlement, or nobody will say any more.
func (d *deliverySpan) ended(outcome string) {
	if d == nil {
		return
	}
	if d.settle == nil {
		d.whole.End(outcome, false)
	}
	d.settle.End("", false)
}

// endSpansLocked ends those of everything that is held: the stream ends.
func (s *stream) endSpansLocked(outcome string) {
	if s.hub.trace == nil {
		return
	}
	for _, h := range s.held {
		h.span.ended(outcome)
	}
}

// traceGot begins the span of what a get has fetched.
func (s *stream) traceGot(ch *Channel, d *Delivery) {
	span := s.beginDelivery(ch.conn.vhost, d.Redelivered, d.Exchange, d.Key, d.Properties, len(d.Body))
	if span == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if h := s.held[d.id]; h != nil && h.attempt == d.attempt && h.settled == 0 {
		h.span = span
		return
	}
	span.ended("lost")
}

// settleNames are what settlements are called in traces, in the words of clients where they have some.
var settleNames = [...]string{fsm.Ack: "ack", fsm.Discard: "reject", fsm.RequeueFailed: "requeue", fsm.RequeueCounted: "return", fsm.Recount: "return"}

// queueName is what a queue is called in traces.
func (b *Broker) queueName(id uint64) string {
	if q := b.cat.View().QueueByID(id); q != nil {
		return q.Name
	}
	return ""
}
