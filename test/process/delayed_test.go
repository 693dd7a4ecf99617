package process

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/warrenmq/warren/test/cluster"
)

func TestDelayedExchange(t *testing.T) {
	t.Parallel()
	runScenarios(t, []scenario{
		{name: "X11 messages come in the order of their hours", warrenOnly: true, run: delayOrder},
		{name: "X11 what is not delayed", warrenOnly: true, run: delayNone},
		{name: "properties, keys and copies", warrenOnly: true, run: delayKeepsMessage},
		{name: "inner types, exchanges before and behind", warrenOnly: true, run: delayInnerTypes},
		{name: "alternate exchange of a delayed exchange", warrenOnly: true, run: delayAlternate},
		{name: "expiration counts from the hour", warrenOnly: true, run: delayThenExpire},
		{name: "retry loop through a delayed exchange", warrenOnly: true, run: delayRetryLoop},
		{name: "nothing is left of a deleted one", warrenOnly: true, run: delayDeleted},
		{name: "refused declarations", warrenOnly: true, run: delayRefused},
	})
}

// delayedExchange declares a delayed exchange.
func (s *session) delayedExchange(label, kind string) string {
	s.Helper()
	return s.exchange(label, "x-delayed-message", amqp.Table{"x-delayed-type": kind})
}

func delayed(body string, delay any) amqp.Publishing {
	m := message(body)
	m.Headers = amqp.Table{"x-delay": delay}
	return m
}

// tooEarly tells whether a delay is not over yet, to the millisecond.
func tooEarly(published time.Time, delay time.Duration) bool {
	return time.Since(published) < delay-2*time.Millisecond
}

func delayOrder(s *session) {
	x := s.delayedExchange("x", "direct")
	q := s.queue("q", nil)
	s.bind(q, "k", x, nil)
	_, deliveries := s.consume(q, 10)
	var begin time.Time
	s.within(80*time.Millisecond, func() {
		begin = time.Now()
		for _, ms := range []int{300, 100, 200} {
			if s.comesBack(x, "k", delayed(strconv.Itoa(ms), ms)) {
				s.Error("a delayed message came back")
			}
		}
	}, func() {
		for range 3 {
			s.next(deliveries)
		}
	})
	for _, ms := range []int{100, 200, 300} {
		d := s.next(deliveries)
		if string(d.Body) != strconv.Itoa(ms) {
			s.Fatalf("got %s, want %d", d.Body, ms)
		}
		if tooEarly(begin, time.Duration(ms)*time.Millisecond) {
			s.Errorf("%s came after %v", d.Body, time.Since(begin))
		}
		if d.Headers["x-delay"] != int32(-ms) || d.Exchange != x || d.RoutingKey != "k" || d.Headers["x-death"] != nil || d.Redelivered {
			s.Errorf("delivered as %+v", d)
		}
	}
	// Mandatory does not apply to what is delayed; at its hour a message without a queue goes.
	if s.comesBack(x, "nowhere", delayed("lost", 10)) {
		s.Error("a delayed message came back")
	}
}

func delayNone(s *session) {
	x := s.delayedExchange("x", "direct")
	q := s.queue("q", nil)
	s.bind(q, "k", x, nil)
	for i, delay := range []any{0, -100, int64(1) << 32, "soon", true, nil} {
		s.publish(x, "k", delayed(fmt.Sprint(i), delay))
	}
	s.publish(x, "k", message("none"))
	s.holds(q, "0", "1", "2", "3", "4", "5", "none")
	if !s.comesBack(x, "nowhere", message("not delayed, without a queue")) {
		s.Error("a message went nowhere and did not come back")
	}
	// Every width of integer counts.
	for _, delay := range []any{byte(40), int8(40), int16(40), int32(40), int64(40), "40", 40.7, float32(40)} {
		begin := time.Now()
		s.publish(x, "k", delayed(fmt.Sprintf("%T", delay), delay))
		if d := s.get(q); tooEarly(begin, 40*time.Millisecond) || d.Headers["x-delay"] != int32(-40) {
			s.Errorf("%T: after %v with %v", delay, time.Since(begin), d.Headers)
		}
	}
}

func delayKeepsMessage(s *session) {
	x := s.delayedExchange("x", "direct")
	a, b, c := s.queue("a", nil), s.queue("b", nil), s.queue("c", amqp.Table{"x-max-priority": 5})
	for _, q := range []string{a, b, c} {
		s.bind(q, q, x, nil)
	}
	m := amqp.Publishing{
		Body: []byte("body"), ContentType: "text/plain", MessageId: "id", Priority: 3, DeliveryMode: 2,
		Headers: amqp.Table{"x-delay": 50, "CC": []any{b}, "BCC": []any{c}, "keep": "me"},
	}
	s.publish(x, a, m)
	m.Priority = 4
	s.publish(x, a, m)
	for _, q := range []string{a, b, c} {
		s.ready(q, 2)
		d := s.get(q)
		if d.ContentType != "text/plain" || d.MessageId != "id" || d.DeliveryMode != 2 || d.Headers["keep"] != "me" ||
			d.Headers["CC"] == nil || d.Headers["BCC"] != nil || d.RoutingKey != a || string(d.Body) != "body" {
			s.Errorf("%s: %+v", q, d)
		}
		if want := map[bool]uint8{true: 4, false: 3}[q == c]; d.Priority != want {
			s.Errorf("%s: priority %d first", q, d.Priority)
		}
	}
}

func delayInnerTypes(s *session) {
	q, other := s.queue("q", nil), s.queue("other", nil)
	topic, fanout, headers := s.delayedExchange("topic", "topic"), s.delayedExchange("fanout", "fanout"), s.delayedExchange("headers", "headers")
	hash := s.delayedExchange("hash", "x-consistent-hash")
	s.bind(q, "a.*", topic, nil)
	s.bind(q, "", fanout, nil)
	s.bind(q, "", headers, amqp.Table{"x-match": "any", "colour": "red"})
	s.bind(q, "7", hash, nil)
	for i, x := range []string{topic, fanout, headers, hash} {
		m := delayed(fmt.Sprint(i), 10+40*i)
		m.Headers["colour"] = "red"
		s.publish(x, "a.b", m)
	}
	s.ready(q, 4)
	got := s.drain(q) // each exchange has a log of its own
	if slices.Sort(got); !slices.Equal(got, []string{"0", "1", "2", "3"}) {
		s.Errorf("got %q", got)
	}
	s.refuses(406, "PRECONDITION_FAILED - The binding key must be an integer", func(ch *amqp.Channel) error { return ch.QueueBind(q, "x", hash, false, nil) })

	// in → topic (delays) → out → other; and in → other at once.
	in, out := s.exchange("in", "fanout", nil), s.exchange("out", "fanout", nil)
	s.noError("bind", s.ch.ExchangeBind(topic, "", in, false, nil))
	s.noError("bind", s.ch.ExchangeBind(out, "z.#", topic, false, nil))
	s.noError("bind", s.ch.ExchangeBind(in, "", out, false, nil)) // and round: not delayed again
	s.bind(other, "", in, nil)
	s.publish(in, "z", delayed("twice", 60))
	if d := s.get(other); d.Headers["x-delay"] != int32(60) {
		s.Errorf("at once with %v", d.Headers)
	}
	if d := s.get(other); d.Headers["x-delay"] != int32(-60) || d.Exchange != in {
		s.Errorf("after the delay from %s with %v", d.Exchange, d.Headers)
	}
	time.Sleep(100 * time.Millisecond)
	s.ready(other, 0)
}

func delayAlternate(s *session) {
	last := s.exchange("last", "fanout", nil)
	rest := s.queue("rest", nil)
	s.bind(rest, "", last, nil)
	x := s.exchange("x", "x-delayed-message", amqp.Table{"x-delayed-type": "direct", "alternate-exchange": last})
	begin := time.Now()
	s.publish(x, "nobody", delayed("late", 80))
	s.publish(x, "nobody", message("now"))
	got := map[string]bool{}
	for range 2 { // "late" may be first if "now" was published late
		d := s.get(rest)
		if got[string(d.Body)] = true; string(d.Body) == "late" && tooEarly(begin, 80*time.Millisecond) {
			s.Errorf("%q after %v", d.Body, time.Since(begin))
		}
	}
	if !got["now"] || !got["late"] {
		s.Errorf("got %v", got)
	}
	// A delayed exchange as alternate exchange.
	front := s.exchange("front", "direct", amqp.Table{"alternate-exchange": x})
	begin = time.Now()
	if s.comesBack(front, "nobody", delayed("round", 60)) {
		s.Error("came back")
	}
	if d := s.get(rest); string(d.Body) != "round" || tooEarly(begin, 60*time.Millisecond) {
		s.Errorf("%q after %v", d.Body, time.Since(begin))
	}
}

func delayThenExpire(s *session) {
	x := s.delayedExchange("x", "fanout")
	dlx := s.exchange("dlx", "fanout", nil)
	q, dead := s.queue("q", amqp.Table{"x-dead-letter-exchange": dlx}), s.queue("dead", nil)
	s.bind(q, "", x, nil)
	s.bind(dead, "", dlx, nil)
	m := delayed("m", 150)
	m.Expiration = "100"
	begin := time.Now()
	s.publish(x, "", m)
	d := s.get(dead)
	if tooEarly(begin, 250*time.Millisecond) {
		s.Errorf("expired after %v", time.Since(begin))
	}
	deaths, _ := d.Headers["x-death"].([]any)
	if len(deaths) != 1 || deaths[0].(amqp.Table)["queue"] != q || deaths[0].(amqp.Table)["reason"] != "expired" || deaths[0].(amqp.Table)["original-expiration"] != "100" {
		s.Errorf("deaths %v", d.Headers)
	}
}

func delayRetryLoop(s *session) {
	x := s.delayedExchange("retry", "direct")
	work := s.name("retry") // a queue of the exchange's name is no cycle
	s.noError("declare", declare(s.ch, work, amqp.Table{"x-dead-letter-exchange": x, "x-dead-letter-routing-key": "again"}))
	defer s.ch.QueueDelete(work, false, false, false)
	s.bind(work, "again", x, nil)
	_, deliveries := s.consume(work, 1)
	begin := time.Now()
	s.publish("", work, delayed("job", 150))
	d := s.next(deliveries)
	if string(d.Body) != "job" || d.Headers["x-delay"] != int32(150) {
		s.Fatalf("got %q with %v", d.Body, d.Headers)
	}
	s.noError("reject", d.Reject(false))
	d = s.next(deliveries)
	if tooEarly(begin, 150*time.Millisecond) || d.Headers["x-delay"] != int32(-150) || d.RoutingKey != "again" {
		s.Errorf("retried after %v with %v", time.Since(begin), d.Headers)
	}
	if got := deathCount(d, work); got != 1 {
		s.Errorf("%d deaths in %v", got, d.Headers)
	}
	// The delay has been served: the next death comes back at once.
	begin = time.Now()
	s.noError("reject", d.Reject(false))
	d = s.next(deliveries)
	if got := deathCount(d, work); got != 2 || time.Since(begin) > 20*time.Second {
		s.Errorf("%d deaths in %v", got, d.Headers)
	}
	s.noError("ack", d.Ack(false))
}

// deathCount reads the count of the only death record, which must be of the queue.
func deathCount(d amqp.Delivery, q string) int64 {
	deaths, _ := d.Headers["x-death"].([]any)
	if len(deaths) != 1 {
		return -1
	}
	t, _ := deaths[0].(amqp.Table)
	if t["queue"] != q {
		return -1
	}
	n, _ := t["count"].(int64)
	return n
}

func delayDeleted(s *session) {
	x, q := s.delayedExchange("x", "fanout"), s.queue("q", nil)
	emptied := func() {
		time.Sleep(time.Second)
		_, err := s.ch.QueuePurge(q, false)
		s.noError("purge", err)
	}
	s.within(700*time.Millisecond, func() {
		s.delayedExchange("x", "fanout")
		s.bind(q, "", x, nil)
		s.publish(x, "", delayed("gone", 800))
		s.refuses(404, "NOT_FOUND - no queue '"+x+"' in vhost '/'", func(ch *amqp.Channel) error { _, _, err := ch.Get(x, true); return err })
		_, err := s.ch.QueueDelete(x, false, false, false)
		s.noError("delete a queue of the exchange's name", err)
		s.refuses(406, "in use", func(ch *amqp.Channel) error { return ch.ExchangeDelete(x, true, false) })
		s.noError("delete", s.ch.ExchangeDelete(x, false, false))
	}, emptied)
	x = s.delayedExchange("x", "fanout")
	s.bind(q, "", x, nil)
	s.publish(x, "", delayed("new", 900))
	s.holds(q, "new")

	auto := s.name("auto")
	s.within(400*time.Millisecond, func() {
		s.noError("declare", s.ch.ExchangeDeclare(auto, "x-delayed-message", true, true, false, false, amqp.Table{"x-delayed-type": "direct"}))
		s.bind(q, "k", auto, nil)
		s.publish(auto, "k", delayed("gone too", 500))
		s.noError("unbind", s.ch.QueueUnbind(q, "k", auto, nil))
	}, emptied)
	s.missing(auto)
	time.Sleep(600 * time.Millisecond)
	s.ready(q, 0)
}

func delayRefused(s *session) {
	declare := func(args amqp.Table) func(*amqp.Channel) error {
		return func(ch *amqp.Channel) error {
			return ch.ExchangeDeclare(s.name("x"), "x-delayed-message", true, false, false, false, args)
		}
	}
	const text = "PRECONDITION_FAILED - Invalid argument, 'x-delayed-type' must be an existing exchange type"
	s.refuses(406, text, declare(nil))
	s.refuses(406, text, declare(amqp.Table{"x-delayed-type": 5}))
	s.refuses(406, text, declare(amqp.Table{"x-delayed-type": "x-delayed-message"}))
	s.refuses(406, "PRECONDITION_FAILED - unknown exchange type 'ring'", declare(amqp.Table{"x-delayed-type": "ring"}))
	s.delayedExchange("x", "direct")
	s.noError("the same again", declare(amqp.Table{"x-delayed-type": "direct"})(s.ch))
	s.refuses(406, "PRECONDITION_FAILED - inequivalent arg 'x-delayed-type' for exchange '", declare(amqp.Table{"x-delayed-type": "topic"}))
}

// arrivals consumes from whatever node is there until it has seen n messages and
// a while longer.
type arrivals struct {
	mu sync.Mutex
	at map[string][]time.Time
}

func (a *arrivals) seen() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.at)
}

func (a *arrivals) collect(ctx context.Context, c *cluster.Cluster, q string) {
	for ctx.Err() == nil {
		for i := range 3 {
			if n := c.Node(i); n.Running() {
				a.from(ctx, n.URL(), q)
			}
		}
		time.Sleep(20 * time.Millisecond)
	}
}

func (a *arrivals) from(ctx context.Context, url, q string) {
	conn, err := connect(url)
	if err != nil {
		return
	}
	defer conn.Close()
	ch, err := conn.Channel()
	if err != nil {
		return
	}
	deliveries, err := ch.Consume(q, "", false, false, false, false, nil)
	if err != nil {
		return
	}
	for {
		select {
		case <-ctx.Done():
			return
		case d, ok := <-deliveries:
			if !ok {
				return
			}
			a.mu.Lock()
			if !d.Redelivered || len(a.at[string(d.Body)]) == 0 {
				a.at[string(d.Body)] = append(a.at[string(d.Body)], time.Now())
			}
			a.mu.Unlock()
			_ = d.Ack(false)
		}
	}
}

const delayedMessages = 1000

// publishDelayed publishes messages that come due from first on, over spread, in no order,
// and returns when.
func (s *session) publishDelayed(x string, first, spread time.Duration) map[string]time.Time {
	s.Helper()
	due := map[string]time.Time{}
	confirms := []*amqp.DeferredConfirmation{}
	for i := range delayedMessages {
		delay := first + spread*time.Duration((i*617)%delayedMessages)/delayedMessages
		body := fmt.Sprint(i)
		due[body] = time.Now().Add(delay)
		confirm, err := s.ch.PublishWithDeferredConfirmWithContext(s.Context(), x, "k", false, false, delayed(body, delay.Milliseconds()))
		s.noError("publish", err)
		confirms = append(confirms, confirm)
	}
	for _, confirm := range confirms {
		if !confirmed(s.T, confirm) {
			s.Fatal("not confirmed")
		}
	}
	return due
}

// X11: a thousand messages wait while each node in turn is killed and comes back. Each arrives
// once, none before its hour.
func TestDelayedMessagesSurviveEveryNode(t *testing.T) {
	t.Parallel()
	eachNode := func(t *testing.T, c *cluster.Cluster, pause time.Duration) {
		for i := range 3 {
			if err := c.Node(i).Kill(); err != nil {
				t.Fatal(err)
			}
			time.Sleep(pause)
			ctx, cancel := context.WithTimeout(t.Context(), timeoutStart)
			err := c.Node(i).Start(ctx)
			cancel()
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, sc := range []struct {
		name          string
		first, spread time.Duration
		harm          func(*testing.T, *cluster.Cluster)
	}{
		{"before they are due, and all nodes at once", 2 * time.Second, 4 * time.Second, func(t *testing.T, c *cluster.Cluster) {
			eachNode(t, c, 300*time.Millisecond)
			if err := c.KillAll(); err != nil {
				t.Fatal(err)
			}
			startAll(t, c)
		}},
		{"while they come due", 500 * time.Millisecond, 4 * time.Second, func(t *testing.T, c *cluster.Cluster) {
			eachNode(t, c, 800*time.Millisecond)
		}},
	} {
		t.Run(sc.name, func(t *testing.T) {
			c := startCluster(t, 3)
			s := newSession(t, target{name: "three", url: c.Node(0).URL(), warren: true})
			x, q := s.delayedExchange("x", "direct"), s.name("q")
			s.noError("declare", declare(s.ch, q, nil))
			s.bind(q, "k", x, nil)
			due := s.publishDelayed(x, sc.first, sc.spread)
			published := time.Now()
			s.conn.Close()

			ctx, stop := context.WithCancel(t.Context())
			defer stop()
			got := &arrivals{at: map[string][]time.Time{}}
			var wg sync.WaitGroup
			wg.Go(func() { got.collect(ctx, c, q) })
			sc.harm(t, c)
			up := time.Now()
			t.Logf("all nodes are up %v after the last publish", up.Sub(published))
			s.until("all messages", func() bool { return time.Since(up) > sc.first+sc.spread+timeoutReply || got.seen() == delayedMessages })
			time.Sleep(300 * time.Millisecond)
			stop()
			wg.Wait()
			checkArrivals(t, got, due, up)
		})
	}
}

func checkArrivals(t *testing.T, got *arrivals, due map[string]time.Time, up time.Time) {
	t.Helper()
	if len(got.at) != len(due) {
		t.Errorf("%d of %d messages arrived", len(got.at), len(due))
	}
	var late []time.Duration
	var early, twice []string
	for body, at := range got.at {
		if len(at) > 1 {
			twice = append(twice, body)
		}
		if at[0].Before(due[body].Add(-2 * time.Millisecond)) {
			early = append(early, fmt.Sprint(body, " by ", due[body].Sub(at[0])))
		}
		if due[body].After(up.Add(time.Second)) {
			late = append(late, at[0].Sub(due[body]))
		}
	}
	if len(early)+len(twice) > 0 {
		t.Errorf("early: %s; twice: %s", strings.Join(early, ", "), strings.Join(twice, ", "))
	}
	slices.Sort(late)
	if len(late) > 0 {
		t.Logf("%d due while all nodes were up: median %v, last %v after their hour", len(late), late[len(late)/2], late[len(late)-1])
		limit := bound(time.Second, up)
		if worst := late[len(late)-1]; worst > limit {
			t.Errorf("a message came %v after its hour", worst)
		}
	}
}
