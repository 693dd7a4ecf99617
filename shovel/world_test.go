package shovel

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"github.com/warrenmq/warren/amqp"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// deliver sends what the consumers may have, each in its turn.
func (p *peer) deliver() {
	for more := true; more; {
		more = false
		for _, name := range p.order {
			c := p.consumers[name]
			if c == nil || c.held >= c.prefetch || len(p.w.ready) == 0 {
				continue
			}
			id := p.w.ready[0]
			p.w.ready = p.w.ready[1:]
			p.tag++
			c.held++
			p.unacked[p.tag] = unacked{id, c}
			b := amqp.AppendMethodFrame(nil, 1, &amqp.BasicDeliver{ConsumerTag: name, DeliveryTag: p.tag, RoutingKey: "source"})
			p.write(amqp.AppendContent(b, 1, amqp.ClassBasic, amqp.RawProperties{0, 0}, []byte(id), 128<<10))
			more = true
		}
	}
}

// acked takes an acknowledgement of the shovel: it may be only of what has arrived.
func (p *peer) acked(m *amqp.BasicAck) {
	p.acks++
	for tag := uint64(1); tag <= m.DeliveryTag; tag++ {
		u, ok := p.unacked[tag]
		if !ok || tag != m.DeliveryTag && !m.Multiple {
			continue
		}
		delete(p.unacked, tag)
		u.consumer.held--
		if !p.w.arrived[u.id] {
			p.w.problems = append(p.w.problems, fmt.Sprintf("%s is acknowledged (tag %d, by %d, multiple %v), and has not arrived", u.id, tag, m.DeliveryTag, m.Multiple))
		}
		if p.w.gone[u.id] = true; len(p.w.gone) == p.w.total {
			select {
			case <-p.w.done:
			default:
				close(p.w.done)
			}
		}
	}
	if p.w.chance(p.w.breaks) {
		_ = p.conn.Close()
		return
	}
	if p.w.chance(p.w.cancels) {
		for name := range p.consumers {
			p.send(1, &amqp.BasicCancel{ConsumerTag: name, NoWait: true})
		}
		clear(p.consumers)
	}
	p.deliver()
}

func (w *world) chance(of int) bool { return w.rnd.IntN(100) < of }

// take is what the destination does with a message.
func (p *peer) take(m *amqp.BasicPublish, raw amqp.RawProperties, body []byte) {
	p.w.copies[string(body)]++
	if p.w.poison[string(body)] || p.w.chance(p.w.closes) {
		p.closed, p.open = true, nil // those in front of it have come, and nothing is said of them
		p.send(1, &amqp.ChannelClose{ReplyCode: 406, ReplyText: "PRECONDITION_FAILED - too large"})
		return
	}
	o := outcome{seq: p.published, id: string(body), nack: p.w.chance(p.w.nacks), back: p.w.chance(p.w.returns)}
	if o.back {
		p.back(m, raw, body)
	}
	if o.nack && p.w.chance(50) { // at once, before those in front of it
		p.send(1, &amqp.BasicNack{DeliveryTag: o.seq})
	} else {
		p.open = append(p.open, o)
	}
	if p.w.chance(p.w.breaks) {
		_ = p.conn.Close()
		return
	}
	if p.w.chance(10) {
		p.confirm()
	} else if len(p.open) == 1 {
		time.AfterFunc(10*time.Millisecond, func() {
			p.w.mu.Lock()
			defer p.w.mu.Unlock()
			p.confirm()
		})
	}
}

func (p *peer) back(m *amqp.BasicPublish, raw amqp.RawProperties, body []byte) {
	b := amqp.AppendMethodFrame(nil, 1, &amqp.BasicReturn{ReplyCode: 312, ReplyText: "NO_ROUTE", Exchange: m.Exchange, RoutingKey: m.RoutingKey})
	p.write(amqp.AppendContent(b, 1, amqp.ClassBasic, raw, body, 128<<10))
}

// confirm says what has become of those that are open: as RabbitMQ does, it refuses single ones first, and confirms the rest with one ack if nothing
// in front of it is open, or a few of them, in whatever order.
func (p *peer) confirm() {
	var good []outcome
	for _, o := range p.open {
		if o.nack {
			p.send(1, &amqp.BasicNack{DeliveryTag: o.seq})
			continue
		}
		good = append(good, o)
	}
	p.open = nil
	if p.out == nil || len(good) == 0 {
		return
	}
	for _, o := range good {
		if !o.back {
			p.w.arrived[o.id] = true
		}
	}
	if p.w.chance(50) {
		p.send(1, &amqp.BasicAck{DeliveryTag: good[len(good)-1].seq, Multiple: true})
		return
	}
	p.w.rnd.Shuffle(len(good), func(i, j int) { good[i], good[j] = good[j], good[i] })
	for _, o := range good {
		p.send(1, &amqp.BasicAck{DeliveryTag: o.seq})
	}
}

// TestNothingIsLost: whatever the destination refuses, returns and confirms in whatever order, and whichever connection breaks, a message is
// acknowledged at the source only when the destination has it, all of them are in the end, and nothing stays behind.
func TestNothingIsLost(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		seed, messages := rapid.Uint64().Draw(rt, "seed"), rapid.IntRange(1, 300).Draw(rt, "messages")
		nacks, returns := rapid.IntRange(0, 30).Draw(rt, "nacks"), rapid.IntRange(0, 30).Draw(rt, "returns")
		breaks, cancels := rapid.IntRange(0, 3).Draw(rt, "breaks"), rapid.IntRange(0, 2).Draw(rt, "cancels")
		closes := rapid.IntRange(0, 3).Draw(rt, "closes")
		prefetch := rapid.IntRange(1, 60).Draw(rt, "prefetch")
		stopped := rapid.IntRange(0, 3000).Draw(rt, "stopped after ms")
		var problems []string
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(seed, messages)
			w.nacks, w.returns, w.breaks, w.cancels, w.closes = nacks, returns, breaks, cancels, closes
			definition := fmt.Sprintf(`{"src-uri":"amqp://src@","dest-uri":"amqp://dst@","src-queue":"q","dest-queue":"d","src-prefetch-count":%d,"reconnect-delay":1}`, prefetch)
			worker := w.start(t, definition)
			select {
			case <-w.done:
			case <-time.After(time.Duration(stopped) * time.Millisecond):
				worker.Stop()
				worker = w.start(t, definition)
			}
			select {
			case <-w.done:
			case <-time.After(6 * time.Hour):
				w.problems = append(w.problems, fmt.Sprintf("%d of %d after six hours, %+v", len(w.gone), w.total, worker.Status()))
			}
			worker.Stop()
			w.serving.Wait()
			problems = w.problems
		})
		if len(problems) > 0 {
			rt.Fatal(problems)
		}
	})
}
