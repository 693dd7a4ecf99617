package process

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

// TestDeathCases shows the cases of SEMANTICS §5.1 to §5.4 that TestDeadLetter does not.
func TestDeathCases(t *testing.T) {
	t.Parallel()
	runScenarios(t, []scenario{
		{name: "D02 requeued ones stay", run: requeuedStay},
		{name: "D07 delivery limit zero", run: limitZero},
		{name: "D09 nacks with requeue never reach the limit", warrenOnly: true, run: nackNeverDies},
		{name: "D14 the exchange is deleted", run: exchangeDeleted},
		{name: "D20 D23 one key for all, CC stays a header", warrenOnly: true, run: keyReplacesCopies},
		{name: "D25 headers exchange looks at the death headers", warrenOnly: true, run: headersOfDeath},
		{name: "D27 arguments", run: deathArguments},
		{name: "D28 default exchange", run: deathToQueue},
		{name: "D31 D32 D33 D39 two queues take turns", run: deathHistory},
		{name: "D33 the last death's exchange", run: lastExchange},
		{name: "D35 the target's own ttl", run: targetTTL},
		{name: "D38 the history does not grow with hops", warrenOnly: true, run: manyHops},
		{name: "D41 delivery counts start again", warrenOnly: true, run: countsRestart},
		{name: "the total of all deaths", warrenOnly: true, run: deathTotals},
		{name: "E06 a history that goes on when a client publishes anew", warrenOnly: true, run: historyGoesOn},
		{name: "D46 overflow into itself", run: overflowIntoItself},
		{name: "D48 D49 cycles with and without a rejection", warrenOnly: true, run: cycles},
		{name: "D50 delivery limit and a wait queue", warrenOnly: true, run: limitCycle},
	})
}

// A queue may ask for the header x-death-total; other queues' letters do not have it.
func deathTotals(s *session) {
	dead := s.queue("dead", nil)
	q := s.queue("q", deadTo(s.name("wait"), amqp.Table{"x-dead-letter-death-total": true}))
	wait := s.queue("wait", deadTo(q, amqp.Table{"x-message-ttl": 10}))
	s.fill(q, "m")
	_, deliveries := s.consume(q, 1)
	for range 2 {
		s.noError("reject", s.next(deliveries).Reject(false))
	}
	d := s.next(deliveries) // died twice here and twice in the wait queue, which does not count on
	if total := d.Headers["x-death-total"]; total != int64(3) {
		s.Errorf("x-death-total %#v", total)
	}
	s.noError("ack", d.Ack(false))
	s.ready(wait, 0)
	plain := s.queue("plain", deadTo(dead, nil))
	s.fill(plain, "m")
	s.noError("reject", s.get(plain).Reject(false))
	if total, ok := s.get(dead).Headers["x-death-total"]; ok {
		s.Errorf("x-death-total %#v", total)
	}
	s.refuses(406, "x-dead-letter-death-total", func(ch *amqp.Channel) error {
		_, err := ch.QueueDeclare(s.name("bad"), true, false, false, false, amqp.Table{"x-dead-letter-death-total": "yes"})
		return err
	})
}

// Retries of S4's kind: the consumer publishes the message again with all headers and three
// times the expiration that it finds in the newest record.
func historyGoesOn(s *session) {
	wait := s.queue("wait", deadTo(s.name("work"), amqp.Table{"x-dead-letter-continue-history": true}))
	work := s.queue("work", nil)
	m := expiring("m", "10")
	for round, want := range []string{"10", "30", "90"} {
		s.publish("", wait, m)
		d := s.get(work)
		checkDeaths(s, d, death{count: int64(round + 1), reason: "expired", queue: wait, keys: []string{wait}, expiration: want})
		s.noError("ack", d.Ack(false))
		m = message("m")
		m.Headers = d.Headers
		m.Expiration = map[string]string{"10": "30", "30": "90"}[want]
	}
	s.refuses(406, "x-dead-letter-continue-history", func(ch *amqp.Channel) error {
		_, err := ch.QueueDeclare(s.name("bad"), true, false, false, false, amqp.Table{"x-dead-letter-continue-history": "yes"})
		return err
	})
}

// deadTo gives arguments that dead-letter into a queue.
func deadTo(queue string, more amqp.Table) amqp.Table {
	args := amqp.Table{"x-dead-letter-exchange": "", "x-dead-letter-routing-key": queue}
	maps.Copy(args, more)
	return args
}

func requeuedStay(s *session) {
	dead := s.queue("dead", nil)
	q := s.queue("q", deadTo(dead, nil))
	s.fill(q, "a", "b")
	_, deliveries := s.consume(q, 2)
	held := s.take(deliveries, false, "a", "b")
	s.noError("reject", held[0].Reject(true))
	again := s.take(deliveries, true, "a")
	s.noError("nack", again[0].Nack(false, true))
	s.take(deliveries, true, "a")
	s.ready(dead, 0)
}

func limitZero(s *session) {
	top := s.deadLetters(amqp.Table{"x-queue-type": "quorum", "x-delivery-limit": 0})
	s.publish(top.work, "order", message("m"))
	ch, deliveries := s.consume(top.queue, 1)
	s.next(deliveries)
	s.noError("close", ch.Close())
	checkDeaths(s, s.get(top.dead), death{count: 1, reason: "delivery_limit", queue: top.queue, exchange: top.work, keys: []string{"order"}})
	s.ready(top.queue, 0)
}

func nackNeverDies(s *session) {
	dead := s.queue("dead", nil)
	q := s.queue("q", deadTo(dead, amqp.Table{"x-queue-type": "quorum", "x-delivery-limit": 2}))
	s.fill(q, "m")
	_, deliveries := s.consume(q, 1)
	for i := range int64(10) {
		d := s.next(deliveries)
		if got := d.Headers["x-delivery-count"]; i > 0 && got != int64(0) && got != nil {
			s.Errorf("delivery %d: x-delivery-count %v", i+1, got)
		}
		if got := d.Headers["x-acquired-count"]; i > 0 && got != i {
			s.Errorf("delivery %d: x-acquired-count %v, want %d", i+1, got, i)
		}
		s.noError("nack", d.Nack(false, true))
	}
	s.ready(dead, 0)
}

func exchangeDeleted(s *session) {
	dlx := s.name("dlx")
	s.noError("declare", s.ch.ExchangeDeclare(dlx, "fanout", true, false, false, false, nil))
	dead := s.queue("dead", nil)
	s.bind(dead, "", dlx, nil)
	q := s.queue("q", amqp.Table{"x-dead-letter-exchange": dlx})
	s.fill(q, "first", "second", "third")
	s.noError("reject", s.get(q).Reject(false))
	s.holds(dead, "first")
	s.noError("delete", s.ch.ExchangeDelete(dlx, false, false))
	s.noError("reject", s.get(q).Reject(false))
	s.holds(q, "third")
	s.fill(q, "usable")
	s.holds(q, "usable")
	s.ready(dead, 0)
}

func keyReplacesCopies(s *session) {
	dlx := s.exchange("dlx", "direct", nil)
	byKey, byOld := s.queue("bykey", nil), s.queue("byold", nil)
	s.bind(byKey, "K", dlx, nil)
	for _, key := range []string{"A", "B", "C"} {
		s.bind(byOld, key, dlx, nil)
	}
	x := s.exchange("x", "direct", nil)
	q := s.queue("q", amqp.Table{"x-dead-letter-exchange": dlx, "x-dead-letter-routing-key": "K"})
	s.bind(q, "A", x, nil)
	m := message("m")
	m.Headers = amqp.Table{"CC": []any{"B"}, "BCC": []any{"C"}}
	s.publish(x, "A", m)
	s.noError("reject", s.get(q).Reject(false))
	d := s.get(byKey)
	checkDeaths(s, d, death{count: 1, reason: "rejected", queue: q, exchange: x, keys: []string{"A", "B"}})
	if cc, ok := d.Headers["CC"].([]any); !ok || !slices.Equal(cc, []any{"B"}) {
		s.Errorf("CC is %#v", d.Headers["CC"])
	}
	s.ready(byOld, 0)
}

func headersOfDeath(s *session) {
	dlx := s.exchange("dlx", "headers", nil)
	q := s.name("q")
	targets := map[string]amqp.Table{
		"any-with-x":   {"x-match": "any-with-x", "x-first-death-queue": q, "x-first-death-reason": "maxlen"},
		"all-with-x":   {"x-match": "all-with-x", "x-first-death-queue": q, "x-first-death-reason": "rejected"},
		"not all":      {"x-match": "all-with-x", "x-first-death-queue": q, "x-first-death-reason": "maxlen"},
		"any is blind": {"x-match": "any", "x-first-death-queue": q},
	}
	names := map[string]string{}
	for name, args := range targets {
		names[name] = s.queue(strings.ReplaceAll(name, " ", "-"), nil)
		s.bind(names[name], "", dlx, args)
	}
	s.queue("q", amqp.Table{"x-dead-letter-exchange": dlx})
	s.fill(q, "m")
	s.noError("reject", s.get(q).Reject(false))
	s.holds(names["any-with-x"], "m")
	s.holds(names["all-with-x"], "m")
	s.ready(names["not all"], 0)
	s.ready(names["any is blind"], 0)
}

func deathArguments(s *session) {
	for _, args := range []amqp.Table{
		{"x-dead-letter-routing-key": "k"}, {"x-dead-letter-exchange": 7}, {"x-dead-letter-exchange": "x", "x-dead-letter-routing-key": 7},
	} {
		wantClosed(s, s.channel(s.conn), 406, "PRECONDITION_FAILED - ", func(ch *amqp.Channel) error {
			_, err := ch.QueueDeclare(s.name("bad"), true, false, false, false, args)
			return err
		})
	}
	q := s.queue("q", deadTo("k", nil))
	_, err := s.ch.QueueDeclare(q, true, false, false, false, deadTo("k", nil))
	s.noError("declare again", err)
	for _, args := range []amqp.Table{deadTo("other", nil), {"x-dead-letter-exchange": ""}, {"x-dead-letter-exchange": "y", "x-dead-letter-routing-key": "k"}, nil} {
		wantClosed(s, s.channel(s.conn), 406, "PRECONDITION_FAILED - inequivalent arg 'x-dead-letter-", func(ch *amqp.Channel) error {
			_, err := ch.QueueDeclare(q, true, false, false, false, args)
			return err
		})
	}
}

func deathToQueue(s *session) {
	dead := s.queue("dead", nil)
	q := s.queue("q", deadTo(dead, nil))
	s.fill(q, "m")
	s.noError("reject", s.get(q).Reject(false))
	d := s.get(dead)
	if d.Exchange != "" || d.RoutingKey != dead {
		s.Errorf("came through %q with %q", d.Exchange, d.RoutingKey)
	}
	checkDeaths(s, d, death{count: 1, reason: "rejected", queue: q, exchange: "", keys: []string{q}})
}

// deathTime is the time of a history's entry.
func deathTime(d amqp.Delivery, i int) time.Time {
	list, _ := d.Headers["x-death"].([]any)
	if i >= len(list) {
		return time.Time{}
	}
	entry, _ := list[i].(amqp.Table)
	at, _ := entry["time"].(time.Time)
	return at
}

func deathHistory(s *session) {
	a, b := s.name("a"), s.name("b")
	s.queue("a", deadTo(b, nil))
	s.queue("b", deadTo(a, amqp.Table{"x-message-ttl": 1100}))
	s.fill(a, "m")
	_, deliveries := s.consume(a, 1)
	s.noError("reject", s.next(deliveries).Reject(false))
	d := s.next(deliveries)
	checkDeaths(s, d,
		death{count: 1, reason: "expired", queue: b, keys: []string{b}},
		death{count: 1, reason: "rejected", queue: a, keys: []string{a}})
	first, second := deathTime(d, 1), deathTime(d, 0)
	if !first.Before(second) {
		s.Errorf("the older death is of %v, the newer of %v", first, second)
	}
	_, inB := s.consume(b, 1) // it waits: who comes later may come too late
	s.noError("reject", d.Reject(false))
	checkHistory(s, s.next(inB), a, b, first)
}

// checkHistory checks a message that died in a, in b and in a again.
func checkHistory(s *session, d amqp.Delivery, a, b string, first time.Time) {
	s.Helper()
	list, _ := d.Headers["x-death"].([]any)
	if len(list) != 2 {
		s.Fatalf("x-death is %#v", d.Headers["x-death"])
	}
	newest, _ := list[0].(amqp.Table)
	if newest["queue"] != a || newest["count"] != int64(2) || !first.Equal(deathTime(d, 0)) {
		s.Errorf("newest entry %v, want 2 in %s since %v", newest, a, first)
	}
	checkHeaders(s, d, amqp.Table{"x-first-death-queue": a, "x-first-death-reason": "rejected", "x-first-death-exchange": ""})
	if s.to.warren {
		checkHeaders(s, d, amqp.Table{"x-last-death-queue": a, "x-last-death-reason": "rejected", "x-last-death-exchange": ""})
	}
	if oldest, _ := list[1].(amqp.Table); oldest["queue"] != b || oldest["count"] != int64(1) {
		s.Errorf("other entry %v, want 1 in %s", oldest, b)
	}
}

// lastExchange has a message die in a queue twice, for the same reason, after it came there through two exchanges. Its record keeps the
// first one; the headers of the last death, by which a headers exchange may tell letters apart, have the second.
func lastExchange(s *session) {
	dlx := s.exchange("dlx", "fanout", nil)
	q := s.queue("q", amqp.Table{"x-dead-letter-exchange": dlx})
	s.bind(q, "", dlx, nil)
	s.fill(q, "m")
	for _, through := range []string{"", dlx, dlx} {
		s.noError("reject", s.get(q).Reject(false))
		s.ready(q, 1)
		d := s.get(q)
		checkHeaders(s, d, amqp.Table{"x-first-death-exchange": ""})
		if d.Headers["x-last-death-queue"] != nil || s.to.warren { // RabbitMQ has it since 3.13
			checkHeaders(s, d, amqp.Table{"x-last-death-exchange": through})
		}
		s.noError("return", d.Reject(true))
		s.ready(q, 1)
		if record, _ := d.Headers["x-death"].([]any)[0].(amqp.Table); record["exchange"] != "" {
			s.Errorf("the record is %v, want the first exchange", record)
		}
	}
}

func targetTTL(s *session) {
	last := s.queue("last", nil)
	wait := s.queue("wait", deadTo(last, amqp.Table{"x-message-ttl": 100}))
	q := s.queue("q", deadTo(wait, nil))
	s.publish("", q, expiring("m", "50"))
	d := s.get(last)
	checkDeaths(s, d,
		death{count: 1, reason: "expired", queue: wait, keys: []string{wait}},
		death{count: 1, reason: "expired", queue: q, keys: []string{q}, expiration: "50"})
}

// manyHops: RabbitMQ 3.10 has the deaths before the last one in another order.
func manyHops(s *session) {
	// a -> b -> c -> loop -> loop …: only the last one's count grows.
	names := []string{s.name("a"), s.name("b"), s.name("c"), s.name("loop"), s.name("loop")}
	for i, label := range []string{"a", "b", "c", "loop"} {
		s.queue(label, deadTo(names[i+1], nil))
	}
	s.fill(names[0], "m")
	for _, q := range names[:3] {
		s.noError("reject", s.get(q).Reject(false))
	}
	for range 9 {
		s.noError("reject", s.get(names[3]).Reject(false))
	}
	checkDeaths(s, s.get(names[3]),
		death{count: 9, reason: "rejected", queue: names[3], keys: []string{names[3]}},
		death{count: 1, reason: "rejected", queue: names[2], keys: []string{names[2]}},
		death{count: 1, reason: "rejected", queue: names[1], keys: []string{names[1]}},
		death{count: 1, reason: "rejected", queue: names[0], keys: []string{names[0]}})
}

func countsRestart(s *session) {
	dead := s.queue("dead", amqp.Table{"x-queue-type": "quorum", "x-delivery-limit": 2})
	q := s.queue("q", deadTo(dead, amqp.Table{"x-queue-type": "quorum", "x-delivery-limit": 5}))
	s.fill(q, "m")
	_, deliveries := s.consume(q, 1)
	for range 6 {
		s.noError("reject", s.next(deliveries).Reject(true))
	}
	_, deliveries = s.consume(dead, 1)
	for i := range int64(3) {
		d := s.next(deliveries)
		if count := d.Headers["x-delivery-count"]; i == 0 && count != nil || i > 0 && count != i {
			s.Errorf("delivery %d: x-delivery-count %v", i+1, count)
		}
		if d.Redelivered != (i > 0) {
			s.Errorf("delivery %d: redelivered %v", i+1, d.Redelivered)
		}
		if i < 2 {
			s.noError("reject", d.Reject(true))
		} else {
			s.noError("ack", d.Ack(false))
		}
	}
}

func overflowIntoItself(s *session) {
	q := s.name("q")
	s.queue("q", deadTo(q, amqp.Table{"x-max-length": 3}))
	s.fill(q, numbered("m", 20)...)
	s.holds(q, "m18", "m19", "m20")
	s.ready(q, 0)
}

func cycles(s *session) {
	// Nobody ever rejects: it ends where it began.
	q, wait := s.name("q"), s.name("wait")
	s.queue("q", deadTo(wait, amqp.Table{"x-message-ttl": 50}))
	s.queue("wait", deadTo(q, amqp.Table{"x-message-ttl": 50}))
	s.fill(q, "m")
	time.Sleep(300 * time.Millisecond)
	s.ready(q, 0)
	s.ready(wait, 0)

	// Rejected, then through two wait queues: back for ever.
	work, one, two := s.name("work"), s.name("one"), s.name("two")
	s.queue("work", deadTo(one, nil))
	s.queue("one", deadTo(two, amqp.Table{"x-message-ttl": 20}))
	s.queue("two", deadTo(work, amqp.Table{"x-message-ttl": 20}))
	s.fill(work, "m")
	_, deliveries := s.consume(work, 1)
	for range 10 {
		s.noError("reject", s.next(deliveries).Reject(false))
	}
	s.next(deliveries)

	// Rejected once, then expired all the way round: the second time is the end.
	slow, back := s.name("slow"), s.name("back")
	s.queue("slow", deadTo(back, amqp.Table{"x-message-ttl": 500}))
	s.queue("back", deadTo(slow, amqp.Table{"x-message-ttl": 20}))
	w := s.worker(slow, "waits", 1, nil) // who comes later may come too late
	s.fill(slow, "m")
	s.noError("reject", s.next(w.deliveries).Reject(false))
	d := s.next(w.deliveries) // expired in back, and back here
	s.noError("cancel", w.ch.Cancel("waits", false))
	s.noError("requeue", d.Reject(true))
	time.Sleep(1200 * time.Millisecond)
	s.ready(slow, 0)
	s.ready(back, 0)
}

// limitCycle: the delivery limit counts as automatic in RabbitMQ 4, so that the way back
// is a cycle. Nothing is lost silently when the queue asks for at-least-once: the
// message stays in the wait queue's outbox.
func limitCycle(s *session) {
	work, wait := s.name("work"), s.name("wait")
	s.queue("work", deadTo(wait, amqp.Table{"x-queue-type": "quorum", "x-delivery-limit": 0}))
	s.queue("wait", deadTo(work, amqp.Table{"x-message-ttl": 50, "x-dead-letter-strategy": "at-least-once", "x-overflow": "reject-publish", "x-queue-type": "quorum"}))
	s.fill(work, "m")
	s.noError("reject", s.get(work).Reject(true))
	s.ready(wait, 0)
	time.Sleep(200 * time.Millisecond)
	s.ready(work, 0)
}
