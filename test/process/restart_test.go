package process

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/warrenmq/warren/test/cluster"
)

// TestFullRestart ends all nodes and starts them again: everything that was
// confirmed is there.
func TestFullRestart(t *testing.T) {
	t.Parallel()
	for _, size := range []int{1, 3} {
		for _, how := range []string{"stop", "kill"} {
			t.Run(fmt.Sprintf("%s %d", how, size), func(t *testing.T) {
				c := startCluster(t, size)
				before := fillEverything(t, c)
				if how == "kill" {
					if err := c.KillAll(); err != nil {
						t.Fatal(err)
					}
				} else {
					stopAll(t, c)
				}
				startAll(t, c)
				checkEverything(t, c, before)
			})
		}
	}
}

// fillEverything leaves a bit of everything behind that a restart must keep,
// and returns when its short-lived message was published.
func fillEverything(t *testing.T, c *cluster.Cluster) time.Time {
	t.Helper()
	s := at(t, c.Node(0))
	s.noError("exchange", s.ch.ExchangeDeclare("topics", "topic", true, false, false, false, nil))
	s.noError("exchange", s.ch.ExchangeDeclare("mornings", "fanout", true, false, false, false, nil))
	s.noError("bind", s.ch.ExchangeBind("mornings", "morning.#", "topics", false, nil))
	plainQueue(s, "bound", amqp.Table{"x-max-length": 100})
	s.bind("bound", "", "mornings", nil)
	s.publish("topics", "morning.one", message("bound"))

	plainQueue(s, "many", nil)
	s.fill("many", numbered("m", 1000)...)
	for range 100 {
		d, ok, err := s.ch.Get("many", true)
		if err != nil || !ok {
			t.Fatalf("get: %q, %v, %v", d.Body, ok, err)
		}
	}
	held := s.get("many")
	if string(held.Body) != "m101" {
		t.Fatalf("got %q", held.Body)
	}

	big := make([]byte, 3<<20)
	plainQueue(s, "big", nil)
	s.publish("", "big", amqp.Publishing{Body: big, DeliveryMode: 2, Headers: amqp.Table{"kind": "big"}})

	plainQueue(s, "dead", nil)
	plainQueue(s, "source", amqp.Table{"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"})
	s.fill("source", "rejected")
	s.noError("reject", s.get("source").Reject(false))
	s.ready("dead", 1)
	before := time.Now() // its life begins between here and the confirm
	s.publish("", "source", expiring("short-lived", "3000"))
	return before
}

func checkEverything(t *testing.T, c *cluster.Cluster, shortLived time.Time) {
	t.Helper()
	for i, n := range c.Nodes() {
		s := at(t, n)
		s.publish("topics", "morning.two", message(fmt.Sprint("after", i)))
	}
	s := at(t, c.Node(len(c.Nodes())-1))
	bound := []string{"bound"}
	for i := range c.Nodes() {
		bound = append(bound, fmt.Sprint("after", i))
	}
	s.holds("bound", bound...)

	s.ready("many", 900)
	_, deliveries := s.consume("many", 0)
	if d := s.next(deliveries); string(d.Body) != "m101" || !d.Redelivered {
		t.Errorf("got %q redelivered %v, want m101 redelivered", d.Body, d.Redelivered)
	}
	for i := 102; i <= 1000; i++ { // the flag may be set: nobody knows how far deliveries were
		if d := s.next(deliveries); string(d.Body) != fmt.Sprint("m", i) {
			t.Fatalf("got %q, want m%d", d.Body, i)
		}
	}

	if d := s.get("big"); len(d.Body) != 3<<20 || d.Headers["kind"] != "big" || d.DeliveryMode != 2 {
		t.Errorf("big message: %d bytes, %v", len(d.Body), d.Headers)
	}
	d := s.get("dead")
	checkDeaths(s, d, death{count: 1, reason: "rejected", queue: "source", keys: []string{"source"}})
	s.noError("ack", d.Ack(false))
	short := s.get("dead")
	if string(short.Body) != "short-lived" || time.Since(shortLived) < 2900*time.Millisecond {
		t.Errorf("got %q, %v after it was published with a life of 3s", short.Body, time.Since(shortLived))
	}
	checkDeaths(s, short, death{count: 1, reason: "expired", queue: "source", keys: []string{"source"}, expiration: "3000"})
	wantClosed(s, s.channel(s.conn), 406, "inequivalent arg 'x-max-length' for queue 'bound'", func(ch *amqp.Channel) error {
		return declare(ch, "bound", nil)
	})
}

// TestKillUnderLoad kills a single node while it is written to. What it
// confirmed is there, and nothing else appears.
func TestKillUnderLoad(t *testing.T) {
	t.Parallel()
	c := startCluster(t, 1)
	node := c.Node(0)
	plainQueue(at(t, node), "load", nil)
	confirmed := 0
	for round := range 3 {
		s := at(t, node)
		acks := s.ch.NotifyPublish(make(chan amqp.Confirmation, 1<<16))
		sent := 0
		for deadline := time.Now().Add(300 * time.Millisecond); time.Now().Before(deadline); sent++ {
			s.noError("publish", s.ch.PublishWithContext(t.Context(), "", "load", false, false, message("m")))
		}
		kill(t, node)
		this := 0
		for a := range acks { // the client closes it with the connection
			if a.Ack {
				this++
			}
		}
		start(t, node)
		q, err := at(t, node).ch.QueueDeclarePassive("load", true, false, false, false, nil)
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("round %d: %d sent, %d confirmed, %d there", round+1, sent, this, q.Messages-confirmed)
		if got := q.Messages - confirmed; got < this || got > sent {
			t.Errorf("round %d: %d messages are there, %d were confirmed and %d sent", round+1, got, this, sent)
		}
		confirmed = q.Messages
	}
}

// TestLaggingNode leaves a node behind, then makes the cluster depend on it.
func TestLaggingNode(t *testing.T) {
	t.Parallel()
	c := startCluster(t, 3)
	queue := plainQueue(at(t, c.Node(0)), "lag", nil)
	s := at(t, c.Node(0))
	s.fill(queue, numbered("a", 10)...)
	kill(t, c.Node(2))
	s.fill(queue, numbered("b", 2000)...)
	plainQueue(s, "declared-meanwhile", nil)
	s.fill("declared-meanwhile", "x")
	start(t, c.Node(2))
	late := at(t, c.Node(2))
	late.fill(queue, "c")
	kill(t, c.Node(0)) // the confirms of the rest need the node that was away
	late.fill(queue, "d")
	late.holds(queue, append(append(numbered("a", 10), numbered("b", 2000)...), "c", "d")...)
	late.holds("declared-meanwhile", "x")
}

// TestMovedNode brings nodes back under other addresses, one after another.
// They find their places by their names.
func TestMovedNode(t *testing.T) {
	t.Parallel()
	c := startCluster(t, 3)
	queue := plainQueue(at(t, c.Node(0)), "moved", nil)
	for i, n := range c.Nodes() {
		at(t, n).fill(queue, fmt.Sprint("before", i))
		stopNode(t, n)
		if err := n.Move(); err != nil {
			t.Fatal(err)
		}
		start(t, n)
		at(t, n).fill(queue, fmt.Sprint("after", i))
	}
	at(t, c.Node(1)).holds(queue, "before0", "after0", "before1", "after1", "before2", "after2")
}

// TestStartOrder starts the nodes of a new cluster one after another.
func TestStartOrder(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 3)
	for _, i := range []int{2, 0, 1} {
		if err := c.Node(i).Launch(); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), timeoutStart)
		err := cluster.Poll(ctx, func() (bool, error) {
			_, err := c.Node(i).Fetch(ctx, "/healthz")
			return err == nil, nil
		})
		cancel()
		if err != nil {
			t.Fatalf("%s does not answer: %v", c.Node(i).Name, err)
		}
		if _, err := c.Node(i).Fetch(t.Context(), "/readyz"); err == nil && i != 1 {
			t.Errorf("%s is ready without the others", c.Node(i).Name)
		}
	}
	startAll(t, c)
	queue := plainQueue(at(t, c.Node(2)), "order", nil)
	at(t, c.Node(0)).fill(queue, "one")
	at(t, c.Node(1)).holds(queue, "one")
}

// TestClustersStayApart points a founded node at another founded cluster.
func TestClustersStayApart(t *testing.T) {
	t.Parallel()
	one, two := startCluster(t, 1), startCluster(t, 1)
	plainQueue(at(t, one.Node(0)), "mine", nil)
	plainQueue(at(t, two.Node(0)), "yours", nil)
	stopNode(t, two.Node(0))
	if err := two.Node(0).Launch("--join", one.Node(0).GossipAddr()); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), timeoutStart)
	defer cancel()
	if err := two.Node(0).WaitReady(ctx); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		n           *cluster.Node
		has, hasNot string
	}{{one.Node(0), "mine", "yours"}, {two.Node(0), "yours", "mine"}} {
		s := at(t, tc.n)
		s.fill(tc.has, "m")
		s.holds(tc.has, "m")
		wantClosed(s, s.channel(s.conn), 404, "NOT_FOUND", func(ch *amqp.Channel) error {
			_, err := ch.QueueDeclarePassive(tc.hasNot, true, false, false, false, nil)
			return err
		})
	}
}

func stopNode(t *testing.T, n *cluster.Node) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), timeoutStop)
	defer cancel()
	if err := n.Stop(ctx); err != nil {
		t.Fatal(err)
	}
}

// TestCleanStop stops a node that clients use: it tells them, and ends with
// exit code 0.
func TestCleanStop(t *testing.T) {
	t.Parallel()
	c := startCluster(t, 1)
	s := at(t, c.Node(0))
	closed := s.conn.NotifyClose(make(chan *amqp.Error, 1))
	stopNode(t, c.Node(0))
	select {
	case err := <-closed:
		var refused *amqp.Error
		if !errors.As(err, &refused) || refused.Code != amqp.ConnectionForced {
			t.Errorf("the client was told %v, want 320", err)
		}
	case <-time.After(timeoutReply):
		t.Error("the client was not told")
	}
}
