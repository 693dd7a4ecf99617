package process

import (
	"fmt"
	"slices"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

func TestPublish(t *testing.T) {
	t.Parallel()
	runScenarios(t, []scenario{
		{name: "every publish is confirmed once", run: confirmAll},
		{name: "a mandatory message comes back before its confirm", run: mandatoryReturn},
		{name: "an unroutable message is confirmed", run: unroutableConfirmed},
		{name: "routing", run: routing},
		{name: "headers routing", run: headersRouting},
		{name: "one copy for each queue", run: oneCopy},
		{name: "exchanges behind exchanges", run: exchangeToExchange},
		{name: "alternate exchange", run: alternateExchange},
		{name: "CC and BCC", run: carbonCopies},
		{name: "unbind and delete", run: unbindAndDelete},
	})
}

func confirmAll(s *session) {
	q := s.queue("q", nil)
	const n = 2000
	confirms := s.ch.NotifyPublish(make(chan amqp.Confirmation, n))
	for range n {
		s.noError("publish", s.ch.PublishWithContext(s.Context(), "", q, false, false, message("m")))
	}
	for want := uint64(1); want <= n; want++ {
		select {
		case c := <-confirms: // the client puts them in order
			if !c.Ack || c.DeliveryTag != want {
				s.Fatalf("confirm %d: %+v", want, c)
			}
		case <-time.After(timeoutReply):
			s.Fatalf("%d of %d publishes were confirmed", want-1, n)
		}
	}
	s.ready(q, n)
}

func mandatoryReturn(s *session) {
	returns := s.ch.NotifyReturn(make(chan amqp.Return, 1))
	confirms := s.ch.NotifyPublish(make(chan amqp.Confirmation, 1))
	m := amqp.Publishing{
		Body: []byte("come back"), MessageId: "m-1", ContentType: "text/plain", DeliveryMode: 2,
		Headers: amqp.Table{"trace": "t"},
	}
	s.noError("publish", s.ch.PublishWithContext(s.Context(), "", s.name("none"), true, false, m))
	var r amqp.Return
	select {
	case c := <-confirms:
		// Both may be there; the return must have come first.
		select {
		case r = <-returns:
		default:
			s.Fatalf("confirm %+v came before the return", c)
		}
	case r = <-returns:
		select {
		case c := <-confirms:
			if !c.Ack {
				s.Errorf("confirm %+v", c)
			}
		case <-time.After(timeoutReply):
			s.Error("no confirm after the return")
		}
	case <-time.After(timeoutReply):
		s.Fatal("nothing came back")
	}
	if r.ReplyCode != 312 || r.ReplyText != "NO_ROUTE" || r.Exchange != "" || r.RoutingKey != s.name("none") {
		s.Errorf("return %d %q from %q with key %q", r.ReplyCode, r.ReplyText, r.Exchange, r.RoutingKey)
	}
	if string(r.Body) != "come back" || r.MessageId != "m-1" || r.ContentType != "text/plain" || r.Headers["trace"] != "t" {
		s.Errorf("the message changed: %+v", r)
	}
}

func unroutableConfirmed(s *session) {
	x := s.exchange("x", "direct", nil)
	s.publish(x, "nowhere", message("m"))
	s.publish("", s.name("none"), message("m"))
}

func routing(s *session) {
	for _, tc := range []struct {
		kind     string
		bindings []string
		matches  map[string][]int // key: which bindings match
	}{
		{"direct", []string{"a", "b", ""}, map[string][]int{"a": {0}, "b": {1}, "": {2}, "c": nil}},
		{"fanout", []string{"a", ""}, map[string][]int{"x": {0, 1}, "": {0, 1}}},
		{"topic", []string{"a.*.c", "a.#", "#", "*", "#.b.#"}, map[string][]int{
			"a.b.c": {0, 1, 2, 4}, "a": {1, 2, 3}, "": {2}, "b": {2, 3, 4}, "x.b.y": {2, 4}, "a..c": {0, 1, 2}, "x.y": {2},
		}},
	} {
		s.Run(tc.kind, func(t *testing.T) {
			sub := &session{T: t, to: s.to, conn: s.conn, ch: s.ch, id: s.id + tc.kind}
			x := sub.exchange("x", tc.kind, nil)
			queues := make([]string, len(tc.bindings))
			for i, key := range tc.bindings {
				queues[i] = sub.queue(fmt.Sprint("q", i), nil)
				sub.bind(queues[i], key, x, nil)
			}
			for key, want := range tc.matches {
				sub.publish(x, key, message(key))
				for i, q := range queues {
					bodies := []string{}
					if slices.Contains(want, i) {
						bodies = append(bodies, key)
					}
					sub.ready(q, len(bodies))
					if got := sub.drain(q); !slices.Equal(got, bodies) {
						t.Errorf("key %q, binding %q: got %q, want %q", key, tc.bindings[i], got, bodies)
					}
				}
			}
		})
	}
}

func headersRouting(s *session) {
	x := s.exchange("x", "headers", nil)
	all, any, key := s.queue("all", nil), s.queue("any", nil), s.queue("key", nil)
	s.bind(all, "", x, amqp.Table{"x-match": "all", "size": 3, "shape": "round"})
	s.bind(any, "", x, amqp.Table{"x-match": "any", "size": 3, "shape": "round"})
	s.bind(key, "", x, amqp.Table{"x-match": "all", "colour": nil})
	for body, headers := range map[string]amqp.Table{
		"both": {"size": int64(3), "shape": "round"}, // the width of the number does not count
		"one":  {"size": 3, "shape": "square"},
		"text": {"size": "3"},
		"blue": {"colour": "blue"},
		"none": nil,
	} {
		s.publish(x, "", amqp.Publishing{Body: []byte(body), Headers: headers})
	}
	s.holds(all, "both")
	s.ready(any, 2)
	got := s.drain(any)
	slices.Sort(got)
	if !slices.Equal(got, []string{"both", "one"}) {
		s.Errorf("any: %q", got)
	}
	s.holds(key, "blue")
}

func oneCopy(s *session) {
	x := s.exchange("x", "topic", nil)
	q := s.queue("q", nil)
	for _, key := range []string{"a.#", "#.b", "a.b"} {
		s.bind(q, key, x, nil)
	}
	s.bind(q, "a.b", x, nil) // again: nothing new
	s.publish(x, "a.b", message("once"))
	s.holds(q, "once")
}

func exchangeToExchange(s *session) {
	in, mid, out := s.exchange("in", "topic", nil), s.exchange("mid", "fanout", nil), s.exchange("out", "direct", nil)
	one, two := s.queue("one", nil), s.queue("two", nil)
	s.noError("bind", s.ch.ExchangeBind(mid, "order.#", in, false, nil))
	s.noError("bind", s.ch.ExchangeBind(out, "", mid, false, nil))
	s.noError("close a loop", s.ch.ExchangeBind(in, "", mid, false, nil))
	s.bind(one, "order.new", out, nil)
	s.bind(two, "", mid, nil)
	s.publish(in, "order.new", message("new"))
	s.publish(in, "order.old", message("old"))
	s.publish(in, "bill.new", message("bill"))
	s.holds(one, "new")
	s.holds(two, "new", "old")
	s.noError("unbind", s.ch.ExchangeUnbind(out, "", mid, false, nil))
	s.publish(in, "order.new", message("newer"))
	s.holds(two, "newer")
	s.ready(one, 0)
}

func alternateExchange(s *session) {
	last := s.exchange("last", "fanout", nil)
	x := s.exchange("x", "direct", amqp.Table{"alternate-exchange": last})
	q, rest := s.queue("q", nil), s.queue("rest", nil)
	s.bind(q, "k", x, nil)
	s.bind(rest, "", last, nil)
	returns := s.ch.NotifyReturn(make(chan amqp.Return, 1))
	s.publish(x, "k", message("routed"))
	s.noError("publish", s.ch.PublishWithContext(s.Context(), x, "other", true, false, message("alternate")))
	s.holds(q, "routed")
	s.ready(rest, 1)
	d := s.get(rest)
	if string(d.Body) != "alternate" || d.Exchange != x || d.RoutingKey != "other" {
		s.Errorf("got %q through %q with %q", d.Body, d.Exchange, d.RoutingKey)
	}
	select {
	case r := <-returns:
		s.Errorf("%q came back", r.Body)
	default:
	}
}

func carbonCopies(s *session) {
	x := s.exchange("x", "direct", nil)
	a, b, c := s.queue("a", nil), s.queue("b", nil), s.queue("c", nil)
	for _, q := range []string{a, b, c} {
		s.bind(q, q, x, nil)
	}
	m := message("m")
	m.Headers = amqp.Table{"CC": []any{b, a}, "BCC": []any{c}, "keep": "me"}
	s.publish(x, a, m)
	for _, q := range []string{a, b, c} {
		s.ready(q, 1)
		d := s.get(q)
		if _, seen := d.Headers["BCC"]; seen || d.Headers["CC"] == nil || d.Headers["keep"] != "me" || d.RoutingKey != a {
			s.Errorf("%s: headers %v, key %q", q, d.Headers, d.RoutingKey)
		}
	}
}

func unbindAndDelete(s *session) {
	x := s.exchange("x", "direct", nil)
	q := s.queue("q", nil)
	s.bind(q, "k", x, nil)
	s.publish(x, "k", message("before"))
	s.noError("unbind", s.ch.QueueUnbind(q, "k", x, nil))
	s.noError("unbind what is not bound", s.ch.QueueUnbind(q, "k", x, nil))
	s.publish(x, "k", message("after"))
	s.bind(q, "k", x, nil)
	wantClosed(s, s.channel(s.conn), 406, "PRECONDITION_FAILED - exchange '"+x+"' in vhost '/' in use", func(ch *amqp.Channel) error {
		return ch.ExchangeDelete(x, true, false)
	})
	s.noError("delete", s.ch.ExchangeDelete(x, false, false))
	s.noError("delete again", s.ch.ExchangeDelete(x, false, false))
	s.holds(q, "before")
}
