package process

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/warrenmq/warren/test/cluster"
)

// windowed are the arguments of a queue that drops what is sent again within ten minutes.
func windowed(more ...any) amqp.Table {
	t := amqp.Table{"x-deduplication-window": 600_000}
	for i := 0; i < len(more); i += 2 {
		t[more[i].(string)] = more[i+1]
	}
	return t
}

func once(body string, id any) amqp.Publishing {
	m := message(body)
	m.Headers = amqp.Table{"x-deduplication-header": id}
	return m
}

// TestDeduplication shows U12 and what else there is to the window of deduplication.
func TestDeduplication(t *testing.T) {
	t.Parallel()
	runScenarios(t, []scenario{
		{name: "U12 one copy in every kind of queue", warrenOnly: true, run: dedupFlavours},
		{name: "U12 whatever became of the first", warrenOnly: true, run: dedupSettled},
		{name: "U12 until the window has passed", warrenOnly: true, run: dedupPasses},
		{name: "U12 each queue for itself, a refusal does not count", warrenOnly: true, run: dedupFanOut},
		{name: "U12 in transactions", warrenOnly: true, run: dedupTx},
		{name: "U12 of a delayed exchange when due", warrenOnly: true, run: dedupDelayed},
		{name: "dead letters are not looked at", warrenOnly: true, run: dedupDeadLetters},
		{name: "dead letters that a delayed exchange keeps are not looked at", warrenOnly: true, run: dedupDelayedLetters},
		{name: "bad ids and arguments", warrenOnly: true, run: dedupRefusals},
	})
}

func dedupFlavours(s *session) {
	eachFlavour(s, windowed(), func(s *session, q string) {
		ids := []any{"a", "b", 7, "7", int64(8), []byte("c"), "a", int8(7), int16(8), "c"}
		for i, id := range ids {
			s.publish("", q, once(fmt.Sprint(i), id))
		}
		s.publish("", q, message("without"))
		s.publish("", q, message("without"))
		other := s.channel(s.conn) // of another connection where the queue allows it
		if d, err := other.QueueDeclarePassive(q, false, false, false, false, nil); err != nil || d.Messages != 8 {
			s.Errorf("%d messages, %v", d.Messages, err)
		}
		if got := s.drain(q); !slices.Equal(got, []string{"0", "1", "2", "3", "4", "5", "without", "without"}) {
			s.Errorf("%q", got)
		}
	})
}

func dedupSettled(s *session) {
	dead := s.queue("dead", nil)
	q := s.queue("q", deadTo(dead, windowed()))
	send := func(body string) {
		s.Helper()
		for _, id := range []string{"acked", "rejected", "purged", "expired"} {
			m := once(body+id, id)
			if id == "expired" {
				m.Expiration = "1"
			}
			s.publish("", q, m)
		}
	}
	send("")
	s.noError("ack", s.get(q).Ack(false))
	s.noError("reject", s.get(q).Reject(false))
	s.ready(dead, 2)
	_, err := s.ch.QueuePurge(q, false)
	s.noError("purge", err)
	send("again ")
	s.ready(q, 0)
	s.publish("", q, once("another", "other"))
	s.holds(q, "another")
	s.holdsAll(dead, "rejected", "expired")
}

func dedupPasses(s *session) {
	q := s.queue("q", windowed("x-deduplication-window", 400))
	id := 0
	s.within(350*time.Millisecond, func() {
		id++
		s.publish("", q, once("first", id))
		s.publish("", q, once("copy", id))
	}, func() { s.drain(q) })
	time.Sleep(500 * time.Millisecond)
	s.publish("", q, once("second", id))
	s.holds(q, "first", "second")
	// Of three ids there is room for two: the oldest goes.
	q = s.queue("small", windowed("x-deduplication-size", 2))
	for _, id := range []int{1, 2, 3, 3, 2, 1} {
		s.publish("", q, once(fmt.Sprint(id), id))
	}
	s.holds(q, "1", "2", "3", "1")
}

func dedupFanOut(s *session) {
	x := s.exchange("x", "fanout", nil)
	wide := s.queue("wide", windowed())
	full := s.queue("full", windowed("x-max-length", 1, "x-overflow", "reject-publish"))
	plain := s.queue("plain", nil)
	s.publish("", full, message("in the way"))
	for _, q := range []string{wide, full, plain} {
		s.bind(q, "", x, nil)
	}
	for range 2 {
		if s.publishResult(x, "", once("m", "id")) {
			s.Fatal("a full queue confirms")
		}
	}
	s.noError("ack", s.get(full).Ack(false))
	s.publish(x, "", once("m", "id"))
	s.publish(x, "", once("m", "id")) // full is at its limit again, and has it
	s.holds(full, "m")
	s.holds(wide, "m")
	s.holds(plain, "m", "m", "m", "m")
}

func dedupTx(s *session) {
	a, b := s.queue("a", windowed()), s.queue("b", windowed())
	ch := s.txChannel()
	send := func() {
		s.Helper()
		for _, q := range []string{a, a, b} {
			s.noError("publish", ch.PublishWithContext(s.Context(), "", q, true, false, once("m", "id")))
		}
	}
	send()
	s.noError("rollback", ch.TxRollback())
	for range 3 {
		send()
		s.noError("commit", ch.TxCommit())
	}
	s.publish("", a, once("m", "id"))
	s.publish("", b, once("last", "other"))
	s.holds(a, "m")
	s.holds(b, "m", "last")
}

func dedupDelayed(s *session) {
	x := s.delayedExchange("x", "fanout")
	q, plain := s.queue("q", windowed()), s.queue("plain", nil)
	s.bind(q, "", x, nil)
	s.bind(plain, "", x, nil)
	for range 3 {
		m := delayed("m", 200)
		m.Headers["x-deduplication-header"] = "id"
		s.publish(x, "", m)
	}
	s.holds(plain, "m", "m", "m")
	s.publish("", q, once("late", "id"))
	s.publish("", q, once("last", "other"))
	s.holds(q, "m", "last")
}

func dedupDeadLetters(s *session) {
	dead := s.queue("dead", windowed())
	q := s.queue("q", deadTo(dead, amqp.Table{"x-message-ttl": 0}))
	for range 3 {
		s.publish("", q, once("m", "id"))
	}
	s.ready(dead, 3)
	s.publish("", dead, once("published", "id")) // dead letters have not taken the id
	s.publish("", dead, once("copy", "id"))
	s.holds(dead, "m", "m", "m", "published")
}

// dedupDelayedLetters has a consumer try again after a while: its queue knows the id, and takes its letter back all the same.
func dedupDelayedLetters(s *session) {
	x := s.delayedExchange("x", "fanout")
	q := s.queue("q", windowed("x-dead-letter-exchange", x))
	s.bind(q, "", x, nil)
	m := delayed("m", 200)
	m.Headers["x-deduplication-header"] = "id"
	s.publish("", q, m)
	for range 2 { // held back once, and sent on at once then
		s.ready(q, 1)
		s.noError("reject", s.get(q).Reject(false))
	}
	s.ready(q, 1)
	s.publish("", q, once("copy", "id"))
	s.holds(q, "m")
}

func dedupRefusals(s *session) {
	q, plain := s.queue("q", windowed()), s.queue("plain", nil)
	for _, id := range []any{nil, true, 1.5, "", amqp.Table{}, []any{1}, time.Now()} {
		s.publish("", plain, once("m", id))
		wantClosed(s, s.channel(s.conn), 406, "PRECONDITION_FAILED - invalid message: {unacceptable_", func(ch *amqp.Channel) error {
			return ch.PublishWithContext(s.Context(), "", q, false, false, once("m", id))
		})
	}
	s.ready(q, 0)
	for arg, values := range map[string][]any{
		"x-deduplication-window":  {0, -1, "long", int64(400_000_000_000), true},
		"x-deduplication-size":    {0, -1, "many", 1_000_001},
		"x-message-deduplication": {true, 1, "yes"},
	} {
		for _, v := range values {
			args := windowed(arg, v)
			wantClosed(s, s.channel(s.conn), 406, "PRECONDITION_FAILED - invalid arg '"+arg+"' for queue 'new' in vhost '/': ", func(ch *amqp.Channel) error {
				return declare(ch, "new", args)
			})
		}
	}
	for _, args := range []amqp.Table{nil, windowed("x-deduplication-window", 1), windowed("x-deduplication-size", 5)} {
		wantClosed(s, s.channel(s.conn), 406, "PRECONDITION_FAILED - inequivalent arg 'x-deduplication-", func(ch *amqp.Channel) error {
			return declare(ch, q, args)
		})
	}
	s.noError("declare again", declare(s.ch, q, windowed("x-deduplication-window", int64(600_000))))
	s.queue("off", amqp.Table{"x-message-deduplication": false})
}

// policyDeduplication switches the window on and off, and reads what is counted.
func policyDeduplication(p *policed) {
	q := p.queue("q", nil)
	twice := func(body string) {
		p.Helper()
		p.publish("", q, once(body, body))
		p.publish("", q, once(body, body))
	}
	twice("before")
	p.set("policy", p.name("dedup"), "^"+q+"$", `{"deduplication-window":600000,"deduplication-size":1}`)
	p.counted(q, func(f dedupFigures) bool { return f.Policy["deduplication-window"] == 600_000. })
	p.until("the policy", func() bool {
		p.drain(q)
		twice(fmt.Sprint("probe ", time.Now().UnixNano()))
		return len(p.drain(q)) == 1
	})
	twice("under it")
	p.counted(q, func(f dedupFigures) bool { return f.Duplicates >= 2 && f.IDs == 1 && f.Forgotten >= 1 })
	key := `warren_queue_duplicates_total{queue="` + q + `",vhost="/"}`
	if got := scrape(p.T, "/metrics/per-object", p.nodes...)[key]; got < 2 {
		p.Errorf("%s is %v", key, got)
	}
	p.clear("policy", p.name("dedup"))
	p.until("no policy", func() bool {
		p.drain(q)
		twice(fmt.Sprint("probe ", time.Now().UnixNano()))
		return len(p.drain(q)) == 2
	})
	p.counted(q, func(f dedupFigures) bool { return f.IDs == 0 })
}

// dedupFigures is what the management API says of deduplication.
type dedupFigures struct {
	Duplicates int            `json:"messages_deduplicated"`
	IDs        int            `json:"deduplication_ids"`
	Forgotten  int            `json:"deduplication_ids_forgotten"`
	Policy     map[string]any `json:"effective_policy_definition"`
}

// counted waits until the API says of the queue what is wanted.
func (p *policed) counted(queue string, wanted func(dedupFigures) bool) {
	p.Helper()
	var f dedupFigures
	deadline := time.Now().Add(timeoutReply)
	for {
		status, body := api(p.T, "GET", p.node.HTTP()+"/api/queues/%2F/"+queue)
		if err := json.Unmarshal(body, &f); status != 200 || err != nil {
			p.Fatalf("status %d, %v", status, err)
		}
		if wanted(f) {
			return
		}
		if time.Now().After(deadline) {
			p.Fatalf("the API says %+v", f)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// resender publishes numbered messages, each under its id, and knows which were confirmed.
type resender struct {
	t         *testing.T
	queue     string
	bodies    []string
	confirmed map[string]bool
}

// send publishes what next returns, until that is nothing or the connection ends, and waits for
// the confirms that come.
func (r *resender) send(n *cluster.Node, next func(confirmed int) string) {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(r.t.Context(), timeoutReply)
	defer cancel()
	s := at(r.t, n)
	ended := s.conn.NotifyClose(make(chan *amqp.Error, 1))
	confirms := map[string]*amqp.DeferredConfirmation{}
	var oldest []*amqp.DeferredConfirmation
	acked := func() int {
		for len(oldest) > 0 && oldest[0].Acked() {
			oldest = oldest[1:]
		}
		return len(confirms) - len(oldest)
	}
	for body := next(0); body != ""; body = next(acked()) {
		c, err := s.ch.PublishWithDeferredConfirmWithContext(ctx, "", r.queue, false, false, once(body, "id of "+body))
		if err != nil {
			break
		}
		confirms[body] = c
		oldest = append(oldest, c)
	}
	for body, c := range confirms {
		select {
		case <-c.Done():
			continue
		case <-ended: // the rest is unknown
		case <-ctx.Done():
			r.t.Fatalf("no confirm of %s", body)
		}
		break
	}
	for body, c := range confirms {
		r.confirmed[body] = r.confirmed[body] || c.Acked()
	}
}

// interrupted publishes new messages through a node until it is dead.
func (r *resender) interrupted(victim *cluster.Node, most int) {
	r.t.Helper()
	killed := make(chan error, 1)
	first := len(r.bodies)
	kill := sync.OnceFunc(func() { go func() { killed <- victim.Kill() }() })
	r.send(victim, func(confirmed int) string {
		n := len(r.bodies) - first
		if confirmed > most/10 || n == most {
			kill()
		}
		switch {
		case n == most:
			return "" // the node is slow to die
		case n > most/4:
			time.Sleep(100 * time.Microsecond)
		}
		r.bodies = append(r.bodies, fmt.Sprint(victim.Name, "-", n))
		return r.bodies[first+n]
	})
	kill() // if the connection has ended before
	if err := <-killed; err != nil {
		r.t.Fatal(err)
	}
	r.t.Logf("%s: %d published, %d not confirmed", victim.Name, len(r.bodies)-first, len(r.bodies)-r.count())
}

// count is how many messages were confirmed.
func (r *resender) count() (n int) {
	for _, ok := range r.confirmed {
		if ok {
			n++
		}
	}
	return n
}

// resend publishes through a node what was not confirmed, or all.
func (r *resender) resend(n *cluster.Node, all bool) {
	r.t.Helper()
	var list []string
	for _, body := range r.bodies {
		if all || !r.confirmed[body] {
			list = append(list, body)
		}
	}
	r.send(n, func(int) (body string) {
		if len(list) > 0 {
			body, list = list[0], list[1:]
		}
		return body
	})
	if r.count() != len(r.bodies) {
		r.t.Fatalf("%d of %d confirmed", r.count(), len(r.bodies))
	}
}

// TestResentMessagesArriveOnce is U12: a publisher that does not know what became of its
// messages, because the node that it is connected to is killed, sends them again through another
// one. Once that node leads the queue, once another does; then everything is restarted.
func TestResentMessagesArriveOnce(t *testing.T) {
	t.Parallel()
	const most = 2000
	c := startCluster(t, 3)
	queue := plainQueue(at(t, c.Node(0)), "once", windowed("x-queue-leader-locator", "client-local"))
	leader, others := leaderOf(t, c, queue)
	r := &resender{t: t, queue: queue, confirmed: map[string]bool{}}
	r.interrupted(leader, most)
	r.resend(others[1], false)
	start(t, leader)
	r.interrupted(others[0], most)
	r.resend(others[1], false)
	if err := c.KillAll(); err != nil {
		t.Fatal(err)
	}
	startAll(t, c)
	r.resend(leader, true) // all of it, by a client that has forgotten
	s := at(t, others[1])
	s.ready(queue, len(r.bodies))
	deliveries, err := s.ch.Consume(queue, "", true, false, false, false, nil)
	s.noError("consume", err)
	var got []string
	for range r.bodies {
		got = append(got, string(s.next(deliveries).Body))
	}
	slices.Sort(got)
	want := slices.Sorted(slices.Values(r.bodies))
	if !slices.Equal(got, want) {
		t.Fatalf("%d messages, %d of them different", len(got), len(slices.Compact(slices.Clone(got))))
	}
	r.resend(others[0], true)
	select {
	case d := <-deliveries:
		t.Errorf("%s came again after its first copy was consumed", d.Body)
	case <-time.After(200 * time.Millisecond):
	}
}
