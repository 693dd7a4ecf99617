package process

import (
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/warrenmq/warren/test/cluster"
)

// TestExpiryAmongMany shows W5: among messages with times to live of all lengths, those whose instant has come
// die at it, wherever they stand, and nobody looks at the others for it. `make soak` runs it with ten million
// and the bound of 100 ms. (Nodes with invariants look at all messages after each entry, so there are few else.)
func TestExpiryAmongMany(t *testing.T) {
	others, publishers, probes, late := 1_000, 2, 60, starvedLate
	if os.Getenv(soakEnv) != "" {
		others, publishers, probes, late = 10_000_000, 8, 200, 100*time.Millisecond
	}
	c := startCluster(t, 3)
	s := at(t, c.Node(0))
	dead := plainQueue(s, "dead", nil)
	q := plainQueue(s, "q", deadTo(dead, nil))
	leader, _ := leaderOf(t, c, q)
	began := time.Now()
	var wg sync.WaitGroup
	for i := range publishers {
		publisher := at(t, c.Node(i%3))
		wg.Go(func() { publisher.publishLasting(q, others/publishers) })
	}
	wg.Wait()
	t.Logf("%d messages in %v, the leader has %d MiB", others, time.Since(began).Round(time.Second), residentBytes(t, leader.PID(), "VmRSS:")>>20)
	if t.Failed() {
		return
	}
	if others > 1_000_000 {
		time.Sleep(20 * time.Second) // snapshots and gathering come to rest
	}
	_, deliveries := s.consume(dead, 100)
	due := make(map[string]time.Time, probes)
	var mu sync.Mutex
	from := at(t, leader)
	wg.Go(func() {
		for i := range probes {
			ttl := time.Duration(100+rand.IntN(3000)) * time.Millisecond
			m := expiring(fmt.Sprint("p", i), fmt.Sprint(ttl.Milliseconds()))
			mu.Lock()
			due[string(m.Body)] = time.Now().Add(ttl)
			mu.Unlock()
			c, err := from.ch.PublishWithDeferredConfirm("", q, false, false, m)
			if err != nil || !confirmed(t, c) {
				t.Errorf("a publish failed: %v", err)
				return
			}
			time.Sleep(25 * time.Millisecond)
		}
	})
	var after []time.Duration
	for range probes {
		select {
		case d := <-deliveries:
			now := time.Now()
			mu.Lock()
			after = append(after, now.Sub(due[string(d.Body)]))
			mu.Unlock()
			s.noError("ack", d.Ack(false))
		case <-time.After(timeoutReply):
			t.Fatalf("%d of %d have died", len(after), probes)
		}
	}
	wg.Wait()
	slices.Sort(after)
	t.Logf("%d died among %d: p50 %v, p99 %v, the latest %v after its instant", probes, others, after[probes/2], after[probes*99/100], after[probes-1])
	if after[0] < -expiryEarly || after[probes-1] > late+2*cluster.Stalled(began) {
		t.Errorf("the first %v, the last %v after its instant", after[0], after[probes-1])
	}
	s.ready(q, others)
}

// publishLasting publishes n messages that live for one to two hours, with a window of unconfirmed ones.
func (s *session) publishLasting(q string, n int) {
	s.Helper()
	const window = 2000
	confirms := s.ch.NotifyPublish(make(chan amqp.Confirmation, window))
	open := 0
	await := func(most int) bool {
		for open > most {
			select {
			case c, ok := <-confirms:
				if !ok || !c.Ack {
					s.Errorf("a publish was refused, or the channel is closed (%v)", !ok)
					return false
				}
				open--
			case <-time.After(timeoutReply):
				s.Error("no confirm")
				return false
			}
		}
		return true
	}
	for range n {
		if !await(window - 1) {
			return
		}
		m := amqp.Publishing{DeliveryMode: amqp.Persistent, Expiration: fmt.Sprint(3_600_000 + rand.IntN(3_600_000)), Body: []byte("o")}
		if err := s.ch.PublishWithContext(s.Context(), "", q, false, false, m); err != nil {
			s.Errorf("publish: %v", err)
			return
		}
		open++
	}
	await(0)
}
