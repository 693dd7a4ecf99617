package broker

import (
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/warrenmq/warren/catalog"
	"github.com/warrenmq/warren/fsm"
	"github.com/warrenmq/warren/stats"
)

// What is counted of single objects. Of a queue each node counts what its own clients do with it, in the stream, under the mutex that is
// held anyway; of channels and exchanges a burst is added at its end.

// counts are those of one channel.
type counts [stats.Received]atomic.Uint64

func (c *counts) read(s *stats.Set) {
	for i := range c {
		s[i] = c[i].Load()
	}
}

// used is what the clients of this node have done with a queue.
type used struct {
	publish, deliver, deliverNoAck, get, getNoAck, getEmpty, ack, redeliver uint64
}

// Incoming counts the messages that clients published to an exchange and that were routed into a queue.
type Incoming struct {
	Exchange string
	Publish  uint64
}

// incomingMax bounds the exchanges that are told apart for a queue on a node; what comes by others is counted in the sum alone.
const incomingMax = 64

// published counts a message that was published to an exchange. Caller holds mu.
func (s *stream) published(exchange string) {
	s.used.publish++
	for i := range s.incoming {
		if x := &s.incoming[i]; x.Exchange == exchange {
			x.Publish++
			return
		}
	}
	if len(s.incoming) < incomingMax {
		s.incoming = append(s.incoming, Incoming{strings.Clone(exchange), 1})
	}
}

// Incoming tells by which exchanges the clients of this node have published into a queue.
func (b *Broker) Incoming(queue uint64) []Incoming {
	s := b.streamByID(queue)
	if s == nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.incoming)
}

func (u *used) delivered(noAck, again bool) {
	if noAck {
		u.deliverNoAck++
	} else {
		u.deliver++
	}
	if again {
		u.redeliver++
	}
}

// of counts one of what gets are counted as.
func (u *used) of(c stats.Counter) {
	switch c {
	case stats.Get:
		u.get++
	case stats.GetNoAck:
		u.getNoAck++
	case stats.GetEmpty:
		u.getEmpty++
	case stats.Redeliver:
		u.redeliver++
	default:
	}
}

func (u *used) read(s *stats.Set) {
	s[stats.Publish], s[stats.Deliver], s[stats.DeliverNoAck], s[stats.Ack] = u.publish, u.deliver, u.deliverNoAck, u.ack
	s[stats.Get], s[stats.GetNoAck], s[stats.GetEmpty], s[stats.Redeliver] = u.get, u.getNoAck, u.getEmpty, u.redeliver
}

// count counts a transaction that was committed for each of its queues.
func (c *commit) count(settlements []TxSettlement) {
	for _, x := range c.queues {
		x.s.mu.Lock()
		for _, p := range c.publishes {
			if slices.Contains(p.to, x) {
				x.s.published(p.exchange)
			}
		}
		x.s.mu.Unlock()
	}
	for _, t := range settlements {
		if t.Kind == fsm.Ack {
			s := t.Delivery.queue
			s.mu.Lock()
			s.used.ack++
			s.mu.Unlock()
		}
	}
}

// vhostKey names one life of a virtual host.
type vhostKey struct {
	name    string
	created uint64
}

// traffics are the counters of the virtual hosts that clients of this node have used.
type traffics struct {
	mu   sync.Mutex
	live map[vhostKey]*traffic
	// The node's counters never fall: ending are those of virtual hosts that have gone, whose last clients may still
	// count, and ended is the sum of those that have none any more.
	ending []*traffic
	ended  Traffic
}

// of returns the counters of a virtual host.
func (t *traffics) of(vhost string, created uint64) *traffic {
	t.mu.Lock()
	defer t.mu.Unlock()
	k := vhostKey{vhost, created}
	c := t.live[k]
	if c == nil {
		c = new(traffic)
		if t.live == nil {
			t.live = map[vhostKey]*traffic{}
		}
		t.live[k] = c
	}
	return c
}

// sum adds them all up.
func (t *traffics) sum() Traffic {
	t.mu.Lock()
	defer t.mu.Unlock()
	sum := t.ended
	for _, c := range t.live {
		sum.add(c)
	}
	for _, c := range t.ending {
		sum.add(c)
	}
	return sum
}

// forget lets go of the virtual hosts that are no more; it is called now and then.
func (t *traffics) forget(view *catalog.View) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, c := range t.ending {
		t.ended.add(c)
	}
	t.ending = nil
	for k, c := range t.live {
		if h := view.Vhost(k.name); h == nil || h.Created != k.created {
			delete(t.live, k)
			t.ending = append(t.ending, c)
		}
	}
}

// exchangeCounts are those of one exchange.
type exchangeCounts struct{ in, out atomic.Uint64 }

// exchangeKey names an exchange.
type exchangeKey struct{ vhost, name string }

// exchanges are the counters of the exchanges that clients of this node have published to.
type exchanges struct {
	mu   sync.Mutex
	live map[exchangeKey]*exchangeCounts
}

func (e *exchanges) of(vhost, name string) *exchangeCounts {
	e.mu.Lock()
	defer e.mu.Unlock()
	k := exchangeKey{vhost, name}
	c := e.live[k]
	if c == nil {
		c = new(exchangeCounts)
		if e.live == nil {
			e.live = map[exchangeKey]*exchangeCounts{}
		}
		e.live[k] = c
	}
	return c
}

// to goes on with another exchange.
func (t *tally) to(e *exchangeCounts) {
	if t.exchange != e {
		t.flushExchange()
		t.exchange = e
	}
}

func (t *tally) flushExchange() {
	if t.exchange != nil {
		add(&t.exchange.in, t.in)
		add(&t.exchange.out, t.out)
	}
	t.in, t.out = 0, 0
}

// forget lets go of the exchanges that are no more; it is called now and then.
func (e *exchanges) forget(view *catalog.View) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for k := range e.live {
		if k.name != "" && view.Exchange(k.vhost, k.name) == nil || view.Vhost(k.vhost) == nil {
			delete(e.live, k)
		}
	}
}
