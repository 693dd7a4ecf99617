package broker

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/warrenmq/warren/catalog"
)

// TestConsumersOfUnusedQueuesStay has clients declare, consume and cancel one auto-delete queue at once: who gets it keeps
// it, everybody else hears that there is none.
func TestConsumersOfUnusedQueuesStay(t *testing.T) {
	for name, durable := range map[string]bool{"durable": true, "transient": false} {
		t.Run(name, func(t *testing.T) {
			b := newBroker(t)
			var had atomic.Int64
			var g sync.WaitGroup
			// For so long, and on a machine that is slow until there was something to see.
			least, most := time.Now().Add(700*time.Millisecond), time.Now().Add(30*time.Second)
			for range 4 {
				c := dial(t, b)
				g.Go(func() {
					for now := time.Now(); now.Before(least) || had.Load() < 10 && now.Before(most); now = time.Now() {
						had.Add(c.consumesOnce(QueueDeclare{Name: "q", Durable: durable, AutoDelete: true}))
					}
				})
			}
			g.Wait()
			if had.Load() < 10 {
				t.Errorf("only %d consumers", had.Load())
			}
		})
	}
}

// consumesOnce declares a queue, consumes from it and cancels; 1 if the consumer was let in.
func (c *client) consumesOnce(d QueueDeclare) int64 {
	if _, err := c.conn.DeclareQueue(c.t.Context(), d); err != nil {
		c.t.Errorf("declare: %v", err)
		return 0
	}
	x, err := c.ch.Consume(c.t.Context(), Consume{Queue: d.Name, Tag: "t"})
	if err != nil {
		if !isNotFound(err) {
			c.t.Errorf("consume: %v", err)
		}
		return 0
	}
	if err := x.Cancel(c.t.Context()); err != nil {
		c.t.Errorf("cancel: %v", err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.cancelled) > 0 {
		c.t.Errorf("the queue of a consumer was deleted")
		c.cancelled = nil
	}
	return 1
}

// outage is a catalog that takes no deletion of a queue while it is down.
type outage struct {
	Catalog
	down  chan struct{} // closed when it is over
	asked chan struct{}
}

func (c outage) Propose(ctx context.Context, cmd catalog.Command) (catalog.Result, error) {
	if _, deletes := cmd.(*catalog.DeleteQueue); deletes {
		select {
		case c.asked <- struct{}{}:
		default:
		}
		select {
		case <-c.down:
		case <-ctx.Done():
			return catalog.Result{}, fmt.Errorf("%w: %w", catalog.ErrUnknownOutcome, ctx.Err())
		}
	}
	return c.Catalog.Propose(ctx, cmd)
}

// TestUnusedQueueOfAnOutage: a queue that nobody uses ends although the catalog cannot hear of it. Nobody gets it any more, so that
// nobody loses it when the catalog is back; and then its name is free.
func TestUnusedQueueOfAnOutage(t *testing.T) {
	for name, tc := range map[string]struct {
		d     QueueDeclare
		unuse func(*client)
	}{
		"auto-delete": {QueueDeclare{AutoDelete: true}, func(c *client) {
			c.consume("q", 1)
			c.conn.Close(c.t.Context())
		}},
		"expired": {QueueDeclare{Durable: true, Arguments: table("x-expires", int32(30))}, func(*client) {}},
	} {
		t.Run(name, func(t *testing.T) {
			cat := outage{down: make(chan struct{}), asked: make(chan struct{}, 1)}
			b := newBrokerBehind(t, func(real Catalog) Catalog { cat.Catalog = real; return cat })
			first, c := dial(t, b), dial(t, b)
			tc.d.Name = "q"
			if _, err := first.conn.DeclareQueue(t.Context(), tc.d); err != nil {
				t.Fatal(err)
			}
			tc.unuse(first)
			<-cat.asked
			if _, err := c.ch.Consume(t.Context(), Consume{Queue: "q", Tag: "t"}); !isNotFound(err) {
				t.Errorf("consume: %v, want that there is no queue", err)
			}
			passive := QueueDeclare{Name: "q", Passive: true}
			if _, err := c.conn.DeclareQueue(t.Context(), passive); !isNotFound(err) {
				t.Errorf("passive declaration: %v, want that there is no queue", err)
			}
			close(cat.down)
			if tc.d.Arguments != nil { // else the declaration itself tells the catalog
				c.await("the end", func() bool { return b.cat.View().Queue("/", "q") == nil })
			}
			tc.d.Arguments = nil
			if _, err := c.conn.DeclareQueue(t.Context(), tc.d); err != nil {
				t.Fatalf("declared anew: %v", err)
			}
			c.consume("q", 0)
			c.put("q", "m", nil)
			c.take(1)
			if len(c.cancelled) > 0 {
				t.Error("the new queue was deleted, too")
			}
		})
	}
}

// TestUnusedQueueIsDeclaredAnew: a queue that has ended is no hindrance to who declares one of its name before the
// catalog was told by the queue's leader.
func TestUnusedQueueIsDeclaredAnew(t *testing.T) {
	b := newBroker(t)
	c := dial(t, b)
	for i := range 20 {
		d := QueueDeclare{Name: "q", AutoDelete: true}
		if _, err := c.conn.DeclareQueue(t.Context(), d); err != nil {
			t.Fatal(err)
		}
		o := dial(t, b)
		_, err := o.ch.Consume(t.Context(), Consume{Queue: "q", Tag: "t"})
		if err != nil && !isNotFound(err) { // the one before may have ended it only now
			t.Fatal(err)
		}
		go o.conn.Close(context.WithoutCancel(t.Context()))
		if i%2 == 0 {
			time.Sleep(time.Duration(i) * 20 * time.Microsecond)
		}
		if _, err := c.conn.DeclareQueue(t.Context(), d); err != nil {
			t.Fatalf("declared anew: %v", err)
		}
	}
}
