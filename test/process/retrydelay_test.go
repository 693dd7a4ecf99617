package process

import (
	"maps"
	"slices"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

// retryMin is the shortest delay of these tests, and retryLate what a busy machine may
// add to one.
const (
	retryMin  = 100 * time.Millisecond
	retryLate = 10 * time.Second
	retryGrid = 2 * time.Millisecond // machine time counts whole ms
)

func retryArgs(kind string, more amqp.Table) amqp.Table {
	args := amqp.Table{"x-delayed-retry-type": kind, "x-delayed-retry-min": retryMin.Milliseconds()}
	maps.Copy(args, more)
	return args
}

// TestRetryDelay shows SEMANTICS B01 to B04.
func TestRetryDelay(t *testing.T) {
	t.Parallel()
	runScenarios(t, []scenario{
		{name: "B01 the type names the returns that wait", warrenOnly: true, run: retryTypes},
		{name: "B02 linear, up to the maximum", warrenOnly: true, run: retryLinear},
		{name: "B02 counts toward the length limit", warrenOnly: true, run: retryCounts},
		{name: "B03 the delivery limit ends it", warrenOnly: true, run: retryLimit},
		{name: "B04 multiplier and jitter", warrenOnly: true, run: retryMultiplier},
		{name: "others overtake", warrenOnly: true, run: retryOvertaken},
		{name: "bad arguments", warrenOnly: true, run: retryArguments},
	})
}

// again returns a delivery and measures how long the message stays away.
func (s *session) again(deliveries <-chan amqp.Delivery, back func() error) (amqp.Delivery, time.Duration) {
	s.Helper()
	began := time.Now()
	s.noError("return", back())
	d := s.next(deliveries)
	if !d.Redelivered {
		s.Error("not marked as redelivered")
	}
	return d, time.Since(began)
}

func (s *session) wantDelay(what string, got, want time.Duration) {
	s.Helper()
	if got < want-retryGrid || got > want+retryLate {
		s.Errorf("%s: back after %v, want %v", what, got, want)
	}
}

func retryTypes(s *session) {
	for kind, delayed := range map[string][2]time.Duration{ // rejected, nacked
		"disabled": {}, "all": {retryMin, retryMin}, "failed": {retryMin, 0}, "returned": {0, retryMin},
	} {
		q := s.queue("q-"+kind, retryArgs(kind, nil))
		s.fill(q, "m")
		_, deliveries := s.consume(q, 1)
		d := s.next(deliveries)
		d, after := s.again(deliveries, func() error { return d.Reject(true) })
		s.wantDelay(kind+", rejected", after, delayed[0])
		d, after = s.again(deliveries, func() error { return d.Nack(false, true) })
		s.wantDelay(kind+", nacked", after, delayed[1])
		s.noError("ack", d.Ack(false))
	}
}

func retryLinear(s *session) {
	q := s.queue("q", retryArgs("failed", amqp.Table{"x-delayed-retry-max": 2 * retryMin.Milliseconds()}))
	s.fill(q, "m")
	_, deliveries := s.consume(q, 1)
	d := s.next(deliveries)
	for i, want := range []time.Duration{retryMin, 2 * retryMin, 2 * retryMin} {
		var after time.Duration
		if d, after = s.again(deliveries, func() error { return d.Reject(true) }); after < want-retryGrid || after > want+retryLate {
			s.Errorf("return %d: back after %v, want %v", i+1, after, want)
		}
	}
	s.noError("ack", d.Ack(false))
	s.ready(q, 0)
}

func retryCounts(s *session) {
	q := s.queue("q", amqp.Table{
		"x-delayed-retry-type": "all", "x-delayed-retry-min": 20_000, "x-max-length": 1, "x-overflow": "reject-publish",
	})
	s.fill(q, "m")
	s.noError("reject", s.get(q).Reject(true))
	if d, ok, err := s.ch.Get(q, true); ok || err != nil {
		s.Errorf("got %q, %v", d.Body, err)
	}
	if s.publishResult("", q, message("beyond")) {
		s.Error("a publish beyond the limit was taken while one message waits")
	}
	s.ready(q, 0)
	if n, err := s.ch.QueuePurge(q, false); n != 1 || err != nil {
		s.Errorf("purged %d, %v", n, err)
	}
	s.publish("", q, message("room"))
}

func retryLimit(s *session) {
	dead := s.queue("dead", nil)
	q := s.queue("q", retryArgs("all", amqp.Table{
		"x-delivery-limit": 2, "x-dead-letter-exchange": "", "x-dead-letter-routing-key": dead,
	}))
	s.fill(q, "m")
	_, deliveries := s.consume(q, 1)
	d := s.next(deliveries)
	for range 2 {
		d, _ = s.again(deliveries, func() error { return d.Reject(true) })
	}
	s.ready(dead, 0)
	s.noError("reject", d.Reject(true))
	s.ready(dead, 1)
}

func retryMultiplier(s *session) {
	q := s.queue("q", retryArgs("returned", amqp.Table{
		"x-delayed-retry-max": 4 * retryMin.Milliseconds(), "x-delayed-retry-multiplier": 2.0, "x-delayed-retry-jitter": 10,
	}))
	s.fill(q, "m")
	_, deliveries := s.consume(q, 1)
	d := s.next(deliveries)
	for i, want := range []time.Duration{retryMin, 2 * retryMin, 4 * retryMin, 4 * retryMin} {
		var after time.Duration
		if d, after = s.again(deliveries, func() error { return d.Nack(false, true) }); after < want*9/10-retryGrid || after > want+retryLate {
			s.Errorf("return %d: back after %v, want %v less at most a tenth", i+1, after, want)
		}
	}
	s.noError("ack", d.Ack(false))
}

func retryOvertaken(s *session) {
	q := s.queue("q", retryArgs("all", amqp.Table{"x-delayed-retry-min": 1500}))
	_, deliveries := s.consume(q, 1)
	var got []string
	take := func() {
		d := s.next(deliveries)
		got = append(got, string(d.Body))
		s.noError("ack", d.Ack(false))
	}
	s.within(1400*time.Millisecond, func() {
		got = nil
		s.fill(q, "a", "b", "c")
		s.noError("reject", s.next(deliveries).Reject(true))
		take()
		take()
	}, take)
	if take(); !slices.Equal(got, []string{"b", "c", "a"}) {
		s.Errorf("got %q", got)
	}
}

func retryArguments(s *session) {
	for name, args := range map[string]amqp.Table{
		"unknown type":       {"x-delayed-retry-type": "sometimes", "x-delayed-retry-min": 1},
		"no minimum":         {"x-delayed-retry-type": "all"},
		"maximum below":      {"x-delayed-retry-type": "all", "x-delayed-retry-min": 10, "x-delayed-retry-max": 9},
		"negative":           {"x-delayed-retry-type": "all", "x-delayed-retry-min": -1},
		"shrinking":          {"x-delayed-retry-type": "all", "x-delayed-retry-min": 1, "x-delayed-retry-multiplier": 0.5},
		"jitter beyond all":  {"x-delayed-retry-type": "all", "x-delayed-retry-min": 1, "x-delayed-retry-jitter": 101},
		"text as multiplier": {"x-delayed-retry-type": "all", "x-delayed-retry-min": 1, "x-delayed-retry-multiplier": "2"},
	} {
		s.Logf("%s", name)
		wantClosed(s, s.channel(s.conn), 406, "invalid arg 'x-delayed-retry-", func(ch *amqp.Channel) error {
			_, err := ch.QueueDeclare(s.name("bad"), true, false, false, false, args)
			return err
		})
	}
}

// TestRetryDelaySurvives shows SEMANTICS B05: a delay neither ends early nor starts
// again when the queue's leader changes or every node restarts.
func TestRetryDelaySurvives(t *testing.T) {
	t.Parallel()
	const delay = 6 * time.Second
	c := startCluster(t, 3)
	s := at(t, c.Node(0))
	q := plainQueue(s, "later", amqp.Table{"x-delayed-retry-type": "all", "x-delayed-retry-min": delay.Milliseconds()})
	s.fill(q, "m")
	d := s.get(q)
	began := time.Now()
	s.noError("reject", d.Reject(true))
	s.ready(q, 0)
	leader, others := leaderOf(t, c, q)
	kill(t, leader)
	s = at(t, others[0])
	s.ready(q, 0)
	if err := c.KillAll(); err != nil {
		t.Fatal(err)
	}
	startAll(t, c)
	s = at(t, c.Node(0))
	_, deliveries := s.consume(q, 1)
	d = s.next(deliveries)
	// Machine time stands still while nobody leads.
	if after := time.Since(began); after < delay-retryGrid || after > delay+timeoutReply {
		t.Errorf("back after %v, want %v", after, delay)
	}
	s.noError("ack", d.Ack(false))
}
