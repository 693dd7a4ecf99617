package process

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/warrenmq/warren/test/cluster"
)

// Bounds of when a dead letter may arrive, around its instant: machine time counts whole
// milliseconds, a leader that takes over a queue pauses it, and a test beside others may be
// starved.
const (
	expiryEarly = 3 * time.Millisecond
	expiryLate  = time.Second
	starvedLate = 3 * time.Second
)

// TestExpiryOnTime shows T14, and T15 where the leader of the queue dies in the middle:
// messages of random times to live die on time wherever they stand in the queue, once.
// `make soak` runs it with the case's 100,000 messages over a minute and its bound.
func TestExpiryOnTime(t *testing.T) {
	messages, spread, late := 3000, 5*time.Second, starvedLate
	if os.Getenv(soakEnv) != "" {
		messages, spread, late = 100_000, time.Minute, expiryLate
	}
	t.Run("T14", func(t *testing.T) { expireOnTime(t, messages, spread, late, false) })
	t.Run("T15 leader dies", func(t *testing.T) { expireOnTime(t, messages, spread, max(late, starvedLate), true) })
}

func expireOnTime(t *testing.T, messages int, spread, late time.Duration, killLeader bool) {
	c := startCluster(t, 3)
	s := at(t, c.Node(0))
	dead := plainQueue(s, "dead", nil)
	q := plainQueue(s, "q", deadTo(dead, nil))
	leader, others := leaderOf(t, c, q)
	s = at(t, others[0])
	begun := time.Now()
	due := s.publishExpiring(q, messages, spread)
	arrived := make(chan map[string]time.Time, 1)
	ctx, cancel := context.WithTimeout(t.Context(), spread+timeoutReply)
	defer cancel()
	_, deliveries := s.consume(dead, 500)
	go func() { arrived <- receive(ctx, t, deliveries, messages) }()
	if killLeader {
		time.Sleep(spread / 2)
		kill(t, leader)
	}
	got := <-arrived
	early, behind, worst := 0, 0, time.Duration(0)
	for body, want := range due {
		when, ok := got[body]
		switch after := when.Sub(want); {
		case !ok:
			t.Fatalf("%s has not arrived", body)
		case after < -expiryEarly:
			early++
		default:
			worst = max(worst, after)
		}
	}
	t.Logf("%d messages, the latest %v after its instant", messages, worst)
	late += 2 * cluster.Stalled(begun)
	behind = 0
	for body, want := range due {
		if got[body].Sub(want) > late {
			behind++
		}
	}
	if early > 0 || behind > 0 {
		t.Errorf("%d early, %d late, the latest by %v", early, behind, worst)
	}
	s.ready(q, 0)
}

// publishExpiring publishes messages with random times to live and returns the earliest
// instants at which they may die.
func (s *session) publishExpiring(q string, messages int, spread time.Duration) map[string]time.Time {
	s.Helper()
	due := make(map[string]time.Time, messages)
	var confirms []*amqp.DeferredConfirmation
	for i := range messages {
		ttl := time.Second + time.Duration(rand.Int64N(int64(spread-time.Second))).Truncate(time.Millisecond)
		m := expiring(fmt.Sprint("m", i), fmt.Sprint(ttl.Milliseconds()))
		due[string(m.Body)] = time.Now().Add(ttl)
		confirm, err := s.ch.PublishWithDeferredConfirmWithContext(s.Context(), "", q, false, false, m)
		s.noError("publish", err)
		confirms = append(confirms, confirm)
	}
	for _, confirm := range confirms {
		if !confirmed(s.T, confirm) {
			s.Fatal("not confirmed")
		}
	}
	return due
}

// receive acks deliveries until n different ones have come or ctx ends. A second copy of
// one fails the test.
func receive(ctx context.Context, t *testing.T, deliveries <-chan amqp.Delivery, n int) map[string]time.Time {
	got := make(map[string]time.Time, n)
	for len(got) < n {
		select {
		case d, ok := <-deliveries:
			if !ok {
				return got
			}
			if _, again := got[string(d.Body)]; again && !d.Redelivered {
				t.Errorf("%s came twice", d.Body)
			} else if !again {
				got[string(d.Body)] = time.Now()
			}
			_ = d.Ack(false)
		case <-ctx.Done():
			return got
		}
	}
	return got
}
