package process

import (
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/warrenmq/warren/test/cluster"
)

// TestClocksApart has three nodes whose clocks are some hundred milliseconds apart, as they are on machines that nobody
// sets them on. A message lives as long as it should, through whichever nodes its queue's leadership goes.
func TestClocksApart(t *testing.T) {
	t.Parallel()
	const life = 4 * time.Second
	binary, err := shared.stoppable()
	if err != nil {
		t.Fatal(err)
	}
	c := newCluster(t, 3, func(cfg *cluster.Config) { cfg.Binary = binary })
	for i, offset := range []string{"-450ms", "0s", "450ms"} {
		c.Node(i).SetEnv(cluster.ClockEnv + "=" + offset)
	}
	startAll(t, c)
	s := at(t, c.Node(0))
	dead := plainQueue(s, "dead", nil)
	q := plainQueue(s, "q", deadTo(dead, amqp.Table{"x-queue-leader-locator": "client-local"}))
	_, deliveries := s.consume(dead, 10)
	leadBy(t, c, q, c.Node(0)) // machine time is that of the clock that is behind
	published := time.Now()
	m := message("short-lived")
	m.Expiration = "4000"
	s.publish("", q, m)
	leadBy(t, c, q, c.Node(2))
	var lived time.Duration
	select {
	case d := <-deliveries:
		lived = time.Since(published)
		if err := d.Ack(false); err != nil {
			t.Fatal(err)
		}
	case <-time.After(timeoutReply):
		t.Fatal("the message has not expired")
	}
	// What the nodes know of each other's clocks is as exact as their fastest answers.
	if lived < life-100*time.Millisecond {
		t.Errorf("lived %v, want %v", lived, life)
	}
}

// leadBy has a queue led by a node.
func leadBy(t *testing.T, c *cluster.Cluster, q string, n *cluster.Node) {
	t.Helper()
	await(t, timeoutReply, n.Name+" leads "+q, func() bool {
		leader, err := c.Leader(t.Context(), q)
		if err == nil && leader != n {
			ctl(t, n, "transfer_leadership", "-q", q, n.Name)
		}
		return err == nil && leader == n
	})
}

// TestClockSetBack stops a node whose clock was an hour ahead and starts it with one that is right, as after somebody has set
// it. What waits for its time goes on waiting for that long, and not for an hour more.
func TestClockSetBack(t *testing.T) {
	t.Parallel()
	const life = 3 * time.Second
	binary, err := shared.stoppable()
	if err != nil {
		t.Fatal(err)
	}
	c := newCluster(t, 1, func(cfg *cluster.Config) { cfg.Binary = binary })
	c.Node(0).SetEnv(cluster.ClockEnv + "=1h")
	startAll(t, c)
	s := at(t, c.Node(0))
	plainQueue(s, "dead", nil)
	plainQueue(s, "q", deadTo("dead", nil))
	s.noError("declare", s.ch.ExchangeDeclare("delayed", "x-delayed-message", true, false, false, false, amqp.Table{"x-delayed-type": "fanout"}))
	s.noError("bind", s.ch.QueueBind("dead", "", "delayed", false, nil))
	published := time.Now()
	m := message("short-lived")
	m.Expiration = "3000"
	s.publish("", "q", m)
	m = message("delayed")
	m.Headers = amqp.Table{"x-delay": life.Milliseconds()}
	s.publish("delayed", "", m)
	stopAll(t, c)
	c.Node(0).SetEnv(cluster.ClockEnv + "=0s")
	startAll(t, c)
	_, deliveries := at(t, c.Node(0)).consume("dead", 10)
	for range 2 {
		select {
		case d := <-deliveries:
			if lived := time.Since(published); lived < life {
				t.Errorf("%s came after %v, want %v", d.Body, lived, life)
			}
		case <-time.After(timeoutReply):
			t.Fatal("what waited has not come")
		}
	}
}
