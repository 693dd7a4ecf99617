package process

import (
	"context"
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/warrenmq/warren/failpoint"
	"github.com/warrenmq/warren/test/cluster"
)

// TestApsaraRules shows what ApsaraMQ does with dead letters that nobody can or wants to take, as
// far as a queue asks for it. E05.
func TestApsaraRules(t *testing.T) {
	t.Parallel()
	c := stoppableCluster(t)
	for _, tc := range []struct {
		name string
		run  func(*session)
	}{
		{"E05 a message rejected seventeen times, and a dead-letter queue's ttl", rejectedSeventeenTimes},
		{"a time to live that is not for dead letters", spareDeadLetters},
		{"W19 cycles stop the clock", cyclesStay},
		{"W19 hops stop the clock", hopsStay},
		{"arguments of the four rules", apsaraArguments},
	} {
		t.Run(tc.name, func(t *testing.T) { tc.run(at(t, c.Node(0))) })
	}
	t.Run("W19 the leader is killed before it has decided", func(t *testing.T) { staysThroughKills(t, c) })
}

func rejectedSeventeenTimes(s *session) {
	dead := s.queue("dead", amqp.Table{"x-message-ttl": 100, "x-message-ttl-dead-letters": false})
	q := s.queue("q", deadTo(dead, amqp.Table{"x-delivery-limit": 16, "x-dead-letter-death-total": true}))
	s.publish("", q, expiring("m", "60000"))
	_, deliveries := s.consume(q, 1)
	for range 17 {
		s.noError("reject", s.next(deliveries).Reject(true))
	}
	s.ready(dead, 1)
	s.publish("", dead, message("published"))
	time.Sleep(400 * time.Millisecond)
	s.ready(dead, 1)
	d := s.get(dead)
	checkDeaths(s, d, death{count: 1, reason: "delivery_limit", queue: q, keys: []string{q}, expiration: "60000"})
	if total := d.Headers["x-death-total"]; total != int64(1) || d.Expiration != "" {
		s.Errorf("x-death-total %v, expiration %q", total, d.Expiration)
	}
}

// Redriven messages and what a transaction publishes are no dead letters.
func spareDeadLetters(s *session) {
	keep := s.queue("keep", amqp.Table{"x-message-ttl": 100, "x-message-ttl-dead-letters": false})
	q := s.queue("q", deadTo(keep, nil))
	s.fill(q, "rejected")
	s.noError("reject", s.get(q).Reject(false))
	tx := s.txChannel()
	s.sendTo(tx, "", q, "in tx")
	s.sendTo(tx, "", keep, "of tx")
	s.noError("commit", tx.TxCommit())
	s.ready(keep, 1)
	time.Sleep(300 * time.Millisecond)
	s.holds(keep, "rejected")
}

func cyclesStay(s *session) {
	// Into itself: the first expiry is a cycle. Both stay in their places, for good.
	self := s.queue("self", deadTo(s.name("self"), amqp.Table{"x-message-ttl": 80, "x-dead-letter-cycle": "stop-ttl"}))
	first := s.worker(self, "first", 1, nil)
	s.fill(self, "a", "b")
	held := s.take(first.deliveries, false, "a")[0]
	s.noError("cancel", first.ch.Cancel("first", false))
	time.Sleep(250 * time.Millisecond)
	s.noError("requeue", held.Reject(true))
	time.Sleep(250 * time.Millisecond)
	s.ready(self, 2)
	for _, body := range []string{"a", "b"} {
		d := s.get(self)
		if string(d.Body) != body || d.Headers["x-death"] != nil || d.Redelivered != (body == "a") {
			s.Errorf("got %q with %v, redelivered %v, want %q", d.Body, d.Headers, d.Redelivered, body)
		}
		s.noError("ack", d.Ack(false))
	}
	// By way of another queue: the one that would close the cycle keeps it.
	q := s.queue("q", deadTo(s.name("w"), amqp.Table{"x-message-ttl": 20}))
	w := s.queue("w", deadTo(q, amqp.Table{"x-message-ttl": 20, "x-dead-letter-cycle": "stop-ttl"}))
	s.fill(q, "round")
	s.ready(w, 1)
	time.Sleep(200 * time.Millisecond)
	s.ready(w, 1)
	// It is a message as before: a consumer may have it go on.
	d := s.get(w)
	checkDeaths(s, d, death{count: 1, reason: "expired", queue: q, keys: []string{q}})
	s.noError("reject", d.Reject(false))
	s.ready(w, 1)
	s.ready(q, 0)
	// Only expiry is stopped: what makes room goes, and is dropped as by the strategy.
	full := s.queue("full", deadTo(s.name("full"), amqp.Table{"x-max-length": 1, "x-dead-letter-cycle": "stop-ttl"}))
	s.fill(full, "first", "second")
	s.holds(full, "second")
}

func hopsStay(s *session) {
	q := s.queue("q", deadTo(s.name("w"), nil))
	w := s.queue("w", deadTo(q, amqp.Table{"x-message-ttl": 20, "x-dead-letter-max-hops": 3}))
	s.fill(q, "m")
	_, deliveries := s.consume(q, 1)
	for range 4 {
		s.noError("reject", s.next(deliveries).Reject(false))
	}
	s.ready(w, 1)
	time.Sleep(200 * time.Millisecond)
	s.ready(w, 1)
	deaths, _ := s.get(w).Headers["x-death"].([]any)
	if len(deaths) != 2 {
		s.Fatalf("x-death %v", deaths)
	}
	for i, want := range []amqp.Table{{"queue": q, "count": int64(4)}, {"queue": w, "count": int64(3)}} {
		if got := deaths[i].(amqp.Table); got["queue"] != want["queue"] || got["count"] != want["count"] {
			s.Errorf("x-death %d: %v, want %v", i, got, want)
		}
	}
}

func apsaraArguments(s *session) {
	refusesArgument(s, "x-dead-letter-cycle", "drop", true, "")
	refusesArgument(s, "x-dead-letter-max-hops", int64(0), int64(-1), "16")
	refusesArgument(s, "x-message-ttl-dead-letters", "false", int64(0))
	for name, values := range map[string][2]any{
		"x-dead-letter-cycle": {"stop-ttl", "strategy"}, "x-dead-letter-max-hops": {16, 17}, "x-message-ttl-dead-letters": {false, true},
	} {
		q := s.queue(name, amqp.Table{name: values[0]})
		_, err := s.ch.QueueDeclare(q, true, false, false, false, amqp.Table{name: values[0]})
		s.noError("declare again", err)
		wantClosed(s, s.channel(s.conn), 406, "PRECONDITION_FAILED - inequivalent arg '"+name+"'", func(ch *amqp.Channel) error {
			_, err := ch.QueueDeclare(q, true, false, false, false, amqp.Table{name: values[1]})
			return err
		})
	}
}

// staysThroughKills kills the leader when the messages have expired and nobody has decided yet,
// and everybody later on: each is there once, and expires no more.
func staysThroughKills(t *testing.T, c *cluster.Cluster) {
	first := at(t, c.Node(0))
	q := plainQueue(first, "stays", deadTo("stays", amqp.Table{"x-message-ttl": 700, "x-dead-letter-cycle": "stop-ttl"}))
	ctx, cancel := context.WithTimeout(t.Context(), timeoutStart)
	defer cancel()
	known, err := c.Queue(ctx, q)
	if err != nil {
		t.Fatal(err)
	}
	leader, others := leaderOf(t, c, q)
	s := at(t, others[0])
	bodies := numbered("m", 300)
	s.fill(q, bodies...)
	if err := leader.Arm(ctx, cluster.Failpoint{Point: string(failpoint.MoveUnrouted), Queue: known.ID, Action: "kill", At: 1}); err != nil {
		t.Fatal(err)
	}
	if _, err := leader.Wait(ctx); ctx.Err() != nil {
		t.Fatalf("the leader lives on: %v", err)
	}
	s.ready(q, len(bodies))
	start(t, leader)
	if err := c.KillAll(); err != nil {
		t.Fatal(err)
	}
	startAll(t, c)
	s = at(t, c.Node(1))
	s.ready(q, len(bodies))
	time.Sleep(time.Second)
	leader, _ = leaderOf(t, c, q)
	text, err := leader.Fetch(ctx, "/metrics/per-object")
	if want := `warren_queue_messages_stayed_total{queue="stays",vhost="/"} 300`; err != nil || !strings.Contains(string(text), want) {
		t.Errorf("no %s: %v", want, err)
	}
	s.holds(q, bodies...)
}
