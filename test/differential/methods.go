package main

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	amqp "github.com/rabbitmq/amqp091-go"
)

// unknownTag, as op.n, is for a delivery tag that is not held.
const unknownTag = -1

// methods carry out what they are named for, and return what was answered.
var methods = map[string]func(w *world, c *channel, o *op) string{
	"queue.declare": func(w *world, c *channel, o *op) string {
		declare := c.QueueDeclare
		if o.is("passive") {
			declare = c.QueueDeclarePassive
		}
		q, err := declare(w.queueName(o.queue), o.is("durable"), o.is("auto-delete"), o.is("exclusive"), o.is(noWait), w.named(o.args))
		return fmt.Sprintf("%s, %d ready%s", w.fault(err), q.Messages, w.consumers(&q))
	},
	"queue.delete": func(w *world, c *channel, o *op) string {
		n, err := c.QueueDelete(w.queueName(o.queue), o.is("if-unused"), o.is("if-empty"), o.is(noWait))
		return fmt.Sprintf("%s, %d messages", w.fault(err), n)
	},
	"queue.purge": func(w *world, c *channel, o *op) string {
		n, err := c.QueuePurge(w.queueName(o.queue), o.is(noWait))
		return fmt.Sprintf("%s, %d messages", w.fault(err), n)
	},
	"queue.bind": func(w *world, c *channel, o *op) string {
		return w.fault(c.QueueBind(w.queueName(o.queue), o.key, w.exchangeName(o.exchange), o.is(noWait), w.named(o.args)))
	},
	"queue.unbind": func(w *world, c *channel, o *op) string {
		return w.fault(c.QueueUnbind(w.queueName(o.queue), o.key, w.exchangeName(o.exchange), w.named(o.args)))
	},
	"exchange.declare": func(w *world, c *channel, o *op) string {
		kind := []string{amqp.ExchangeDirect, amqp.ExchangeTopic, amqp.ExchangeFanout, amqp.ExchangeHeaders}[o.n%4]
		declare := c.ExchangeDeclare
		if o.is("passive") {
			declare = c.ExchangeDeclarePassive
		}
		return w.fault(declare(w.exchangeName(o.exchange), kind, o.is("durable"), o.is("auto-delete"), o.is("internal"), o.is(noWait), w.named(o.args)))
	},
	"exchange.delete": func(w *world, c *channel, o *op) string {
		return w.fault(c.ExchangeDelete(w.exchangeName(o.exchange), o.is("if-unused"), o.is(noWait)))
	},
	"exchange.bind": func(w *world, c *channel, o *op) string {
		return w.fault(c.ExchangeBind(w.exchangeName(o.exchange), o.key, w.exchangeName(o.source), o.is(noWait), w.named(o.args)))
	},
	"exchange.unbind": func(w *world, c *channel, o *op) string {
		return w.fault(c.ExchangeUnbind(w.exchangeName(o.exchange), o.key, w.exchangeName(o.source), o.is(noWait), w.named(o.args)))
	},
	"basic.publish":  publish,
	"basic.get":      get,
	"basic.consume":  consume,
	"basic.cancel":   func(w *world, c *channel, o *op) string { return w.fault(c.Cancel(consumerTag(o), o.is(noWait))) },
	"basic.qos":      func(w *world, c *channel, o *op) string { return w.fault(c.Qos(o.n, 0, o.is("global"))) },
	"basic.ack":      settle,
	"basic.nack":     settle,
	"basic.reject":   settle,
	"basic.recover":  resend,
	"tx.select":      func(w *world, c *channel, _ *op) string { return w.fault(c.Tx()) },
	"tx.commit":      func(w *world, c *channel, _ *op) string { return w.fault(c.TxCommit()) },
	"tx.rollback":    func(w *world, c *channel, _ *op) string { return w.fault(c.TxRollback()) },
	"confirm.select": confirm,
	"channel.close":  func(w *world, c *channel, _ *op) string { return w.fault(c.Close()) },
	setPolicy:        policy,
	clearPolicy:      policy,
	setOperator:      policy,
	clearOperator:    policy,
	hangUp:           func(w *world, _ *channel, o *op) string { return w.fault(w.conns[o.ch%conns].Close()) },
}

// noWait is the flag of methods that want no answer.
const noWait = "no-wait"

// do carries out one method, behind those that are sent before without waiting for them, and waits until the broker has taken it.
func (w *world) do(o op) string {
	c := w.chans[o.ch]
	for i := range o.before {
		_ = methods[o.before[i].kind](w, c, &o.before[i]) // nothing is answered; a refusal is an event
	}
	answer := methods[o.kind](w, c, &o)
	if len(o.before) > 0 && c.IsClosed() && o.kind != hangUp {
		return "the channel has ended" // by one of those before, which the library may have known or not
	}
	if !c.IsClosed() {
		_ = c.ExchangeDeclarePassive("amq.direct", "direct", true, false, false, false, nil) // the method may have closed the channel, which is an event
	}
	return answer
}

func publish(w *world, c *channel, o *op) string {
	p, key := o.pub, o.key
	p.Headers = w.named(p.Headers)
	if o.exchange == toQueue {
		key = w.queueName(o.queue)
	}
	_ = c.Publish(w.exchangeName(o.exchange), key, o.is("mandatory"), false, p) // a refusal is an event
	return "nothing"
}

func get(w *world, c *channel, o *op) string {
	m, ok, err := c.Get(w.queueName(o.queue), o.is("no-ack"))
	if !ok {
		return w.fault(err)
	}
	if !o.is("no-ack") {
		w.hold(c, &m)
	}
	return fmt.Sprintf("%s, %d left", w.delivery(&m), m.MessageCount)
}

func consumerTag(o *op) string { return fmt.Sprint("t", o.consumer) }

func consume(w *world, c *channel, o *op) string {
	from, err := c.Consume(w.queueName(o.queue), consumerTag(o), o.is("no-ack"), o.is("exclusive"), o.is("no-local"), o.is(noWait), w.named(o.args))
	if err == nil {
		listen(w, from, func(m amqp.Delivery) {
			if !o.is("no-ack") {
				w.hold(c, &m)
			}
			w.note(event{o.ch, m.ConsumerTag, m.DeliveryTag, "consumer " + m.ConsumerTag + ": " + w.delivery(&m)})
		})
	}
	return w.fault(err)
}

// hold notes what is to be settled.
func (w *world) hold(c *channel, m *amqp.Delivery) {
	w.mu.Lock()
	defer w.mu.Unlock()
	c.held = append(c.held, held{m.DeliveryTag, m.ConsumerTag, fmt.Sprintf("%s %s %v", m.ConsumerTag, m.Body, m.Redelivered)})
}

func settle(w *world, c *channel, o *op) string {
	tag, ok := w.release(c, o)
	if !ok {
		return "nothing is held"
	}
	switch o.kind { // a refusal is an event
	case "basic.ack":
		_ = c.Ack(tag, o.is("multiple"))
	case "basic.nack":
		_ = c.Nack(tag, o.is("multiple"), o.is("requeue"))
	default:
		_ = c.Reject(tag, o.is("requeue"))
	}
	return "nothing"
}

// release chooses the tag to settle. Multiple is for all where they are of different consumers, whose tags are not in
// the same order in both worlds.
func (w *world) release(c *channel, o *op) (tag uint64, ok bool) {
	if o.n == unknownTag {
		return 1 << 40, true
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(c.held) == 0 {
		return 0, false
	}
	if o.is("multiple") {
		slices.SortFunc(c.held, func(a, b held) int { return cmp.Compare(a.tag, b.tag) })
		last := len(c.held) - 1
		if !slices.ContainsFunc(c.held, func(h held) bool { return h.consumer != c.held[0].consumer }) {
			last = o.n % len(c.held)
		}
		tag = c.held[last].tag
		c.held = slices.Delete(c.held, 0, last+1)
		return tag, true
	}
	slices.SortStableFunc(c.held, func(a, b held) int { return cmp.Compare(a.label, b.label) })
	i := o.n % len(c.held)
	tag = c.held[i].tag
	c.held = slices.Delete(c.held, i, i+1)
	return tag, true
}

func resend(w *world, c *channel, o *op) string {
	if o.is("requeue") {
		w.mu.Lock()
		c.held = nil
		w.mu.Unlock()
	}
	return w.fault(c.Recover(o.is("requeue"))) //nolint:staticcheck // clients may send it
}

func confirm(w *world, c *channel, o *op) string {
	err := c.Confirm(false)
	if err == nil && !c.confirms {
		c.confirms = true
		listen(w, c.NotifyPublish(make(chan amqp.Confirmation, 512)), func(p amqp.Confirmation) {
			w.note(event{ch: o.ch, text: fmt.Sprintf("confirm %d %v", p.DeliveryTag, p.Ack)})
		})
	}
	return w.fault(err)
}

// compare orders events; see world.seen.
func (e *event) compare(o *event) int {
	if c := cmp.Or(cmp.Compare(e.ch, o.ch), cmp.Compare(e.consumer, o.consumer), cmp.Compare(e.tag, o.tag)); c != 0 || e.tag != 0 {
		return c
	}
	return cmp.Compare(e.text, o.text)
}

// delivery is a message as it is compared.
func (w *world) delivery(m *amqp.Delivery) string {
	p := amqp.Publishing{
		Headers: m.Headers, Priority: m.Priority, Expiration: m.Expiration, DeliveryMode: m.DeliveryMode,
		Type: m.Type, MessageId: m.MessageId, CorrelationId: m.CorrelationId, ContentType: m.ContentType, AppId: m.AppId, UserId: m.UserId,
	}
	return w.plain(fmt.Sprintf("%q, redelivered %v, exchange %q, key %q%s", m.Body, m.Redelivered, m.Exchange, m.RoutingKey, properties(&p)))
}

// properties are those of a message.
func properties(p *amqp.Publishing) string {
	return fmt.Sprintf(", mode %d, priority %d, expiration %q, [%s %s %s %s %s %s], headers %s",
		p.DeliveryMode, p.Priority, p.Expiration, p.Type, p.MessageId, p.CorrelationId, p.ContentType, p.AppId, p.UserId, shown(p.Headers))
}

// Headers that quorum queues add.
const (
	acquiredCount = "x-acquired-count"
	deliveryCount = "x-delivery-count"
)

// shown is a header's value with its type. The times of deaths are left out, and what RabbitMQ 3.10 does not tell of the last death. It counts
// as x-delivery-count what Warren does, as later versions, as x-acquired-count. Of a dead letter's CC nothing is shown: up to 3.12 RabbitMQ removes it if the queue
// has a dead-letter-routing-key.
func shown(v any) string {
	switch v := v.(type) {
	case amqp.Table:
		counts, acquired := v[acquiredCount]
		_, died := v["x-death"]
		var list []string
		for k := range v {
			switch {
			case k == "time" || strings.HasPrefix(k, "x-last-death-") || k == acquiredCount || k == "CC" && died:
			case k == deliveryCount && (acquired || v[k] == int64(0)): // RabbitMQ 3.10 shows 0 in answers to basic.get
			default:
				list = append(list, k+"="+shown(v[k]))
			}
		}
		if acquired {
			list = append(list, deliveryCount+"="+shown(counts))
		}
		slices.Sort(list)
		return "{" + strings.Join(list, " ") + "}"
	case []any:
		list := make([]string, len(v))
		for i := range v {
			list[i] = shown(v[i])
		}
		return "[" + strings.Join(list, " ") + "]"
	}
	return fmt.Sprintf("%T(%v)", v, v)
}
