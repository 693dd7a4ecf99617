package amqp

import (
	"context"
	"crypto/rand"
	"fmt"
	"math"

	wire "github.com/warrenmq/warren/amqp"
	"github.com/warrenmq/warren/broker"
	"github.com/warrenmq/warren/fsm"
)

func (ch *channel) basicMethod(m wire.Method) error {
	switch m := m.(type) {
	case *wire.BasicQos:
		return ch.qos(m)
	case *wire.BasicConsume:
		return ch.consume(m)
	case *wire.BasicCancel:
		return ch.cancelConsumer(m)
	case *wire.BasicCancelOk:
		return nil // to our cancels, which ask for no answer
	case *wire.BasicGet:
		return ch.get(m)
	case *wire.BasicRecover:
		return ch.recover(m.ID(), m.Requeue, true)
	case *wire.BasicRecoverAsync:
		return ch.recover(m.ID(), m.Requeue, false)
	}
	return unexpectedMethod(m.ID())
}

// qos sets the prefetch of later consumers, or the channel-wide limit.
func (ch *channel) qos(m *wire.BasicQos) error {
	if m.PrefetchSize != 0 {
		return wire.Errorf(wire.NotImplemented, m.ID(), "prefetch_size!=0 (%d)", m.PrefetchSize)
	}
	if m.Global {
		ch.setLimit(m.PrefetchCount)
	} else {
		ch.mu.Lock()
		ch.prefetch = m.PrefetchCount
		ch.mu.Unlock()
	}
	ch.reply(&wire.BasicQosOk{})
	return nil
}

func (ch *channel) consume(m *wire.BasicConsume) error {
	ch.c.out.waitDelivered()
	queue, err := ch.queueName(m.Queue, m.ID())
	if err != nil {
		return err
	}
	tag := m.ConsumerTag
	if tag == "" {
		tag = "amq.ctag-" + rand.Text()
	}
	ch.mu.Lock()
	if _, taken := ch.consumers[tag]; taken {
		ch.mu.Unlock()
		return wire.Errorf(wire.NotAllowed, m.ID(), "attempt to reuse consumer tag '%s'", tag)
	}
	if len(ch.consumers) >= consumersMax {
		ch.mu.Unlock()
		return wire.Errorf(wire.ResourceError, m.ID(), "too many consumers on one channel (%d)", consumersMax)
	}
	cons := &consumer{tag: tag, queue: queue, noAck: m.NoAck}
	ch.consumers[tag], ch.starting = cons, cons
	prefetch, limit := ch.prefetch, ch.limit
	ch.mu.Unlock()

	ch.noAck = ch.noAck || m.NoAck // also once it is cancelled: the writer may not have told of all
	ctx, cancel := ch.c.operation()
	defer cancel()
	handle, err := ch.broker.Consume(ctx, broker.Consume{
		Queue: queue, Tag: tag, NoAck: m.NoAck, Exclusive: m.Exclusive,
		Prefetch: prefetch, Limit: limit, Priority: consumerPriority(m), Arguments: m.Arguments,
	})
	ch.mu.Lock()
	defer ch.mu.Unlock()
	if err != nil {
		delete(ch.consumers, tag)
		ch.startedLocked()
		return err
	}
	ch.startConsumer(cons, handle, m.NoWait)
	return nil
}

// consumersMax bounds the consumers of one channel.
const consumersMax = 65535

// startConsumer answers consume and lets go what came before; called with mu held.
func (ch *channel) startConsumer(cons *consumer, handle Consumer, noWait bool) {
	cons.handle = handle
	if !ch.silent && !noWait {
		ch.replyLocked(&wire.BasicConsumeOk{ConsumerTag: cons.tag})
	}
	cons.started = true
	ch.startedLocked()
	if cons.cancelled && !ch.silent {
		ch.cancelledLocked(cons)
	}
}

// consumerPriority reads x-priority, which the broker checks.
func consumerPriority(m *wire.BasicConsume) int32 {
	v, _ := m.Arguments.Get("x-priority")
	n, _ := wire.AsInt64(v)
	return int32(max(math.MinInt32, min(n, math.MaxInt32)))
}

// cancelConsumer ends a consumer; an unknown tag is fine.
func (ch *channel) cancelConsumer(m *wire.BasicCancel) error {
	ch.mu.Lock()
	cons := ch.consumers[m.ConsumerTag]
	ch.mu.Unlock()
	if cons != nil && cons.handle != nil {
		ctx, cancel := ch.c.operation()
		defer cancel()
		if err := ch.endConsumer(ctx, cons); err != nil {
			return err
		}
	}
	if !m.NoWait {
		ch.reply(&wire.BasicCancelOk{ConsumerTag: m.ConsumerTag})
	}
	return nil
}

// recheck ends the consumers whose queues the user may not read any more. Those of a channel that is closed, and whose close the client has not
// answered, have ended.
func (ch *channel) recheck() error {
	if ch.broker == nil {
		return nil
	}
	ch.mu.Lock()
	var lost []*consumer
	for _, cons := range ch.consumers {
		if cons.handle != nil && !ch.c.broker.MayRead(cons.queue) {
			lost = append(lost, cons)
		}
	}
	ch.mu.Unlock()
	ctx, cancel := ch.c.operation()
	defer cancel()
	for _, cons := range lost {
		if err := ch.endConsumer(ctx, cons); err != nil {
			return err
		}
		if ch.c.cancelNotify {
			ch.reply(&wire.BasicCancel{ConsumerTag: cons.tag, NoWait: true})
		}
	}
	return nil
}

// endConsumer cancels a running consumer. What waits for the channel-wide limit goes back as it was, because the client must not see it
// after cancel-ok, and before the queue hears of the end: whoever's turn comes then begins with it.
func (ch *channel) endConsumer(ctx context.Context, cons *consumer) error {
	ch.mu.Lock()
	cons.ending = true
	unseen := ch.ungate(cons)
	ch.mu.Unlock()
	ch.broker.GiveBack(unseen)
	if err := cons.handle.Cancel(ctx); err != nil {
		return err
	}
	ch.mu.Lock()
	delete(ch.consumers, cons.tag)
	ch.mu.Unlock()
	return nil
}

func (ch *channel) get(m *wire.BasicGet) error {
	queue, err := ch.queueName(m.Queue, m.ID())
	if err != nil {
		return err
	}
	ctx, cancel := ch.c.operation()
	defer cancel()
	ch.mu.Lock()
	ch.fetching = queue
	ch.mu.Unlock()
	d, remaining, err := ch.broker.Get(ctx, queue, m.NoAck)
	ch.mu.Lock()
	defer ch.mu.Unlock()
	passed := ch.sent
	ch.fetching, ch.sent = "", nil
	switch {
	case err != nil:
		return err
	case ch.silent:
		return nil // the broker takes the message back
	case d == nil:
		ch.replyLocked(&wire.BasicGetEmpty{})
		return nil
	}
	if err := ch.fits(d); err != nil {
		return err // closes the channel, and the message goes back
	}
	ch.passLocked(d, passed)
	ch.lastTag++
	if m.NoAck {
		ch.broker.Took(d)
	} else {
		ch.unacked.Push(ch.lastTag, d)
		ch.fetched.Push(ch.lastTag, struct{}{})
	}
	ch.c.out.content(outContent{
		channel: ch.num, redelivered: d.Redelivered, remaining: remaining, tag: ch.lastTag, delivery: d,
	})
	return nil
}

// passLocked flags what comes behind a later message of its queue: a message that was fetched, behind the newest that consumers were sent
// meanwhile, and what waits for the channel-wide limit, behind the fetched one.
func (ch *channel) passLocked(fetched, sent *broker.Delivery) {
	if sent != nil && sent.Behind(fetched) {
		fetched.Redelivered = true
	}
	for _, g := range ch.gated {
		if fetched.Behind(g.d) {
			g.d.Redelivered = true
		}
	}
}

// ack ends one delivery or, with multiple, all up to tag; tag 0 with multiple
// means everything outstanding.
func (ch *channel) ack(kind broker.SettleKind, tag uint64, multiple bool) error {
	if ch.tx != nil {
		if n := ch.ackInTx(kind, tag, multiple); n > 0 || multiple && tag == 0 {
			return nil
		}
		return unknownTag(tag)
	}
	return ch.ackNow(kind, tag, multiple)
}

func unknownTag(tag uint64) error {
	return &wire.Error{Code: wire.PreconditionFailed, Text: fmt.Sprintf("unknown delivery tag %d", tag)}
}

// ackNow is ack outside of a transaction.
func (ch *channel) ackNow(kind broker.SettleKind, tag uint64, multiple bool) error {
	if len(ch.settling) > 0 && ch.settleKind != kind {
		ch.settleNow()
	}
	ch.mu.Lock()
	before := len(ch.settling)
	switch {
	case multiple && tag == 0:
		ch.settling = ch.unacked.TakeUpTo(math.MaxUint64, ch.settling)
		ch.fetched.DropUpTo(math.MaxUint64)
	case multiple && ch.unacked.Find(tag) >= 0:
		ch.settling = ch.unacked.TakeUpTo(tag, ch.settling)
		ch.fetched.DropUpTo(tag)
	case !multiple:
		if d, ok := ch.unacked.Take(tag); ok {
			ch.settling = append(ch.settling, d)
			ch.fetched.Take(tag)
		}
	}
	done := ch.settling[before:]
	ch.releaseGate(done)
	ch.mu.Unlock()
	if len(done) == 0 {
		if multiple && tag == 0 {
			return nil
		}
		return unknownTag(tag)
	}
	ch.settleKind = kind
	ch.touch()
	return nil
}

// recover returns everything outstanding to its queues, at once also in a transaction:
// what that has settled is not outstanding. The answer, where one is wanted, comes before what is
// delivered again, as RabbitMQ's does.
func (ch *channel) recover(id wire.MethodID, requeue, answer bool) error {
	if !requeue {
		return wire.Errorf(wire.NotImplemented, id, "requeue=false")
	}
	if err := ch.ackNow(fsm.RequeueCounted, 0, true); err != nil {
		return err
	}
	if answer {
		ch.reply(&wire.BasicRecoverOk{})
	}
	ch.flush()
	return nil
}
