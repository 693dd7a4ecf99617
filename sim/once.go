package sim

import (
	"fmt"
	"time"

	"github.com/warrenmq/warren/broker"
)

// oncePublisher publishes to a queue that deduplicates. It is often not sure: its node dies, or
// it does not wait for the confirms. Then it sends again, through any node, perhaps while the
// first attempt is still on its way, until all is confirmed. The oracle sees to it that the
// queue has one copy.
func (w *World) oncePublisher(name int, q *queueSpec) {
	var unsure []*publish
	for life := 0; w.loading() || len(unsure) > 0 && w.ctx.Err() == nil; life++ {
		n := w.nodes[w.rand(len(w.nodes))]
		c := w.dial(n)
		if c == nil {
			w.sleep(20 * time.Millisecond)
			continue
		}
		n.mu.Lock()
		work := n.work
		work.Add(1)
		n.mu.Unlock()
		w.publishOnce(c, fmt.Sprintf("o%d.%d", name, life), q, unsure)
		if c.life.Err() == nil && (w.oneIn(2) || !w.loading()) {
			w.settleDown(c)
		}
		unsure = c.abandon()
		if c.life.Err() == nil {
			c.close()
		}
		work.Done()
	}
}

// abandon returns the publishes without a confirm. Those that still come say nothing.
func (c *client) abandon() (list []*publish) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.abandoned = true
	seen := map[*publish]bool{}
	for tag := uint64(1); len(c.publishes) > 0; tag++ {
		p := c.publishes[tag]
		delete(c.publishes, tag)
		if p != nil && !seen[p] {
			seen[p] = true
			c.w.led.unsure(p)
			list = append(list, p)
		}
	}
	return list
}

// publishOnce sends again what is not sure, then new messages, some of them twice.
func (w *World) publishOnce(c *client, name string, q *queueSpec, unsure []*publish) {
	tag := uint64(0)
	send := func(p *publish) {
		tag++
		c.mu.Lock()
		c.publishes[tag] = p
		c.mu.Unlock()
		routed, err := c.ch.Publish(c.life, &broker.Publish{Key: q.name, Properties: withID(p.body), Body: []byte(p.body), Tag: tag})
		switch {
		case err == nil && !routed:
			w.problem("message %s has no queue", p.body)
		case err != nil && c.life.Err() == nil:
			w.problem("publish %s: %v", p.body, err)
		}
	}
	for _, p := range unsure {
		w.led.resend(c.n.id, p)
	}
	for _, p := range unsure {
		send(p)
	}
	burst := 1 + w.rand(8)
	for i := 1; w.loading() && c.life.Err() == nil && i < 2000; i++ {
		p := w.led.once(c.n.id, fmt.Sprintf("%s-%d", name, i), q.name)
		for range 1 + w.rand(6)/5 {
			send(p)
		}
		if w.oneIn(burst) {
			c.ch.Flush()
			pause(c.life, w.between(0, q.pace))
		}
		if w.oneIn(100) {
			break // another node
		}
	}
	c.ch.Flush()
}

// once is publish for a message that is sent again until its fate is known.
func (l *ledger) once(node, body, queue string) *publish {
	p := &publish{body: body, queue: queue, node: node, at: time.Now(), again: true}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.publishes[body] = p
	return p
}

// unsure makes a publish without an answer unknown.
func (l *ledger) unsure(p *publish) { l.end(p, unknown) }
