package process

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/warrenmq/warren/test/cluster"
)

// pauseMax is the promise: publishing and consuming go on within a second.
const pauseMax = time.Second

// bound is how long something may take at most: what is promised, and twice what the machine has stalled since begin, because a
// leader that is late once may be elected once more. Nodes with the race detector are some four times slower.
func bound(promise time.Duration, begin time.Time) time.Duration {
	if os.Getenv(cluster.RaceEnv) != "" {
		promise *= 3
	}
	return promise + 2*cluster.Stalled(begin)
}

// pauses fails the test when publishing or consuming stood still for longer than is promised.
func (l *load) pauses(what string, confirms, deliveries time.Duration) {
	l.t.Helper()
	if most := bound(pauseMax, l.begun); confirms > most || deliveries > most {
		l.t.Errorf("%s: pauses of %v and %v are longer than %v", what, confirms, deliveries, most)
	}
}

// leaderOf returns the node that leads the queue, and the others.
func leaderOf(t *testing.T, c *cluster.Cluster, queue string) (leader *cluster.Node, others []*cluster.Node) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), timeoutReply)
	defer cancel()
	leader, err := c.Leader(ctx, queue)
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range c.Nodes() {
		if n != leader {
			others = append(others, n)
		}
	}
	return leader, others
}

// at returns a session through a node.
func at(t *testing.T, n *cluster.Node) *session {
	t.Helper()
	return newSession(t, target{name: n.Name, url: n.URL(), warren: true})
}

// plainQueue declares a durable queue that outlives the session.
func plainQueue(s *session, name string, args amqp.Table) string {
	s.Helper()
	if _, err := s.ch.QueueDeclare(name, true, false, false, false, args); err != nil {
		s.Fatalf("declare %s: %v", name, err)
	}
	return name
}

func start(t *testing.T, n *cluster.Node) {
	t.Helper()
	if err := started(t, n); err != nil {
		t.Fatal(err)
	}
}

// started starts a node from any goroutine.
func started(t *testing.T, n *cluster.Node) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), timeoutStart)
	defer cancel()
	return n.Start(ctx)
}

func kill(t *testing.T, n *cluster.Node) {
	t.Helper()
	if err := n.Kill(); err != nil {
		t.Fatal(err)
	}
}

// TestFailover kills the node that leads a queue under load, again and again.
// Clients of the other nodes notice nothing but a short pause.
func TestFailover(t *testing.T) {
	t.Parallel()
	c := startCluster(t, 3)
	for round := range 3 {
		t.Run(fmt.Sprint(round+1), func(t *testing.T) {
			queue := plainQueue(at(t, c.Node(round)), fmt.Sprint("failover", round+1), nil)
			leader, others := leaderOf(t, c, queue)
			l := startLoad(t, queue, others[0].URL(), []string{others[0].URL(), others[1].URL()}, 500)
			l.progress(300)
			kill(t, leader)
			l.progress(1000)
			start(t, leader)
			l.progress(300)
			confirms, deliveries := l.finish()
			l.pauses("failover", confirms, deliveries)
		})
	}
	t.Run("paused", func(t *testing.T) { pausedQueue(t, c) })
}

// TestFailoverUnacked kills the leader while a client of the dead node and a
// client of a living node hold messages. What the first held comes back, marked
// as redelivered and in order; what the second works on stays with it.
func TestFailoverUnacked(t *testing.T) {
	t.Parallel()
	c := startCluster(t, 3)
	queue := plainQueue(at(t, c.Node(0)), "unacked", nil)
	leader, others := leaderOf(t, c, queue)
	dying, living, third := at(t, leader), at(t, others[0]), at(t, others[1])

	living.fill(queue, numbered("a", 5)...)
	_, livingDeliveries := living.consume(queue, 5)
	kept := living.take(livingDeliveries, false, numbered("a", 5)...)
	living.fill(queue, numbered("b", 5)...)
	_, dyingDeliveries := dying.consume(queue, 5)
	dying.take(dyingDeliveries, false, numbered("b", 5)...)
	living.fill(queue, numbered("c", 3)...)
	third.ready(queue, 3)

	kill(t, leader)
	_, deliveries := third.consume(queue, 8)
	held := third.take(deliveries, true, numbered("b", 5)...)
	for i := range 3 { // never delivered before: the flag may be set, the order may not change
		if d := third.next(deliveries); string(d.Body) != fmt.Sprint("c", i+1) {
			t.Errorf("got %q, want c%d", d.Body, i+1)
		}
	}
	for _, d := range append(kept, held...) {
		living.noError("ack", d.Ack(false))
	}
	third.noError("close", third.conn.Close()) // returns c1 to c3, which the living consumer has room for
	for _, d := range living.take(livingDeliveries, true, numbered("c", 3)...) {
		living.noError("ack", d.Ack(false))
	}
	living.ready(queue, 0)
}

// TestFailoverDeadLetters kills leaders while a queue dead-letters everything
// it gets. Each message arrives once.
func TestFailoverDeadLetters(t *testing.T) {
	t.Parallel()
	c := startCluster(t, 3)
	s := at(t, c.Node(0))
	plainQueue(s, "dead", nil)
	plainQueue(s, "source", amqp.Table{"x-message-ttl": 50, "x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"})
	const each = 500
	total := 0
	for _, queue := range []string{"source", "dead", "source"} {
		victim, others := leaderOf(t, c, queue)
		p := at(t, others[0])
		half := numbered(fmt.Sprintf("%d-", total), each)
		p.fill("source", half[:each/2]...)
		kill(t, victim)
		p.fill("source", half[each/2:]...)
		total += each
		p.ready("dead", total)
		start(t, victim)
	}
	last := at(t, c.Node(1))
	last.ready("source", 0)
	seen := map[string]int{}
	for _, body := range last.drain("dead") {
		seen[body]++
		if seen[body] > 1 {
			t.Errorf("%q is there %d times", body, seen[body])
		}
	}
	if len(seen) != total {
		t.Errorf("%d of %d messages arrived", len(seen), total)
	}
}

// TestMajorityLost kills two of three nodes: nothing is confirmed any more, and
// everything goes on when one of them is back.
func TestMajorityLost(t *testing.T) {
	t.Parallel()
	c := startCluster(t, 3)
	s := at(t, c.Node(0))
	queue := plainQueue(s, "minority", nil)
	s.fill(queue, "before")
	kill(t, c.Node(1))
	kill(t, c.Node(2))
	confirm, err := s.ch.PublishWithDeferredConfirm("", queue, false, false, message("during"))
	if err != nil {
		t.Fatal(err)
	}
	select {
	case <-confirm.Done():
		t.Fatalf("one node of three has confirmed a message: %v", confirm.Acked())
	case <-time.After(1500 * time.Millisecond):
	}
	start(t, c.Node(1))
	ctx, cancel := context.WithTimeout(t.Context(), timeoutReply)
	defer cancel()
	if ok, err := confirm.WaitContext(ctx); err != nil || !ok {
		t.Fatalf("confirm after the majority is back: %v, %v", ok, err)
	}
	at(t, c.Node(1)).holds(queue, "before", "during")
}

// TestFailoverNoAck kills the node that leads a queue while a client of another node
// consumes without acks: what was under way to that client's node comes again.
func TestFailoverNoAck(t *testing.T) {
	t.Parallel()
	const messages = 4000
	c := startCluster(t, 3)
	queue := plainQueue(at(t, c.Node(0)), "noack", nil)
	leader, others := leaderOf(t, c, queue)
	s := at(t, others[0])
	s.fill(queue, numbered("m", messages)...)
	deliveries, err := s.channel(s.conn).Consume(queue, "", true, false, false, false, nil)
	s.noError("consume", err)
	seen := map[string]bool{}
	for len(seen) < messages {
		d := s.next(deliveries)
		if body := string(d.Body); seen[body] && !d.Redelivered {
			t.Fatalf("%s again, not marked as redelivered", body)
		}
		seen[string(d.Body)] = true
		if len(seen) == messages/4 {
			kill(t, leader)
		}
	}
	s.ready(queue, 0)
}
