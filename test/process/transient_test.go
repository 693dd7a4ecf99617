package process

import (
	"context"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/warrenmq/warren/test/cluster"
)

// softTopology declares exchanges that are not durable, before and behind a durable one.
func softTopology(s *session) {
	s.Helper()
	for _, name := range []string{"soft", "softer"} {
		s.noError("declare", s.ch.ExchangeDeclare(name, "fanout", false, false, false, false, nil))
	}
	s.noError("declare", s.ch.ExchangeDeclare("hard", "fanout", true, false, false, false, nil))
	s.noError("declare", s.ch.ExchangeDeclare("softdelay", "x-delayed-message", false, false, false, false, amqp.Table{"x-delayed-type": "fanout"}))
	s.noError("declare", declare(s.ch, "q", nil))
	s.noError("bind", s.ch.ExchangeBind("soft", "", "hard", false, nil))
	s.bind("q", "", "soft", nil)
	s.bind("q", "", "softdelay", nil)
	s.publish("hard", "", message("through both"))
	s.holds("q", "through both")
}

// X: a cluster that ends as a whole forgets what is not durable, as RabbitMQ does; one that is
// restarted node by node keeps it.
func TestTransientExchanges(t *testing.T) {
	t.Parallel()
	needWarren(t)
	for _, size := range []int{1, 3} {
		t.Run(map[int]string{1: "single", 3: "three"}[size], func(t *testing.T) {
			c := startCluster(t, size)
			s := at(t, c.Node(0))
			softTopology(s)
			if size > 1 {
				for i := range size {
					restartNode(t, c.Node(i))
				}
				s = at(t, c.Node(0))
				s.publish("hard", "", message("after a rolling restart"))
				s.holds("q", "after a rolling restart")
			}
			if err := c.KillAll(); err != nil {
				t.Fatal(err)
			}
			startAll(t, c)
			s = at(t, c.Node(0))
			s.until("the exchanges to go", func() bool {
				err := s.channel(s.conn).ExchangeDeclarePassive("softdelay", "fanout", false, false, false, false, nil)
				return err != nil
			})
			for _, name := range []string{"soft", "softer", "softdelay"} {
				s.missing(name)
			}
			if !s.comesBack("hard", "", message("its binding to a transient one is gone")) {
				t.Error("a message found a way")
			}
			// They can be declared anew, and otherwise.
			s.noError("declare", s.ch.ExchangeDeclare("soft", "direct", true, false, false, false, nil))
			s.ready("q", 0)
		})
	}
}

// A client that declares its exchange again after a full restart keeps it, though a node comes
// back later.
func TestTransientExchangeDeclaredAgain(t *testing.T) {
	t.Parallel()
	c := startCluster(t, 3)
	s := at(t, c.Node(0))
	softTopology(s)
	if err := c.KillAll(); err != nil {
		t.Fatal(err)
	}
	for i := range 2 {
		if err := c.Node(i).Launch(); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), timeoutStart)
	defer cancel()
	for i := range 2 {
		if err := c.Node(i).WaitReady(ctx); err != nil {
			t.Fatal(err)
		}
	}
	s = at(t, c.Node(1))
	s.noError("declare", s.ch.ExchangeDeclare("soft", "fanout", false, false, false, false, nil))
	s.bind("q", "", "soft", nil)
	if err := c.Node(2).Start(ctx); err != nil {
		t.Fatal(err)
	}
	s.until("the others to go", func() bool {
		return s.channel(s.conn).ExchangeDeclarePassive("softer", "fanout", false, false, false, false, nil) != nil
	})
	s.publish("soft", "", message("still here"))
	s.holds("q", "still here")
}

func restartNode(t *testing.T, n *cluster.Node) {
	t.Helper()
	if err := n.Kill(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), timeoutStart)
	defer cancel()
	if err := n.Start(ctx); err != nil {
		t.Fatal(err)
	}
}
