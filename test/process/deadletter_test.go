package process

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

func TestDeadLetter(t *testing.T) {
	t.Parallel()
	runScenarios(t, []scenario{
		{name: "D01 D02 D26 D30 rejected", run: deadRejected},
		{name: "D04 expired by the queue", run: deadExpiredQueue},
		{name: "D34 expired by itself", run: deadExpiredMessage},
		{name: "D05 maxlen", run: deadMaxLen},
		{name: "D08 delivery limit", run: deadDeliveryLimit},
		{name: "D10 requeued first, rejected then", run: deadOnce},
		{name: "D01 D03 a batch keeps its order", run: deadOrder},
		{name: "D06 reject-publish-dlx", run: deadRejectPublish},
		{name: "other routing key", run: deadRoutingKey},
		{name: "D21 D22 keys of CC and BCC", run: deadCarbonCopies},
		{name: "D25 to several queues", run: deadFanout},
		{name: "D24 through an alternate exchange", run: deadAlternate},
		{name: "D13 exchange that comes later", run: deadMissingExchange},
		{name: "D47 retry loop counts", run: deadLoop},
		{name: "D45 automatic cycle ends", run: deadCycle},
		{name: "D11 purge and delete leave no dead letters", run: deadNever},
		{name: "D36 D37 a history sent by the client is replaced", warrenOnly: true, run: deadClientHistory},
	})
}

// death is one entry of x-death, without its time.
type death struct {
	count         int64
	reason, queue string
	exchange      string
	keys          []string
	expiration    string // original-expiration, "" when absent
}

// checkDeaths compares the message's whole history, types included.
func checkDeaths(s *session, d amqp.Delivery, want ...death) {
	s.Helper()
	list, ok := d.Headers["x-death"].([]any)
	if !ok || len(list) != len(want) {
		s.Fatalf("x-death of %q: got %#v, want %d entries", d.Body, d.Headers["x-death"], len(want))
	}
	for i, w := range want {
		entry, ok := list[i].(amqp.Table)
		if !ok {
			s.Fatalf("x-death %d is %#v", i, list[i])
		}
		got := maps.Clone(entry)
		when, ok := got["time"].(time.Time)
		if !ok || when.Before(time.Now().Add(-time.Minute)) || when.After(time.Now().Add(2*time.Second)) {
			s.Errorf("x-death %d: time %#v", i, got["time"])
		}
		delete(got, "time")
		keys := make([]any, len(w.keys))
		for j, k := range w.keys {
			keys[j] = k
		}
		table := amqp.Table{"count": w.count, "reason": w.reason, "queue": w.queue, "exchange": w.exchange, "routing-keys": keys}
		if w.expiration != "" {
			table["original-expiration"] = w.expiration
		}
		if !reflect.DeepEqual(got, table) {
			s.Errorf("x-death %d of %q:\n got %#v\nwant %#v", i, d.Body, got, table)
		}
	}
	oldest, newest := want[len(want)-1], want[0]
	checkHeaders(s, d, amqp.Table{
		"x-first-death-queue": oldest.queue, "x-first-death-reason": oldest.reason, "x-first-death-exchange": oldest.exchange,
	})
	if s.to.warren {
		checkHeaders(s, d, amqp.Table{
			"x-last-death-queue": newest.queue, "x-last-death-reason": newest.reason, "x-last-death-exchange": newest.exchange,
		})
	}
}

func checkHeaders(s *session, d amqp.Delivery, want amqp.Table) {
	s.Helper()
	for name, value := range want {
		if d.Headers[name] != value {
			s.Errorf("header %s of %q: got %#v, want %#v", name, d.Body, d.Headers[name], value)
		}
	}
}

// topology is a source queue that dead-letters through a direct exchange into
// a dead-letter queue, under the key the message had.
type topology struct{ work, queue, dlx, dead string }

func (s *session) deadLetters(args amqp.Table) topology {
	s.Helper()
	args = maps.Clone(args)
	if args == nil {
		args = amqp.Table{}
	}
	top := topology{work: s.exchange("work", "direct", nil), dlx: s.exchange("dlx", "direct", nil), dead: s.queue("dead", nil)}
	args["x-dead-letter-exchange"] = top.dlx
	top.queue = s.queue("source", args)
	s.bind(top.queue, "order", top.work, nil)
	s.bind(top.dead, "order", top.dlx, nil)
	return top
}

func deadRejected(s *session) {
	top := s.deadLetters(nil)
	for _, body := range []string{"kept", "rejected", "nacked", "requeued"} {
		m := message(body)
		m.MessageId, m.Priority, m.Headers = "id-"+body, 3, amqp.Table{"mine": "yes"}
		s.publish(top.work, "order", m)
	}
	_, deliveries := s.consume(top.queue, 0)
	held := s.take(deliveries, false, "kept", "rejected", "nacked", "requeued")
	s.noError("reject", held[1].Reject(false))
	s.noError("nack", held[2].Nack(false, false))
	s.noError("reject", held[3].Reject(true))
	s.take(deliveries, true, "requeued")
	s.ready(top.dead, 2)
	for _, body := range []string{"rejected", "nacked"} {
		d := s.get(top.dead)
		again := d.Redelivered && s.to.warren // RabbitMQ 4.3 says so of what was rejected before
		if string(d.Body) != body || d.Exchange != top.dlx || d.RoutingKey != "order" || again {
			s.Errorf("got %q through %q with %q, redelivered %v, want %q", d.Body, d.Exchange, d.RoutingKey, d.Redelivered, body)
		}
		if d.MessageId != "id-"+body || d.Priority != 3 || d.DeliveryMode != 2 || d.Headers["mine"] != "yes" {
			s.Errorf("%q changed: %+v", body, d)
		}
		checkDeaths(s, d, death{count: 1, reason: "rejected", queue: top.queue, exchange: top.work, keys: []string{"order"}})
	}
}

func deadExpiredQueue(s *session) {
	top := s.deadLetters(amqp.Table{"x-message-ttl": 200})
	s.publish(top.work, "order", message("m"))
	s.ready(top.dead, 1)
	d := s.get(top.dead)
	checkDeaths(s, d, death{count: 1, reason: "expired", queue: top.queue, exchange: top.work, keys: []string{"order"}})
}

func deadExpiredMessage(s *session) {
	top := s.deadLetters(nil)
	s.publish(top.work, "order", expiring("expired", "200"))
	s.publish(top.work, "order", expiring("rejected", "60000"))
	s.ready(top.dead, 1)
	d := s.get(top.dead)
	if string(d.Body) != "expired" || d.Expiration != "" {
		s.Errorf("got %q with expiration %q", d.Body, d.Expiration)
	}
	checkDeaths(s, d, death{count: 1, reason: "expired", queue: top.queue, exchange: top.work, keys: []string{"order"}, expiration: "200"})
	live := s.get(top.queue)
	s.noError("reject", live.Reject(false))
	d = s.get(top.dead)
	if d.Expiration != "" {
		s.Errorf("expiration %q", d.Expiration)
	}
	checkDeaths(s, d, death{count: 1, reason: "rejected", queue: top.queue, exchange: top.work, keys: []string{"order"}, expiration: "60000"})
}

func deadMaxLen(s *session) {
	top := s.deadLetters(amqp.Table{"x-max-length": 1})
	for _, body := range []string{"a", "b", "c"} {
		s.publish(top.work, "order", message(body))
	}
	s.ready(top.dead, 2)
	for _, body := range []string{"a", "b"} {
		d := s.get(top.dead)
		if string(d.Body) != body {
			s.Errorf("got %q, want %q", d.Body, body)
		}
		checkDeaths(s, d, death{count: 1, reason: "maxlen", queue: top.queue, exchange: top.work, keys: []string{"order"}})
	}
	s.holds(top.queue, "c")
}

func deadDeliveryLimit(s *session) {
	top := s.deadLetters(amqp.Table{"x-queue-type": "quorum", "x-delivery-limit": 2})
	s.publish(top.work, "order", message("poison"))
	_, deliveries := s.consume(top.queue, 1)
	for attempt := range 3 {
		d := s.next(deliveries)
		if d.Redelivered != (attempt > 0) {
			s.Errorf("attempt %d: redelivered %v", attempt+1, d.Redelivered)
		}
		if count := d.Headers["x-delivery-count"]; attempt > 0 && count != int64(attempt) || attempt == 0 && count != nil {
			s.Errorf("attempt %d: x-delivery-count %#v", attempt+1, count)
		}
		s.noError("reject", d.Reject(true))
	}
	s.ready(top.dead, 1)
	d := s.get(top.dead)
	checkDeaths(s, d, death{count: 1, reason: "delivery_limit", queue: top.queue, exchange: top.work, keys: []string{"order"}})
	s.ready(top.queue, 0)
}

func deadOnce(s *session) {
	top := s.deadLetters(nil)
	s.publish(top.work, "order", message("m"))
	_, deliveries := s.consume(top.queue, 1)
	s.noError("requeue", s.next(deliveries).Reject(true))
	s.noError("nack", s.next(deliveries).Nack(false, true))
	s.noError("reject", s.next(deliveries).Reject(false))
	d := s.get(top.dead)
	checkDeaths(s, d, death{count: 1, reason: "rejected", queue: top.queue, exchange: top.work, keys: []string{"order"}})
	s.ready(top.dead, 0)
}

func deadOrder(s *session) {
	dead := s.queue("dead", nil)
	q := s.queue("q", amqp.Table{"x-dead-letter-exchange": "", "x-dead-letter-routing-key": dead})
	bodies := numbered("m", 200)
	s.fill(q, bodies...)
	_, deliveries := s.consume(q, 0)
	held := s.take(deliveries, false, bodies...)
	for _, d := range held[:100] {
		s.noError("reject", d.Reject(false))
	}
	s.noError("nack", held[199].Nack(true, false))
	s.holds(dead, bodies...)
}

func deadRejectPublish(s *session) {
	top := s.deadLetters(amqp.Table{"x-max-length": 1, "x-overflow": "reject-publish-dlx"})
	s.publish(top.work, "order", message("a"))
	for _, body := range []string{"b", "c"} {
		if s.publishResult(top.work, "order", message(body)) {
			s.Errorf("%q was confirmed", body)
		}
	}
	s.ready(top.dead, 2)
	d := s.get(top.dead)
	checkDeaths(s, d, death{count: 1, reason: "maxlen", queue: top.queue, exchange: top.work, keys: []string{"order"}})
	s.holds(top.queue, "a")
}

func deadRoutingKey(s *session) {
	x, dlx := s.exchange("x", "direct", nil), s.exchange("dlx", "topic", nil)
	dead := s.queue("dead", nil)
	s.bind(dead, "failed.*", dlx, nil)
	q := s.queue("q", amqp.Table{"x-dead-letter-exchange": dlx, "x-dead-letter-routing-key": "failed.order"})
	s.bind(q, "order", x, nil)
	s.publish(x, "order", message("m"))
	s.noError("reject", s.get(q).Reject(false))
	d := s.get(dead)
	if d.RoutingKey != "failed.order" || d.Exchange != dlx {
		s.Errorf("came through %q with %q", d.Exchange, d.RoutingKey)
	}
	checkDeaths(s, d, death{count: 1, reason: "rejected", queue: q, exchange: x, keys: []string{"order"}})
}

func deadCarbonCopies(s *session) {
	top := s.deadLetters(nil)
	copied, blind := s.queue("copied", nil), s.queue("blind", nil)
	s.bind(copied, "copy", top.dlx, nil)
	s.bind(blind, "blind", top.dlx, nil)
	m := message("m")
	m.Headers = amqp.Table{"CC": []any{"copy"}, "BCC": []any{"blind"}}
	s.publish(top.work, "order", m)
	s.noError("reject", s.get(top.queue).Reject(false))
	for _, q := range []string{top.dead, copied, blind} {
		d := s.get(q)
		checkDeaths(s, d, death{count: 1, reason: "rejected", queue: top.queue, exchange: top.work, keys: []string{"order", "copy"}})
		if _, seen := d.Headers["BCC"]; seen {
			s.Error("BCC is shown")
		}
	}
}

func deadFanout(s *session) {
	dlx := s.exchange("dlx", "fanout", nil)
	q := s.queue("q", amqp.Table{"x-dead-letter-exchange": dlx})
	var targets []string
	for i := range 3 {
		target := s.queue(fmt.Sprint("dead", i), nil)
		s.bind(target, "", dlx, nil)
		targets = append(targets, target)
	}
	bodies := numbered("m", 20)
	s.fill(q, bodies...)
	_, deliveries := s.consume(q, 0)
	held := s.take(deliveries, false, bodies...)
	s.noError("nack", held[19].Nack(true, false))
	for _, target := range targets {
		s.holds(target, bodies...)
	}
	s.ready(q, 0)
}

func deadAlternate(s *session) {
	last := s.exchange("last", "fanout", nil)
	dlx := s.exchange("dlx", "direct", amqp.Table{"alternate-exchange": last})
	rest := s.queue("rest", nil)
	s.bind(rest, "", last, nil)
	q := s.queue("q", amqp.Table{"x-dead-letter-exchange": dlx})
	s.fill(q, "m")
	s.noError("reject", s.get(q).Reject(false))
	s.holds(rest, "m")
}

func deadMissingExchange(s *session) {
	dlx := s.name("later")
	q := s.queue("q", amqp.Table{"x-dead-letter-exchange": dlx})
	s.fill(q, "lost", "kept")
	s.noError("reject", s.get(q).Reject(false))
	s.ready(q, 1)
	dead := s.queue("dead", nil)
	s.exchange("later", "fanout", nil)
	s.bind(dead, "", dlx, nil)
	s.noError("reject", s.get(q).Reject(false))
	s.holds(dead, "kept")
	s.fill(q, "usable")
	s.holds(q, "usable")
}

func deadLoop(s *session) {
	// The standard retry loop: rejected into a wait queue, expired back.
	work, wait := s.name("work"), s.name("wait")
	s.queue("wait", amqp.Table{"x-message-ttl": 20, "x-dead-letter-exchange": "", "x-dead-letter-routing-key": work})
	s.queue("work", amqp.Table{"x-dead-letter-exchange": "", "x-dead-letter-routing-key": wait})
	s.fill(work, "m")
	_, deliveries := s.consume(work, 1)
	var first any
	for round := range int64(30) {
		d := s.next(deliveries)
		if round > 0 {
			checkDeaths(s, d,
				death{count: round, reason: "expired", queue: wait, keys: []string{wait}},
				death{count: round, reason: "rejected", queue: work, keys: []string{work}})
			when := d.Headers["x-death"].([]any)[1].(amqp.Table)["time"]
			if first == nil {
				first = when
			}
			if !reflect.DeepEqual(when, first) {
				s.Errorf("round %d: the first time changed from %v to %v", round, first, when)
			}
		}
		s.noError("reject", d.Reject(false))
	}
}

func deadCycle(s *session) {
	// Expired, and routed to itself and to another queue: only the other one
	// gets it.
	dlx := s.exchange("dlx", "fanout", nil)
	q := s.queue("q", amqp.Table{"x-message-ttl": 50, "x-dead-letter-exchange": dlx})
	other := s.queue("other", nil)
	s.bind(q, "", dlx, nil)
	s.bind(other, "", dlx, nil)
	s.fill(q, "a", "b")
	s.holds(other, "a", "b")
	s.ready(q, 0)

	// Rejected, and routed to itself: it comes back as often as it is rejected.
	again := s.queue("again", amqp.Table{"x-dead-letter-exchange": "", "x-dead-letter-routing-key": s.name("again")})
	s.fill(again, "m")
	_, deliveries := s.consume(again, 1)
	for range 5 {
		s.noError("reject", s.next(deliveries).Reject(false))
	}
	d := s.next(deliveries)
	checkDeaths(s, d, death{count: 5, reason: "rejected", queue: again, keys: []string{again}})
}

func deadNever(s *session) {
	dead := s.queue("dead", nil)
	args := amqp.Table{"x-dead-letter-exchange": "", "x-dead-letter-routing-key": dead}
	q := s.queue("q", args)
	s.fill(q, "a", "b")
	_, err := s.ch.QueuePurge(q, false)
	s.noError("purge", err)
	s.fill(q, "c", "d")
	_, err = s.ch.QueueDelete(q, false, false, false)
	s.noError("delete", err)
	s.ready(dead, 0)
}

func deadClientHistory(s *session) {
	top := s.deadLetters(nil)
	s.publish(top.work, "order", message("m"))
	s.noError("reject", s.get(top.queue).Reject(false))
	d := s.get(top.dead)
	for _, history := range []any{d.Headers["x-death"], "a text"} {
		m := message("again")
		m.Headers = maps.Clone(d.Headers)
		m.Headers["x-death"] = history
		s.publish(top.work, "order", m)
		s.noError("reject", s.get(top.queue).Reject(false))
		again := s.get(top.dead)
		checkDeaths(s, again, death{count: 1, reason: "rejected", queue: top.queue, exchange: top.work, keys: []string{"order"}})
	}
	if got := s.drain(top.dead); !slices.Equal(got, nil) {
		s.Errorf("copies appeared: %q", got)
	}
}
