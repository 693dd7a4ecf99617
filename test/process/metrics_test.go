package process

import (
	"bufio"
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/warrenmq/warren/test/cluster"
)

// scrape sums a node's or several nodes' metrics: series with their labels and values.
func scrape(t *testing.T, path string, nodes ...*cluster.Node) map[string]float64 {
	t.Helper()
	sums := map[string]float64{}
	for _, n := range nodes {
		status, body := api(t, "GET", n.HTTP()+path)
		if status != http.StatusOK {
			t.Fatalf("%s of %s: %d %s", path, n.Name, status, body)
		}
		for lines := bufio.NewScanner(strings.NewReader(string(body))); lines.Scan(); {
			series, value, ok := strings.Cut(lines.Text(), "} ")
			if series += "}"; !ok {
				series, value, _ = strings.Cut(lines.Text(), " ")
			}
			if v, err := strconv.ParseFloat(value, 64); err == nil {
				sums[series] += v
			}
		}
	}
	return sums
}

// awaitMetrics waits until the sums over nodes are as wanted.
func awaitMetrics(t *testing.T, nodes []*cluster.Node, want map[string]float64) {
	t.Helper()
	var got map[string]float64
	ctx, cancel := context.WithTimeout(t.Context(), timeoutReply)
	defer cancel()
	err := cluster.Poll(ctx, func() (bool, error) {
		got = scrape(t, "/metrics", nodes...)
		for series, n := range want {
			if got[series] != n {
				return false, nil
			}
		}
		return true, nil
	})
	if err != nil {
		for series, n := range want {
			if got[series] != n {
				t.Errorf("%s is %v, want %v", series, got[series], n)
			}
		}
	}
}

// rejectAll publishes n messages to the queue and rejects them.
func (s *session) rejectAll(queue string, n int) {
	s.Helper()
	for range n {
		s.publish("", queue, message("m"))
		d := s.get(queue)
		s.noError("reject", s.ch.Reject(d.DeliveryTag, false))
	}
}

// TestDeadLetterMetrics shows each death under its reason, type and strategy, and each
// drop under its cause, once on three nodes with three replicas; then a full and an
// unreachable target, which outbox status and health check name until they are well again.
func TestDeadLetterMetrics(t *testing.T) {
	t.Parallel()
	c := startCluster(t, 3)
	s := newSession(t, target{name: "three", url: c.Node(0).URL(), warren: true})
	dead := s.queue("dead", nil)
	dlx := s.exchange("dlx", "fanout", nil)
	s.bind(dead, "", dlx, nil)
	nowhere := s.exchange("nowhere", "fanout", nil)
	args := func(kv ...any) amqp.Table {
		t := amqp.Table{"x-dead-letter-exchange": dlx}
		for i := 0; i < len(kv); i += 2 {
			t[kv[i].(string)] = kv[i+1]
		}
		return t
	}
	t.Run("D12 D65 deaths, drops and what is kept", func(*testing.T) {
		s.rejectAll(s.queue("rejected", args()), 3)
		expired := s.queue("expired", args("x-message-ttl", 20))
		for range 2 {
			s.publish("", expired, message("m"))
		}
		short := s.queue("maxlen", args("x-max-length", 1))
		for range 5 {
			s.publish("", short, message("m"))
		}
		limited := s.queue("limited", args("x-queue-type", "quorum", "x-delivery-limit", 0))
		s.publish("", limited, message("m"))
		d := s.get(limited)
		s.noError("reject", s.ch.Reject(d.DeliveryTag, true))
		s.rejectAll(s.queue("plain", nil), 2)
		s.rejectAll(s.queue("missing", args("x-dead-letter-exchange", "absent")), 3)
		s.rejectAll(s.queue("unrouted", args("x-dead-letter-exchange", nowhere)), 4)
		s.publish("", s.queue("cycle", args("x-dead-letter-exchange", "", "x-message-ttl", 20)), message("m"))
		s.rejectAll(s.queue("kept", args("x-queue-type", "quorum", "x-dead-letter-exchange", "absent", "x-overflow", "reject-publish",
			"x-dead-letter-strategy", "at-least-once")), 2)

		const classic, quorum = `queue_type="rabbit_classic_queue"}`, `queue_type="rabbit_quorum_queue"}`
		const lettered = "rabbitmq_global_messages_dead_lettered_"
		awaitMetrics(t, c.Nodes(), map[string]float64{
			lettered + `rejected_total{dead_letter_strategy="at_most_once",` + classic:      7,
			lettered + `rejected_total{dead_letter_strategy="disabled",` + classic:          5,
			lettered + `rejected_total{dead_letter_strategy="at_least_once",` + quorum:      2,
			lettered + `expired_total{dead_letter_strategy="at_most_once",` + classic:       3,
			lettered + `maxlen_total{dead_letter_strategy="at_most_once",` + classic:        4,
			lettered + `delivery_limit_total{dead_letter_strategy="at_most_once",` + quorum: 1,
			lettered + `confirmed_total{dead_letter_strategy="at_most_once",` + classic:     9,
			lettered + `confirmed_total{dead_letter_strategy="at_most_once",` + quorum:      1,
			`warren_dead_letters_dropped_total{cause="no_dlx"}`:                             2,
			`warren_dead_letters_dropped_total{cause="no_exchange"}`:                        3,
			`warren_dead_letters_dropped_total{cause="unroutable"}`:                         4,
			`warren_dead_letters_dropped_total{cause="cycle"}`:                              1,
			`warren_outbox_messages{state="parked_unrouted"}`:                               2,
			"warren_dead_letter_move_seconds_count":                                         10,
			"rabbitmq_queues":                                                               10,
			"rabbitmq_connections":                                                          1,
			`rabbitmq_global_messages_received_total{protocol="amqp091"}`:                   23,
		})
		if !strings.Contains(c.Logs(), `"dead letters dropped"`) {
			t.Error("no log line on drops")
		}
		key := `warren_queue_dead_letters_total{queue="` + s.name("unrouted") + `",reason="rejected",vhost="/"}`
		if got := scrape(t, "/metrics/per-object", c.Nodes()...)[key]; got != 4 {
			t.Errorf("%s is %v", key, got)
		}
		key = `rabbitmq_detailed_queue_messages_ready{queue="` + dead + `",vhost="/"}`
		if got := scrape(t, "/metrics/detailed?family=queue_coarse_metrics&vhost=%2F", c.Nodes()...)[key]; got != 10 {
			t.Errorf("%s is %v", key, got)
		}
	})
	s.exchangeThere("absent", dead) // the parked ones go on
	t.Run("a full target", func(t *testing.T) {
		full := s.queue("full", amqp.Table{"x-max-length": 1, "x-overflow": "reject-publish"})
		source := s.queue("to full", amqp.Table{"x-dead-letter-exchange": "", "x-dead-letter-routing-key": full})
		s.publish("", full, message("in the way"))
		s.rejectAll(source, 1)
		stuck(t, c.Nodes(), source, full, "full")
		if code, out, failure := ctl(t, c.Node(2), "outbox_status", source); code != 0 || !strings.Contains(out, full+":1:full") {
			t.Errorf("%d %s %s", code, out, failure)
		}
		s.get(full)
		s.noError("ack", s.ch.Ack(0, true))
		moving(t, c.Nodes())
	})
	t.Run("a target without a quorum", func(t *testing.T) {
		s2 := newSession(t, target{name: "three", url: c.Node(2).URL(), warren: true})
		lost := s2.queue("lost", amqp.Table{"x-quorum-initial-group-size": 1, "x-queue-leader-locator": "client-local"})
		source := s.queue("to lost", amqp.Table{"x-dead-letter-exchange": "", "x-dead-letter-routing-key": lost, "x-queue-leader-locator": "client-local"})
		s.noError("kill", c.Node(2).Kill())
		s.rejectAll(source, 1)
		stuck(t, c.Nodes()[:2], source, lost, "unreachable")
		ctx, cancel := context.WithTimeout(t.Context(), timeoutStart)
		defer cancel()
		s.noError("start", c.Node(2).Start(ctx))
		moving(t, c.Nodes())
	})
}

// exchangeThere declares a fanout exchange by its full name, bound to a queue.
func (s *session) exchangeThere(name, queue string) {
	s.Helper()
	s.noError("declare", s.ch.ExchangeDeclare(name, "fanout", true, false, false, false, nil))
	s.bind(queue, "", name, nil)
}

// deadLettersHealth is what the check of dead letters answers.
type deadLettersHealth struct {
	Status, Reason string
	Queues         []struct {
		Queue   string
		Why     string
		Targets []struct{ Queue, State string }
	}
}

const healthPath = "/api/health/checks/warren/dead-letters?older_than=0.5"

// stuck waits until the health check of every node names the source and its target.
func stuck(t *testing.T, nodes []*cluster.Node, source, to, state string) {
	t.Helper()
	for _, n := range nodes {
		var h deadLettersHealth
		ctx, cancel := context.WithTimeout(t.Context(), timeoutReply)
		err := cluster.Poll(ctx, func() (bool, error) {
			status, body := api(t, "GET", n.HTTP()+healthPath)
			h = deadLettersHealth{}
			if err := json.Unmarshal(body, &h); err != nil {
				return false, err
			}
			return status == http.StatusServiceUnavailable && h.Status == "failed" && len(h.Queues) == 1 && h.Queues[0].Queue == source &&
				len(h.Queues[0].Targets) == 1 && h.Queues[0].Targets[0].Queue == to && h.Queues[0].Targets[0].State == state, nil
		})
		cancel()
		if err != nil {
			t.Fatalf("%s: %v: %+v", n.Name, err, h)
		}
		status, body := api(t, "GET", n.HTTP()+"/api/warren/queues/%2F/"+url.PathEscape(source)+"/outbox")
		if status != http.StatusOK || !strings.Contains(string(body), `"state":"`+state+`"`) {
			t.Errorf("%d %s", status, body)
		}
	}
	if n := scrape(t, "/metrics", nodes...)[`warren_outbox_stuck_targets{state="`+state+`"}`]; n != 1 {
		t.Errorf("%v stuck targets", n)
	}
	if !slices.ContainsFunc(nodes, func(n *cluster.Node) bool { return scrape(t, "/metrics", n)["warren_outbox_oldest_age_seconds"] >= 0.5 }) {
		t.Error("no old item is shown")
	}
}

// moving waits until the health check is content.
func moving(t *testing.T, nodes []*cluster.Node) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), timeoutStart)
	defer cancel()
	var body []byte
	if err := cluster.Poll(ctx, func() (bool, error) {
		var status int
		status, body = api(t, "GET", nodes[0].HTTP()+"/api/health/checks/warren/dead-letters?older_than=0")
		return status == http.StatusOK && string(body) == `{"status":"ok"}`, nil
	}); err != nil {
		t.Fatalf("%v: %s", err, body)
	}
}
