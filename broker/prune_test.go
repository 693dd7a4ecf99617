package broker

import (
	"fmt"
	"testing"
	"time"

	"github.com/warrenmq/warren/amqp"
)

// A channel that goes from queue to queue for ever keeps nothing of those that have ended, whatever it did with them, nor does its
// connection, nor the broker until what was held of them would be overdue.
func TestOneChannelForgetsQueuesThatEnd(t *testing.T) {
	b := newBroker(t)
	c := dial(t, b)
	c.declare("stays", amqp.Table{})
	stays := c.consume("stays", 10)
	for i := range 3 * pruneMin {
		name := fmt.Sprint("q", i)
		if i%2 == 0 {
			ok, err := c.conn.DeclareQueue(t.Context(), QueueDeclare{Exclusive: true, AutoDelete: true})
			if err != nil {
				t.Fatal(err)
			}
			name = ok.Name
		} else {
			c.declare(name, amqp.Table{})
		}
		c.put(name, "1", nil)
		c.put(name, "2", nil)
		x, err := c.ch.Consume(t.Context(), Consume{Queue: name, Tag: fmt.Sprint("tag", i), Prefetch: 1})
		if err != nil {
			t.Fatal(err)
		}
		c.take(1) // and not settled
		if i%4 == 0 {
			if err := x.Cancel(t.Context()); err != nil { // the queue goes with it
				t.Fatal(err)
			}
			continue
		}
		c.mustDelete(name)
		if len(c.ch.used) > 2*pruneMin || len(c.ch.consumers) > 2*pruneMin {
			t.Fatalf("after %d queues the channel knows %d and %d consumers", i+1, len(c.ch.used), len(c.ch.consumers))
		}
	}
	left := func() [5]int {
		// As when one more is used.
		c.ch.usedMax, c.ch.consumersMax, c.conn.exclusiveMax = 0, 0, 0
		c.ch.useOf(stays)
		c.ch.adds(stays)
		c.conn.owns(0, "")
		b.mu.Lock()
		defer b.mu.Unlock()
		return [5]int{len(c.ch.used), len(c.ch.consumers), len(c.conn.exclusive), len(b.streams), len(b.timed)}
	}
	for deadline := time.Now().Add(30 * time.Second); left() != [5]int{1, 1, 1, 1, 0}; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("left are %d used, %d consumers, %d exclusive, %d streams, %d timed; want 1, 1, 1, 1, 0", left()[0], left()[1], left()[2], left()[3], left()[4])
		}
	}
}
