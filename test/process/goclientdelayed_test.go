package process

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/warrenmq/warren/client"
	"github.com/warrenmq/warren/test/cluster"
)

// goDelayer publishes delayed messages and takes them back at about the time at which they are due, and some long before.
type goDelayer struct {
	c               *client.Client
	exchange, queue string

	mu        sync.Mutex
	n         int
	cancelled map[string]bool // false: it has gone on
	seen      map[string]bool
}

// newGoDelayer declares an exchange that keeps messages back and a queue to which they go then, both led by the node of setup.
func newGoDelayer(ctx context.Context, t *testing.T, setup, c *client.Client) *goDelayer {
	t.Helper()
	d := &goDelayer{c: c, exchange: "late", queue: "late.due", cancelled: map[string]bool{}, seen: map[string]bool{}}
	if err := setup.DeclareExchange(ctx, client.Exchange{Name: d.exchange, Type: "x-delayed-message", Arguments: client.Table{"x-delayed-type": "fanout"}}); err != nil {
		t.Fatal(err)
	}
	if _, err := setup.DeclareQueue(ctx, client.Queue{Name: d.queue, Type: "quorum"}); err != nil {
		t.Fatal(err)
	}
	if err := setup.Bind(ctx, client.Binding{Source: d.exchange, Queue: d.queue}); err != nil {
		t.Fatal(err)
	}
	return d
}

// work publishes one message after the other until end is closed.
func (d *goDelayer) work(ctx context.Context, t *testing.T, end chan struct{}) {
	for {
		select {
		case <-end:
			return
		default:
		}
		d.mu.Lock()
		d.n++
		body, early := fmt.Sprint(d.n), d.n%4 == 0
		d.mu.Unlock()
		delay := 100*time.Millisecond + rand.N(400*time.Millisecond)
		if early {
			delay = time.Hour
		}
		due := time.Now().Add(delay)
		call, cancel := context.WithTimeout(ctx, 5*time.Second)
		h, err := d.c.PublishDelayed(call, &client.Message{Exchange: d.exchange, Body: []byte(body)}, delay)
		cancel()
		if err != nil {
			continue // it may be there, and nobody can take it back
		}
		if !early {
			time.Sleep(time.Until(due) - 80*time.Millisecond + rand.N(120*time.Millisecond))
		}
		cancelled, err := d.c.CancelDelayed(ctx, h)
		if err != nil {
			t.Errorf("message %s: %v", body, err)
			continue
		}
		if again, err := d.c.CancelDelayed(ctx, h); err != nil || again != cancelled {
			t.Errorf("message %s was cancelled: %v, and when asked again: %v, %v", body, cancelled, again, err)
		}
		if early && !cancelled {
			t.Errorf("message %s could not be taken back, an hour before it is due", body)
		}
		d.mu.Lock()
		d.cancelled[body] = cancelled
		d.mu.Unlock()
	}
}

func (d *goDelayer) consume(ctx context.Context, t *testing.T) {
	if err := d.c.Consume(ctx, d.queue, client.ConsumerConfig{}, func(_ context.Context, x *client.Delivery) error {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.seen[string(x.Body)] = true
		return nil
	}); err != nil {
		t.Error(err)
	}
}

// check waits for the messages that have gone on; those that were taken back are not there.
func (d *goDelayer) check(ctx context.Context, t *testing.T) {
	t.Helper()
	gone := 0
	if err := cluster.Poll(ctx, func() (bool, error) {
		d.mu.Lock()
		defer d.mu.Unlock()
		gone = 0
		for body, cancelled := range d.cancelled {
			if !cancelled {
				gone++
				if !d.seen[body] {
					return false, nil
				}
			}
		}
		return true, nil
	}); err != nil {
		t.Errorf("not all of %d messages that could not be taken back have come: %v", gone, err)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, body := range slices.Sorted(maps.Keys(d.seen)) {
		if d.cancelled[body] {
			t.Errorf("message %s was taken back and came", body)
		}
	}
	back := len(d.cancelled) - gone
	if back == 0 || gone == 0 {
		t.Errorf("%d delayed messages were taken back, %d were not: it shows nothing", back, gone)
	}
	t.Logf("%d delayed messages were taken back, %d were not", back, gone)
}
