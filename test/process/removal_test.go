package process

import (
	"regexp"
	"slices"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"
)

// TestDeadLetterOnRemoval has queues that dead-letter what is left in them when they go.
func TestDeadLetterOnRemoval(t *testing.T) {
	t.Parallel()
	onRemoval := func(dlq string) amqp.Table {
		return amqp.Table{"x-dead-letter-exchange": "", "x-dead-letter-routing-key": dlq, "x-dead-letter-on-removal": true}
	}
	bodies := numbered("m", 7)
	arrived := func(s *session, dlq string) {
		s.Helper()
		s.ready(dlq, len(bodies))
		_, deliveries := s.consume(dlq, 0)
		for range bodies {
			d := s.next(deliveries)
			if !slices.Contains(bodies, string(d.Body)) || d.Headers["x-first-death-reason"] != "queue_removed" {
				s.Errorf("%s: %v", d.Body, d.Headers)
			}
			s.noError("ack", d.Ack(false))
		}
	}
	t.Run("E12 auto-delete with five ready and two unacked", func(t *testing.T) {
		c := ctlCluster(t)
		s := at(t, c.Node(0))
		dlq := s.queue("dead", nil)
		name := s.name("auto")
		_, err := s.ch.QueueDeclare(name, true, true, false, false, onRemoval(dlq))
		s.noError("declare", err)
		other := at(t, c.Node(1))
		_, deliveries := other.consume(name, 2)
		s.fill(name, bodies...)
		other.take(deliveries, false, bodies[:2]...)
		s.noError("close", other.conn.Close())
		arrived(s, dlq)
	})
	t.Run("an exclusive queue goes with its connection", func(t *testing.T) {
		c := ctlCluster(t)
		s := at(t, c.Node(0))
		dlq := s.queue("dead", nil)
		other := at(t, c.Node(1))
		name := s.name("exclusive")
		_, err := other.ch.QueueDeclare(name, false, false, true, false, onRemoval(dlq))
		s.noError("declare", err)
		other.fill(name, bodies...)
		s.noError("close", other.conn.Close())
		arrived(s, dlq)
	})
	t.Run("a policy asks for it", func(t *testing.T) {
		c := ctlCluster(t)
		s := at(t, c.Node(0))
		dlq, q := s.queue("dead", nil), s.queue("governed", nil)
		mustCtl(t, c.Node(1), "set_policy", s.name("keep"), "^"+regexp.QuoteMeta(q)+"$",
			`{"dead-letter-exchange":"","dead-letter-routing-key":"`+dlq+`","dead-letter-on-removal":true}`, "--apply-to", "queues")
		defer mustCtl(t, c.Node(1), "clear_policy", s.name("keep"))
		s.fill(q, bodies...)
		_, err := s.ch.QueueDelete(q, false, false, false)
		s.noError("delete", err)
		arrived(s, dlq)
	})
	t.Run("the leader dies", func(t *testing.T) {
		c := startCluster(t, 3)
		s := at(t, c.Node(0))
		plainQueue(s, "dead", nil)
		plainQueue(s, "mortal", onRemoval("dead"))
		many := numbered("k", 3000)
		s.fill("mortal", many...)
		victim, others := leaderOf(t, c, "mortal")
		p := at(t, others[0])
		_, err := p.ch.QueueDelete("mortal", false, false, false)
		p.noError("delete", err)
		kill(t, victim)
		p.ready("dead", len(many))
		got := payloads(peekAll(t, others[1], "dead", "count=1000"))
		slices.Sort(got)
		slices.Sort(many)
		if !slices.Equal(got, many) {
			t.Errorf("%d of %d, %d distinct", len(got), len(many), len(slices.Compact(got)))
		}
		start(t, victim)
	})
}
