package process

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/warrenmq/warren/test/cluster"
)

// TestRedrive sends dead letters back with the real tool.
func TestRedrive(t *testing.T) {
	t.Parallel()
	c := ctlCluster(t)
	s := at(t, c.Node(0))
	x := s.exchange("orders", "topic", nil)
	dlq := s.queue("dead", amqp.Table{"x-queue-type": "quorum"})
	args := amqp.Table{"x-queue-type": "quorum", "x-dead-letter-exchange": "", "x-dead-letter-routing-key": dlq}
	one, two := s.queue("one", args), s.queue("two", args)
	s.bind(one, "order.*", x, nil)
	for i := range 6 {
		s.publish(x, "order.new", amqp.Publishing{MessageId: fmt.Sprint("id-", i), Body: fmt.Append(nil, "o", i), DeliveryMode: 2, Expiration: "600000"})
	}
	s.fill(two, "t0", "t1")
	for _, q := range []string{one, two} {
		ch, deliveries := s.consume(q, 0)
		for range map[string]int{one: 6, two: 2}[q] {
			s.noError("reject", s.next(deliveries).Reject(false))
		}
		s.noError("close", ch.Close())
	}
	s.ready(dlq, 8)
	dlqctl := func(args ...string) string {
		t.Helper()
		return mustCtl(t, c.Node(len(args)%3), append([]string{"dlq", args[0], "-s"}, args[1:]...)...)
	}
	t.Run("list and show", func(t *testing.T) {
		var out string // the sources learn a moment later that all have arrived
		s.until("one queue is listed", func() bool {
			out = dlqctl("list")
			return strings.Contains(out, dlq+"\t8\t8\t0\t0\n") && !strings.Contains(out, one)
		}, &out)
		if out := dlqctl("show", dlq, "--count", "100"); strings.Count(out, "\trejected\t"+one+"\t") != 6 || strings.Count(out, "\n") != 8 {
			t.Errorf("%q", out)
		}
	})
	t.Run("dry run", func(t *testing.T) {
		want := []string{one + "\t6\t", two + "\t2\t"}
		slices.Sort(want)
		if out := dlqctl("retry", dlq, "--dry-run"); out != strings.Join(want, "\n")+"\n" {
			t.Errorf("%q", out)
		}
		if out := dlqctl("retry", dlq, "--dry-run", "--to", "queue:nowhere", "--from", two); !strings.HasPrefix(out, "nowhere\t2\tdoes not exist") {
			t.Errorf("%q", out)
		}
	})
	t.Run("E07 chosen ones go back", func(t *testing.T) {
		if out := dlqctl("retry", dlq, "--from", one, "--message-id", "id-1,id-4", "--reason", "rejected"); !strings.Contains(out, "\tdone\t2\t0\t") {
			t.Errorf("%q", out)
		}
		ch, deliveries := s.consume(one, 0)
		for _, body := range []string{"o1", "o4"} {
			d := s.next(deliveries)
			deaths, _ := d.Headers["x-death"].([]any)
			if string(d.Body) != body || d.Exchange != x || d.RoutingKey != "order.new" || d.Redelivered || d.Expiration != "" || len(deaths) != 1 {
				t.Errorf("%+v", d)
			}
			s.noError("reject", d.Reject(false))
		}
		s.noError("close", ch.Close())
		s.ready(dlq, 8)
		got := peekAll(t, c.Node(1), dlq, "message_id=id-4")
		if len(got) != 1 || len(got[0].Deaths) != 1 || got[0].Deaths[0].Count != 2 {
			t.Errorf("it died again: %+v", got)
		}
	})
	t.Run("through the exchange", func(t *testing.T) {
		if out := dlqctl("retry", dlq, "--to", "exchange", "--message-id", "id-0", "--rate", "100"); !strings.Contains(out, "\tdone\t1\t0\t") {
			t.Errorf("%q", out)
		}
		if d := s.get(one); string(d.Body) != "o0" || d.Exchange != x {
			t.Errorf("%+v", d)
		}
	})
	t.Run("drop", func(t *testing.T) {
		if out := dlqctl("drop", dlq, "--from", two); !strings.Contains(out, "\tdone\t2\t0\t") {
			t.Errorf("%q", out)
		}
		s.ready(dlq, 5)
		if code, _, failure := ctl(t, c.Node(0), "dlq", "drop", dlq); code != 64 || !strings.Contains(failure, "--all") {
			t.Errorf("everything: %d %s", code, failure)
		}
	})
	t.Run("stop", func(t *testing.T) {
		begun := time.Now()
		dlqctl("retry", dlq, "--rate", "1", "--wait=false")
		if out := dlqctl("stop", dlq); !strings.Contains(out, "stop") {
			t.Errorf("%q", out)
		}
		s.until("it has stopped", func() bool { return strings.Contains(dlqctl("status", dlq), "\tstopped\t") })
		// One goes each second, and one at once.
		if n, most := len(peekAll(t, c.Node(0), dlq, "")), 2+int(time.Since(begun).Seconds()); n < 5-most {
			t.Errorf("%d are left", n)
		}
	})
	for _, tc := range []struct {
		args []string
		code int
		text string
	}{
		{[]string{"retry", "nothing"}, 65, "no queue 'nothing'"},
		{[]string{"retry", dlq, "--to", "elsewhere"}, 70, "none of the ways"},
		{[]string{"retry", dlq, "--to", "queue:" + dlq}, 70, "is where the messages are"},
		{[]string{"retry", dlq, "--older-than", "long"}, 70, "no age"},
		{[]string{"frobnicate"}, 64, "not found"},
	} {
		if code, _, failure := ctl(t, c.Node(0), append([]string{"dlq"}, tc.args...)...); code != tc.code || !strings.Contains(failure, tc.text) {
			t.Errorf("%q: %d %s", tc.args, code, failure)
		}
	}
}

// TestRedriveWaitsForRoom redrives into a queue that is full, with a stop, and into one that goes.
func TestRedriveWaitsForRoom(t *testing.T) {
	t.Parallel()
	c := ctlCluster(t)
	s := at(t, c.Node(0))
	dlq := s.queue("dead", nil)
	full := s.queue("full", amqp.Table{"x-max-length": 1, "x-overflow": "reject-publish"})
	s.fill(full, "first")
	s.fill(dlq, "a", "b")
	start := func(to string) {
		t.Helper()
		mustCtl(t, c.Node(1), "dlq", "retry", dlq, "--to", "queue:"+to, "--wait=false")
	}
	status := func() string { return mustCtl(t, c.Node(2), "dlq", "status", "-s", dlq) }
	start(full)
	s.until("they are under way", func() bool { return strings.Contains(status(), "\trunning\t0\t2\t") })
	if got := payloads(peekAll(t, c.Node(0), dlq, "state=outbox")); !slices.Equal(got, []string{"a", "b"}) {
		t.Errorf("outbox: %v", got)
	}
	if got := peekAll(t, c.Node(0), dlq, ""); len(got) != 0 {
		t.Errorf("ready: %v", got)
	}
	if code, _, failure := ctl(t, c.Node(0), "dlq", "retry", dlq); code != 70 || !strings.Contains(failure, "is under way") {
		t.Errorf("a second one: %d %s", code, failure)
	}
	mustCtl(t, c.Node(2), "dlq", "stop", dlq)
	s.until("they came back", func() bool { return strings.Contains(status(), "\tstopped\t0\t0\t2\t") })
	if got := payloads(peekAll(t, c.Node(0), dlq, "state=ready")); !slices.Equal(got, []string{"a", "b"}) {
		t.Errorf("ready: %v", got)
	}
	start(full)
	s.until("they are under way again", func() bool { return strings.Contains(status(), "\trunning\t0\t2\t") })
	_, err := s.ch.QueueDelete(full, false, false, false)
	s.noError("delete", err)
	// The target has gone: both are back at their place, as if nothing had been.
	s.until("they are back", func() bool { return strings.Contains(status(), "\tdone\t0\t0\t2\t") })
	_, deliveries := s.consume(dlq, 0)
	for _, body := range []string{"a", "b"} {
		if d := s.next(deliveries); string(d.Body) != body || d.Redelivered {
			t.Errorf("%s, redelivered %v", d.Body, d.Redelivered)
		}
	}
}

// TestManyLettersWaitForRoom sends more than one batch of messages into a queue that has room for few: it takes no more
// than that, and what is under way comes back when the redrive is stopped.
func TestManyLettersWaitForRoom(t *testing.T) {
	t.Parallel()
	c := ctlCluster(t)
	s := at(t, c.Node(0))
	const n, room = 600, 3
	dlq := s.queue("dead", nil)
	small := s.queue("small", amqp.Table{"x-max-length": room, "x-overflow": "reject-publish"})
	s.fill(dlq, numbered("m", n)...)
	mustCtl(t, c.Node(1), "dlq", "retry", dlq, "--to", "queue:"+small, "--wait=false")
	status := func() string { return mustCtl(t, c.Node(2), "dlq", "status", "-s", dlq) }
	s.until("all but a few are under way", func() bool {
		return strings.Contains(status(), fmt.Sprintf("\trunning\t%d\t%d\t", room, n-room))
	})
	s.ready(small, room)
	mustCtl(t, c.Node(2), "dlq", "stop", dlq)
	s.until("they came back", func() bool { return strings.Contains(status(), fmt.Sprintf("\tstopped\t%d\t0\t%d\t", room, n-room)) })
	s.ready(dlq, n-room)
	s.holds(small, numbered("m", room)...)
}

// TestRedriveSurvives kills the leader of the queue, then the leader of the target while a
// redrive is under way: every message is in exactly one place, by its content.
func TestRedriveSurvives(t *testing.T) {
	t.Parallel()
	const messages = 1500
	c := startCluster(t, 3)
	s := at(t, c.Node(0))
	plainQueue(s, "dead", nil)
	plainQueue(s, "source", amqp.Table{"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"})
	bodies := numbered("m", messages)
	s.fill("source", bodies...)
	_, deliveries := s.consume("source", 0)
	for range messages {
		s.noError("reject", s.next(deliveries).Reject(false))
	}
	s.ready("dead", messages)
	s.noError("close", s.conn.Close())
	for round, queue := range []string{"dead", "source"} {
		victim, others := leaderOf(t, c, queue)
		p := at(t, others[0])
		before := looked(p, "source")
		redrive(t, others[0], "dead", map[string]any{"rate": []int{150, 400}[round]}) // the first takes ten seconds
		p.until("some to be moved", func() bool { return looked(p, "source") >= before+100 })
		kill(t, victim)
		if round == 0 {
			time.Sleep(700 * time.Millisecond)
			eventually(t, func() error { // nobody can stop it while its queue has no leader
				status, answer := apiBody(t, "DELETE", redriveURL(others[1], "dead"), nil)
				if status/100 != 2 {
					return fmt.Errorf("%d %s", status, answer)
				}
				return nil
			})
		}
		var st map[string]any
		p.until("the redrive ends", func() bool {
			status, body := api(t, "GET", redriveURL(others[1], "dead"))
			st = nil
			_ = json.Unmarshal(body, &st)
			return status == http.StatusOK && (st["state"] == "done" || st["state"] == "stopped")
		}, &st)
		left, moved := payloads(peekAll(t, others[0], "dead", "count=1000")), payloads(peekAll(t, others[1], "source", "count=1000"))
		all := slices.Sorted(slices.Values(slices.Concat(left, moved)))
		if want := slices.Sorted(slices.Values(bodies)); !slices.Equal(all, want) {
			t.Fatalf("after the leader of %s was killed: %d left, %d moved, %d distinct of %d; %v", queue, len(left), len(moved), len(slices.Compact(all)), messages, st)
		}
		if round == 0 && (len(moved) == 0 || len(left) == 0) {
			t.Errorf("the kill did not hit the redrive: %d moved", len(moved))
		}
		if round == 1 && len(left) > 0 {
			t.Errorf("%d are left: %v", len(left), st)
		}
		start(t, victim)
	}
	// The consumer sees each once.
	last := at(t, c.Node(1))
	if got := slices.Sorted(slices.Values(last.drain("source"))); !slices.Equal(got, slices.Sorted(slices.Values(bodies))) {
		t.Errorf("a consumer got %d", len(got))
	}
}

// looked is how many messages are ready in a queue.
func looked(s *session, queue string) int {
	s.Helper()
	q, err := s.ch.QueueDeclarePassive(queue, true, false, false, false, nil)
	s.noError("look", err)
	return q.Messages
}

func redriveURL(n *cluster.Node, queue string) string {
	return n.HTTP() + "/api/warren/queues/%2F/" + url.PathEscape(queue) + "/redrive"
}

func redrive(t *testing.T, n *cluster.Node, queue string, body map[string]any) {
	t.Helper()
	raw, err := json.Marshal(body)
	if err != nil {
		t.Fatal(err)
	}
	if status, answer := apiBody(t, "POST", redriveURL(n, queue), raw); status != http.StatusOK {
		t.Fatalf("%s: %d %s", strconv.Quote(queue), status, answer)
	}
}

// apiBody is api with a body.
func apiBody(t *testing.T, method, address string, content []byte) (status int, body []byte) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, address, bytes.NewReader(content))
	if err != nil {
		t.Fatal(err)
	}
	req.SetBasicAuth("guest", "guest")
	client := http.Client{Timeout: 20 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if body, err = io.ReadAll(resp.Body); err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, body
}

// TestReleaseParked shows D51: a dead letter that would go round by itself is seen and
// counted, and comes out when its queue gets another dead-letter exchange.
func TestReleaseParked(t *testing.T) { // alone: what is parked tries again whenever others change exchanges or queues
	c := ctlCluster(t)
	s := at(t, c.Node(0))
	args := amqp.Table{"x-queue-type": "quorum", "x-message-ttl": 20, "x-dead-letter-strategy": "at-least-once", "x-overflow": "reject-publish"}
	dlq, q := s.queue("dead", nil), s.queue("round", args)
	policy := func(key string) {
		mustCtl(t, c.Node(1), "set_policy", s.name("way"), "^"+regexp.QuoteMeta(q)+"$",
			`{"dead-letter-exchange":"","dead-letter-routing-key":"`+key+`"}`, "--apply-to", "queues")
	}
	policy(q)
	defer func() { mustCtl(t, c.Node(1), "clear_policy", s.name("way")) }()
	s.fill(q, "m")
	s.until("it is parked", func() bool { return len(peekAll(t, c.Node(1), q, "state=parked")) == 1 })
	if got := peekAll(t, c.Node(2), q, "state=parked"); len(got) != 1 || got[0].Stage != "parked-cycle" || got[0].Reason != "expired" {
		t.Errorf("%+v", got)
	}
	if out := mustCtl(t, c.Node(2), "dlq", "release", "-s", q); out != "0\t1\n" {
		t.Errorf("%q", out)
	}
	s.until("it is parked again", func() bool { return len(peekAll(t, c.Node(1), q, "state=parked")) == 1 })
	untilSays(t, c.Node(0), q+"\t0\t0\t1\t1\n", "dlq", "list", "-s")
	policy(dlq)
	s.holds(dlq, "m")
	s.ready(q, 0)
}
