package process

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

// load publishes numbered messages at a fixed rate over one connection and
// consumes them over others, none of which may be lost. It keeps the books.
type load struct {
	t     *testing.T
	queue string
	begun time.Time // when its pauses begin to count

	mu            sync.Mutex
	confirmed     map[int]bool
	refused       int
	received      map[int]int
	unflagged     int // second deliveries without the redelivered flag
	redelivered   int
	lastConfirm   time.Time
	lastDelivery  time.Time
	confirmPause  time.Duration
	deliveryPause time.Duration
	sent          int
	closed        []string // connections that ended by themselves

	stop  context.CancelFunc
	group sync.WaitGroup
}

// startLoad publishes through one URL and consumes through the others.
func startLoad(t *testing.T, queue, publish string, consume []string, rate int) *load {
	t.Helper()
	l := &load{t: t, queue: queue, begun: time.Now(), confirmed: map[int]bool{}, received: map[int]int{}}
	for i, url := range consume {
		l.consume(fmt.Sprintf("consumer %d", i+1), url)
	}
	ctx, cancel := context.WithCancel(t.Context())
	l.stop = cancel
	ch := l.open("publisher", publish)
	l.group.Go(func() { l.publish(ctx, ch, rate) })
	t.Cleanup(cancel)
	return l
}

func (l *load) open(name, url string) *amqp.Channel {
	l.t.Helper()
	conn, err := connectWith(url, amqp.Config{Heartbeat: 10 * time.Second})
	if err != nil {
		l.t.Fatalf("%s: %v", name, err)
	}
	l.t.Cleanup(func() { conn.Close() })
	ch, err := conn.Channel()
	if err == nil {
		err = ch.Confirm(false)
	}
	if err != nil {
		l.t.Fatalf("%s: %v", name, err)
	}
	closed := ch.NotifyClose(make(chan *amqp.Error, 1))
	go func() { // ends with the channel
		if err := <-closed; err != nil {
			l.mu.Lock()
			defer l.mu.Unlock()
			l.closed = append(l.closed, fmt.Sprintf("%s: %v", name, err))
		}
	}()
	return ch
}

func (l *load) publish(ctx context.Context, ch *amqp.Channel, rate int) {
	confirms := ch.NotifyPublish(make(chan amqp.Confirmation, 1<<16))
	l.group.Go(func() {
		for c := range confirms {
			l.confirm(c)
		}
	})
	tick := time.NewTicker(time.Second / time.Duration(rate))
	defer tick.Stop()
	for n := 1; ; n++ {
		select {
		case <-ctx.Done():
			l.untilConfirmed(n - 1)
			ch.Close()
			return
		case <-tick.C:
		}
		l.mu.Lock()
		l.sent = n
		l.mu.Unlock()
		if err := ch.Publish("", l.queue, false, false, message(strconv.Itoa(n))); err != nil {
			return // noted by the watcher of the channel
		}
	}
}

// untilConfirmed waits for the confirms of everything that was sent.
func (l *load) untilConfirmed(sent int) {
	for deadline := time.Now().Add(timeoutReply); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		l.mu.Lock()
		done := len(l.confirmed)+l.refused >= sent || len(l.closed) > 0
		l.mu.Unlock()
		if done {
			return
		}
	}
}

func (l *load) confirm(c amqp.Confirmation) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !c.Ack {
		l.refused++
		return
	}
	l.confirmed[int(c.DeliveryTag)] = true
	now := time.Now()
	if !l.lastConfirm.IsZero() {
		l.confirmPause = max(l.confirmPause, now.Sub(l.lastConfirm))
	}
	l.lastConfirm = now
}

func (l *load) consume(name, url string) {
	l.t.Helper()
	ch := l.open(name, url)
	if err := ch.Qos(50, 0, false); err != nil {
		l.t.Fatalf("%s: %v", name, err)
	}
	deliveries, err := ch.Consume(l.queue, "", false, false, false, false, nil)
	if err != nil {
		l.t.Fatalf("%s: %v", name, err)
	}
	go func() { // ends with the channel
		for d := range deliveries {
			l.receive(d)
			d.Ack(false)
		}
	}()
}

func (l *load) receive(d amqp.Delivery) {
	n, err := strconv.Atoi(string(d.Body))
	l.mu.Lock()
	defer l.mu.Unlock()
	if err != nil {
		l.t.Errorf("delivery %q", d.Body)
		return
	}
	l.received[n]++
	switch {
	case d.Redelivered:
		l.redelivered++
	case l.received[n] > 1:
		l.unflagged++
	}
	now := time.Now()
	if !l.lastDelivery.IsZero() {
		l.deliveryPause = max(l.deliveryPause, now.Sub(l.lastDelivery))
	}
	l.lastDelivery = now
}

// progress waits until n more messages were confirmed and delivered.
func (l *load) progress(n int) {
	l.t.Helper()
	l.mu.Lock()
	confirmed, received := len(l.confirmed)+n, len(l.received)+n
	l.mu.Unlock()
	l.until(fmt.Sprintf("%d more messages", n), func() bool {
		return len(l.confirmed) >= confirmed && len(l.received) >= received
	})
}

func (l *load) until(what string, done func() bool) {
	l.t.Helper()
	for deadline := time.Now().Add(timeoutReply); ; time.Sleep(5 * time.Millisecond) {
		l.mu.Lock()
		ok, closed := done(), l.closed
		l.mu.Unlock()
		switch {
		case ok:
			return
		case len(closed) > 0:
			l.t.Fatalf("waiting for %s: %q", what, closed)
		case time.Now().After(deadline):
			l.t.Fatalf("waited in vain for %s", what)
		}
	}
}

// finish stops publishing, waits until every confirmed message was delivered
// and checks the books. It returns the longest pauses.
func (l *load) finish() (confirms, deliveries time.Duration) {
	l.t.Helper()
	l.stop()
	l.group.Wait()
	l.until("the delivery of every confirmed message", func() bool {
		for n := range l.confirmed {
			if l.received[n] == 0 {
				return false
			}
		}
		return true
	})
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.closed) > 0 {
		l.t.Errorf("clients of living nodes were disconnected: %q", l.closed)
	}
	if len(l.confirmed) != l.sent || l.refused > 0 {
		l.t.Errorf("%d of %d publishes were confirmed, %d refused", len(l.confirmed), l.sent, l.refused)
	}
	if l.unflagged > 0 {
		l.t.Errorf("%d second deliveries without the redelivered flag", l.unflagged)
	}
	l.t.Logf("%d confirmed, %d redelivered, longest pause of confirms %v, of deliveries %v",
		len(l.confirmed), l.redelivered, l.confirmPause.Round(time.Millisecond), l.deliveryPause.Round(time.Millisecond))
	return l.confirmPause, l.deliveryPause
}
