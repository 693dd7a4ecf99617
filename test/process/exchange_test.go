package process

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"
)

// The names of the scenarios begin with the cases of the shared semantics (§5.14).
func TestExchange(t *testing.T) {
	t.Parallel()
	runScenarios(t, []scenario{
		{name: "X01 redeclare with another property", run: redeclareExchange},
		{name: "X02 the default exchange is nobody's", run: defaultExchange},
		{name: "X03 delete if unused", run: deleteUnusedExchange},
		{name: "X04 auto-delete exchanges go with their last binding", run: autoDeleteExchange},
		{name: "X05 loops of exchanges", run: exchangeLoops},
		{name: "X06 topic edges", run: topicEdges},
		{name: "X07 headers with x-", warrenOnly: true, run: headersWithX},
		{name: "X08 alternate exchanges", run: alternateExchanges},
		{name: "line ends in names", run: namesWithLineEnds},
		{name: "X10 consistent hash", warrenOnly: true, run: consistentHash},
		{name: "consistent hash by header and property", warrenOnly: true, run: consistentHashSources},
		{name: "x-random, x-local-random, x-modulus-hash", warrenOnly: true, run: randomExchanges},
		{name: "refused declarations", warrenOnly: true, run: refusedExchanges},
	})
}

// refuses checks what a fresh channel gets for f.
func (s *session) refuses(code int, text string, f func(*amqp.Channel) error) {
	s.Helper()
	wantClosed(s, s.channel(s.conn), code, text, f)
}

// missing checks that an exchange is not there.
func (s *session) missing(name string) {
	s.Helper()
	s.refuses(404, "NOT_FOUND - no exchange '"+name+"' in vhost '/'", func(ch *amqp.Channel) error {
		return ch.ExchangeDeclarePassive(name, "direct", true, false, false, false, nil)
	})
}

func redeclareExchange(s *session) {
	ae := s.exchange("ae", "fanout", nil)
	args := amqp.Table{"alternate-exchange": ae}
	x := s.exchange("x", "direct", args)
	s.noError("the same again", s.ch.ExchangeDeclare(x, "direct", true, false, false, false, args))
	s.noError("passive", s.ch.ExchangeDeclarePassive(x, "direct", true, false, false, false, nil))
	for _, c := range []struct {
		arg                           string
		kind                          string
		durable, autoDelete, internal bool
		args                          amqp.Table
	}{
		{"type", "topic", true, false, false, args},
		{"durable", "direct", false, false, false, args},
		{"auto_delete", "direct", true, true, false, args},
		{"internal", "direct", true, false, true, args},
		{"alternate-exchange", "direct", true, false, false, amqp.Table{"alternate-exchange": "other"}},
		{"alternate-exchange", "direct", true, false, false, nil},
	} {
		s.refuses(406, fmt.Sprintf("PRECONDITION_FAILED - inequivalent arg '%s' for exchange '%s' in vhost '/'", c.arg, x), func(ch *amqp.Channel) error {
			return ch.ExchangeDeclare(x, c.kind, c.durable, c.autoDelete, c.internal, false, c.args)
		})
	}
	for _, name := range []string{"amq.direct", "amq.fanout", "amq.topic", "amq.headers", "amq.match"} {
		s.noError(name, s.ch.ExchangeDeclarePassive(name, "direct", true, false, false, false, nil))
		s.refuses(403, "ACCESS_REFUSED - deletion of system exchange '"+name+"' in vhost '/' not allowed", func(ch *amqp.Channel) error {
			return ch.ExchangeDelete(name, false, false)
		})
	}
	s.noError("redeclare amq.topic", s.ch.ExchangeDeclare("amq.topic", "topic", true, false, false, false, nil))
	s.refuses(403, "ACCESS_REFUSED - exchange name 'amq.new' contains reserved prefix 'amq.*'", func(ch *amqp.Channel) error {
		return ch.ExchangeDeclare("amq.new", "direct", true, false, false, false, nil)
	})
}

func defaultExchange(s *session) {
	q := s.queue("q", nil)
	x := s.exchange("x", "direct", nil)
	const text = "ACCESS_REFUSED - operation not permitted on the default exchange"
	for _, f := range []func(*amqp.Channel) error{
		func(ch *amqp.Channel) error { return ch.QueueBind(q, "k", "", false, nil) },
		func(ch *amqp.Channel) error { return ch.QueueUnbind(q, q, "", nil) },
		func(ch *amqp.Channel) error { return ch.ExchangeBind(x, "k", "", false, nil) },
		func(ch *amqp.Channel) error { return ch.ExchangeBind("", "k", x, false, nil) },
		func(ch *amqp.Channel) error { return ch.ExchangeDelete("", false, false) },
		func(ch *amqp.Channel) error { return ch.ExchangeDeclare("", "direct", true, false, false, false, nil) },
	} {
		s.refuses(403, text, f)
	}
	s.publish("", q, message("every queue is bound by its name"))
	s.holds(q, "every queue is bound by its name")
}

func deleteUnusedExchange(s *session) {
	x := s.exchange("x", "direct", nil)
	q := s.queue("q", nil)
	s.bind(q, "k", x, nil)
	s.refuses(406, "PRECONDITION_FAILED - exchange '"+x+"' in vhost '/' in use", func(ch *amqp.Channel) error { return ch.ExchangeDelete(x, true, false) })
	s.noError("unbind", s.ch.QueueUnbind(q, "k", x, nil))
	s.noError("delete", s.ch.ExchangeDelete(x, true, false))
	s.noError("delete again", s.ch.ExchangeDelete(x, true, false))
	s.missing(x)
}

// autoExchange declares an exchange that goes by itself.
func (s *session) autoExchange(label, kind string) string {
	s.Helper()
	name := s.name(label)
	s.noError("declare "+label, s.ch.ExchangeDeclare(name, kind, true, true, false, false, nil))
	return name
}

func autoDeleteExchange(s *session) {
	q := s.queue("q", nil)
	x := s.autoExchange("unbound", "direct")
	s.bind(q, "a", x, nil)
	s.bind(q, "b", x, nil)
	s.noError("unbind", s.ch.QueueUnbind(q, "a", x, nil))
	s.noError("one binding is left", s.ch.ExchangeDeclarePassive(x, "direct", true, true, false, false, nil))
	s.noError("unbind", s.ch.QueueUnbind(q, "b", x, nil))
	s.missing(x)

	// first → second → third → queue, all auto-delete: the queue takes them along.
	names := []string{s.autoExchange("first", "fanout"), s.autoExchange("second", "fanout"), s.autoExchange("third", "fanout")}
	s.noError("bind", s.ch.ExchangeBind(names[1], "", names[0], false, nil))
	s.noError("bind", s.ch.ExchangeBind(names[2], "", names[1], false, nil))
	last := s.name("last")
	s.noError("declare", declare(s.ch, last, nil))
	s.bind(last, "", names[2], nil)
	s.publish(names[0], "", message("m"))
	s.ready(last, 1)
	_, err := s.ch.QueueDelete(last, false, false, false)
	s.noError("delete the queue", err)
	for _, name := range names {
		s.missing(name)
	}

	// Without a binding it stays: it had none to lose.
	idle := s.autoExchange("idle", "direct")
	s.noError("still there", s.ch.ExchangeDeclarePassive(idle, "direct", true, true, false, false, nil))
	s.noError("delete", s.ch.ExchangeDelete(idle, false, false))
}

func exchangeLoops(s *session) {
	names := []string{s.exchange("a", "fanout", nil), s.exchange("b", "topic", nil), s.exchange("c", "direct", nil)}
	q := s.queue("q", nil)
	for i, name := range names {
		key := []string{"", "#", "k"}[i]
		s.noError("bind", s.ch.ExchangeBind(names[(i+1)%3], key, name, false, nil))
		s.bind(q, key, name, nil)
	}
	for _, name := range names {
		s.publish(name, "k", message("from "+name))
	}
	s.holds(q, "from "+names[0], "from "+names[1], "from "+names[2])
	s.noError("unbind what is not bound", s.ch.ExchangeUnbind(names[0], "nothing", names[1], false, nil))
	s.refuses(404, "NOT_FOUND - no exchange 'none' in vhost '/'", func(ch *amqp.Channel) error { return ch.ExchangeBind("none", "", names[0], false, nil) })
	s.refuses(404, "NOT_FOUND - no exchange 'none' in vhost '/'", func(ch *amqp.Channel) error { return ch.ExchangeBind(names[0], "", "none", false, nil) })
}

func topicEdges(s *session) {
	x := s.exchange("x", "topic", nil)
	long := strings.Repeat("ab.", 84) + "end" // 255 bytes
	queues := map[string]string{}
	for i, key := range []string{"ab.#", "#.end", long, "*.*", "a.#.#", "#.*"} {
		queues[key] = s.queue(fmt.Sprint("q", i), nil)
		s.bind(queues[key], key, x, nil)
	}
	for key, want := range map[string][]string{
		long:     {"ab.#", "#.end", long, "#.*"},
		"ab":     {"ab.#", "#.*"},
		".":      {"*.*", "#.*"},
		"a":      {"a.#.#", "#.*"},
		"a.b.c":  {"a.#.#", "#.*"},
		"a.*":    {"*.*", "a.#.#", "#.*"},
		"#.end":  {"*.*", "#.end", "#.*"},
		"ab..":   {"ab.#", "#.*"},
		"AB.end": {"*.*", "#.end", "#.*"},
	} {
		s.publish(x, key, message(key))
		for binding, q := range queues {
			var bodies []string
			if slices.Contains(want, binding) {
				bodies = []string{key}
			}
			s.ready(q, len(bodies))
			if got := s.drain(q); !slices.Equal(got, bodies) {
				s.Errorf("key %.20q, binding %.20q: got %q", key, binding, got)
			}
		}
	}
	if s.to.warren { // the newest RabbitMQ
		s.refuses(406, "PRECONDITION_FAILED - ", func(ch *amqp.Channel) error { return ch.QueueBind(queues["#.*"], "#.a.#.b.#", x, false, nil) })
	}
}

func headersWithX(s *session) {
	x := s.exchange("x", "headers", nil)
	bindings := []amqp.Table{
		{"x-match": "all", "a": 1, "x-b": "2"},
		{"x-match": "all-with-x", "a": 1, "x-b": "2"},
		{"x-match": "any", "a": 1, "x-b": "2"},
		{"x-match": "any-with-x", "a": 1, "x-b": "2"},
		{"a": 1},              // all is the default
		{"x-match": "any"},    // matches nothing
		{"x-match": "all"},    // matches all
		{"a": nil, "c": true}, // a present, whatever it is
	}
	queues := make([]string, len(bindings))
	for i, args := range bindings {
		queues[i] = s.queue(fmt.Sprint("q", i), nil)
		s.bind(queues[i], "", x, args)
	}
	for _, c := range []struct {
		headers amqp.Table
		want    []int
	}{
		{amqp.Table{"a": 1}, []int{0, 2, 3, 4, 6}},
		{amqp.Table{"a": int64(1), "x-b": "2"}, []int{0, 1, 2, 3, 4, 6}},
		{amqp.Table{"x-b": "2"}, []int{3, 6}},
		{amqp.Table{"a": "1"}, []int{6}},
		{amqp.Table{"a": "1", "c": true}, []int{6, 7}},
		{amqp.Table{"c": true}, []int{6}},
		{nil, []int{6}},
	} {
		m := message("m")
		m.Headers = c.headers
		s.publish(x, "", m)
		for i, q := range queues {
			n := 0
			if slices.Contains(c.want, i) {
				n = 1
			}
			s.ready(q, n)
			if got := len(s.drain(q)); got != n {
				s.Errorf("headers %v, binding %v: %d messages, want %d", c.headers, bindings[i], got, n)
			}
		}
	}
	for _, bad := range []any{"some", 1} {
		s.refuses(406, "PRECONDITION_FAILED - ", func(ch *amqp.Channel) error {
			return ch.QueueBind(queues[0], "", x, false, amqp.Table{"x-match": bad})
		})
	}
}

// comesBack publishes a mandatory message and tells whether it was returned.
func (s *session) comesBack(x, key string, m amqp.Publishing) bool {
	s.Helper()
	ch := s.channel(s.conn)
	defer ch.Close()
	returns := ch.NotifyReturn(make(chan amqp.Return, 1))
	confirm, err := ch.PublishWithDeferredConfirmWithContext(s.Context(), x, key, true, false, m)
	s.noError("publish", err)
	if !confirmed(s.T, confirm) {
		s.Fatal("not confirmed")
	}
	return len(returns) > 0 // it comes before the confirm
}

func alternateExchanges(s *session) {
	q := s.queue("q", nil)
	lost := s.exchange("lost", "direct", amqp.Table{"alternate-exchange": s.name("none")})
	if !s.comesBack(lost, "k", message("the alternate is missing")) {
		s.Error("a message went nowhere and did not come back")
	}
	// Three in a ring: a message that none routes comes back, one that the last routes arrives.
	ring := []string{s.name("ring0"), s.name("ring1"), s.name("ring2")}
	for i, name := range ring {
		s.exchange(fmt.Sprint("ring", i), "direct", amqp.Table{"alternate-exchange": ring[(i+1)%3]})
		_ = name
	}
	s.bind(q, "k", ring[2], nil)
	if !s.comesBack(ring[0], "other", message("round and round")) {
		s.Error("a message without a route did not come back from the ring")
	}
	if s.comesBack(ring[0], "k", message("at last")) {
		s.Error("a routed message came back")
	}
	s.holds(q, "at last")
	s.refuses(406, "'alternate-exchange'", func(ch *amqp.Channel) error {
		return ch.ExchangeDeclare(s.name("bad"), "direct", true, false, false, false, amqp.Table{"alternate-exchange": 5})
	})
}

func namesWithLineEnds(s *session) {
	x := s.name("x")
	s.noError("declare", s.ch.ExchangeDeclare("\r"+x+"\r\n", "direct", true, false, false, false, nil))
	s.noError("passive", s.ch.ExchangeDeclarePassive(x, "direct", true, false, false, false, nil))
	s.noError("delete", s.ch.ExchangeDelete(x+"\n", false, false))
	s.missing(x)
}

// spread publishes n messages with keys of their own and returns which queue each
// went to.
func (s *session) spread(x string, n int, queues []string, make func(i int) (string, amqp.Publishing)) map[string]string {
	s.Helper()
	confirms := []*amqp.DeferredConfirmation{}
	for i := range n {
		key, m := make(i)
		m.Body = fmt.Append(nil, i)
		c, err := s.ch.PublishWithDeferredConfirmWithContext(s.Context(), x, key, true, false, m)
		s.noError("publish", err)
		confirms = append(confirms, c)
	}
	for _, c := range confirms {
		if !confirmed(s.T, c) {
			s.Fatal("not confirmed")
		}
	}
	where := map[string]string{}
	s.until(fmt.Sprint(n, " messages"), func() bool {
		for _, q := range queues {
			for _, body := range s.drain(q) {
				if where[body] != "" {
					s.Fatalf("message %s came twice", body)
				}
				where[body] = q
			}
		}
		return len(where) == n
	})
	return where
}

// shares counts the messages of each queue.
func shares(where map[string]string) map[string]int {
	n := map[string]int{}
	for _, q := range where {
		n[q]++
	}
	return n
}

func byKey(i int) (string, amqp.Publishing) { return fmt.Sprint("key-", i), amqp.Publishing{} }

func consistentHash(s *session) {
	x := s.exchange("x", "x-consistent-hash", nil)
	queues := []string{s.queue("a", nil), s.queue("b", nil), s.queue("c", nil)}
	for i, w := range []string{"1", "1", "2"} {
		s.bind(queues[i], w, x, nil)
	}
	const n = 600
	first := s.spread(x, n, queues, byKey)
	for i, want := range []int{n / 4, n / 4, n / 2} {
		if got := shares(first)[queues[i]]; got < want-n/10 || got > want+n/10 {
			s.Errorf("queue %d got %d of %d", i, got, n)
		}
	}
	if again := s.spread(x, n, queues, byKey); !maps.Equal(first, again) {
		s.Error("a key moved to another queue")
	}
	// The order of the declarations does not count.
	y := s.exchange("y", "x-consistent-hash", nil)
	for _, i := range []int{2, 0, 1} {
		s.bind(queues[i], []string{"1", "1", "2"}[i], y, nil)
	}
	if other := s.spread(y, n, queues, byKey); !maps.Equal(first, other) {
		s.Error("another exchange with the same bindings hashes otherwise")
	}
	// A queue that goes leaves the rest in place.
	s.noError("unbind", s.ch.QueueUnbind(queues[1], "1", x, nil))
	after := s.spread(x, n, queues, byKey)
	for i, q := range first {
		if q != queues[1] && after[i] != q {
			s.Fatalf("key %s moved from %s to %s", i, q, after[i])
		}
	}
	for _, weight := range []string{"0", "-1", "many", "1.5", ""} {
		s.refuses(406, "PRECONDITION_FAILED - The binding key must be ", func(ch *amqp.Channel) error { return ch.QueueBind(queues[0], weight, x, false, nil) })
	}
}

func consistentHashSources(s *session) {
	queues := []string{s.queue("a", nil), s.queue("b", nil), s.queue("c", nil)}
	for _, c := range []struct {
		args amqp.Table
		make func(i int) (string, amqp.Publishing)
	}{
		{amqp.Table{"hash-header": "customer"}, func(i int) (string, amqp.Publishing) {
			return fmt.Sprint(i), amqp.Publishing{Headers: amqp.Table{"customer": int32(i % 3)}}
		}},
		{amqp.Table{"hash-property": "message_id"}, func(i int) (string, amqp.Publishing) {
			return fmt.Sprint(i), amqp.Publishing{MessageId: fmt.Sprint("m", i%3)}
		}},
		{amqp.Table{"hash-property": "correlation_id"}, func(i int) (string, amqp.Publishing) {
			return fmt.Sprint(i), amqp.Publishing{CorrelationId: fmt.Sprint("m", i%3)}
		}},
	} {
		x := s.exchange(fmt.Sprint(c.args), "x-consistent-hash", c.args)
		for _, q := range queues {
			s.bind(q, "10", x, nil)
		}
		where := s.spread(x, 60, queues, c.make)
		for i := 3; i < 60; i++ {
			if where[fmt.Sprint(i)] != where[fmt.Sprint(i%3)] {
				s.Fatalf("%v: %d and %d went apart", c.args, i, i%3)
			}
		}
	}
}

func randomExchanges(s *session) {
	queues := []string{s.queue("a", nil), s.queue("b", nil), s.queue("c", nil)}
	for kind, atLeast := range map[string]int{"x-random": 70, "x-modulus-hash": 70, "x-local-random": 0} {
		x := s.exchange(kind, kind, nil)
		for _, q := range queues {
			s.bind(q, "whatever", x, nil)
		}
		got := shares(s.spread(x, 300, queues, byKey))
		for _, q := range queues {
			if got[q] < atLeast {
				s.Errorf("%s: %v", kind, got)
			}
		}
	}
	empty := s.exchange("empty", "x-random", nil)
	if !s.comesBack(empty, "k", message("m")) {
		s.Error("a message without a queue did not come back")
	}
}

func refusedExchanges(s *session) {
	for _, c := range []struct {
		kind string
		args amqp.Table
		text string
	}{
		{"x-recent-history", nil, "unknown exchange type 'x-recent-history'"},
		{"x-consistent-hash", amqp.Table{"hash-header": "a", "hash-property": "timestamp"}, "hash-header and hash-property are mutually exclusive"},
		{"x-consistent-hash", amqp.Table{"hash-property": "app_id"}, "Unsupported property: app_id"},
	} {
		s.refuses(406, "PRECONDITION_FAILED - "+c.text, func(ch *amqp.Channel) error {
			return ch.ExchangeDeclare(s.name("x"), c.kind, true, false, false, false, c.args)
		})
	}
	x := s.exchange("inside", "fanout", nil)
	internal := s.name("internal")
	s.noError("declare", s.ch.ExchangeDeclare(internal, "fanout", true, false, true, false, nil))
	s.noError("bind", s.ch.ExchangeBind(internal, "", x, false, nil))
	q := s.queue("q", nil)
	s.bind(q, "", internal, nil)
	s.refuses(403, "ACCESS_REFUSED - cannot publish to internal exchange '"+internal+"' in vhost '/'", func(ch *amqp.Channel) error {
		return errors.Join(ch.PublishWithContext(s.Context(), internal, "", false, false, message("m")))
	})
	s.publish(x, "", message("through"))
	s.holds(q, "through")
	s.noError("delete", s.ch.ExchangeDelete(internal, false, false))
}

// X: x-local-random keeps messages on the publisher's node while a queue is led there.
func TestLocalRandom(t *testing.T) {
	needWarren(t)
	c := sharedCluster(t, 3)
	first := newSession(t, target{name: "three", url: c.Node(0).URL(), warren: true})
	x := first.exchange("x", "x-local-random", nil)
	sessions, queues := make([]*session, 3), make([]string, 3)
	for i := range 3 {
		sessions[i] = newSession(t, target{name: "three", url: c.Node(i).URL(), warren: true})
		queues[i] = sessions[i].queue("q", amqp.Table{"x-queue-leader-locator": "client-local"})
		sessions[i].bind(queues[i], "", x, nil)
		if leader, err := c.Leader(t.Context(), queues[i]); err != nil || leader != c.Node(i) {
			t.Fatalf("queue %d is not led where it was declared: %v, %v", i, leader, err)
		}
	}
	for i, s := range sessions {
		where := s.spread(x, 30, queues, byKey)
		if shares(where)[queues[i]] != 30 {
			t.Errorf("published on node %d: %v, want all in %s", i, shares(where), queues[i])
		}
	}
	// Without a queue of its own a node uses the others.
	_, err := sessions[0].ch.QueueDelete(queues[0], false, false, false)
	first.noError("delete", err)
	if got := shares(sessions[0].spread(x, 60, queues[1:], byKey)); got[queues[1]] == 0 || got[queues[2]] == 0 {
		t.Errorf("without a local queue: %v", got)
	}
}
