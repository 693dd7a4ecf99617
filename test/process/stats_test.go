package process

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/warrenmq/warren/test/cluster"
)

// look decodes what a node's API answers.
func look(t *testing.T, n *cluster.Node, path string) (v any) {
	t.Helper()
	status, body := api(t, "GET", n.HTTP()+path)
	if err := json.Unmarshal(body, &v); status != http.StatusOK || err != nil {
		t.Fatalf("%s: %d %s: %v", path, status, body, err)
	}
	return v
}

// field follows a path of names with dots between them; nil is what is not there.
func field(v any, path string) any {
	for name := range strings.SplitSeq(path, ".") {
		m, ok := v.(map[string]any)
		if !ok {
			return nil
		}
		v = m[name]
	}
	return v
}

// named finds an object of a list by what a field is.
func named(list any, path string, want any) any {
	items, _ := list.([]any)
	for _, item := range items {
		if field(item, path) == want {
			return item
		}
	}
	return nil
}

// What clients do at one node shows at another: counts at once, rates with the next sample (G11). When a node is killed
// the others answer in time for what is left.
func TestStatistics(t *testing.T) {
	t.Parallel()
	c := startCluster(t, 3)
	conn, err := connect(c.Node(0).URL())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	ch, err := conn.Channel()
	if err != nil {
		t.Fatal(err)
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(ch.Confirm(false))
	must(ch.ExchangeDeclare("counted", "fanout", true, false, false, false, nil))
	for i := range 6 {
		_, err := ch.QueueDeclare(fmt.Sprint("stats ", i), true, false, false, false, amqp.Table{"x-queue-type": "quorum"})
		must(err)
	}
	must(ch.QueueBind("stats 0", "", "counted", false, nil))
	must(ch.Qos(30, 0, false))
	deliveries, err := ch.Consume("stats 0", "the reader", false, false, false, false, nil)
	must(err)
	put := func(exchange, key string, n int) {
		t.Helper()
		var last *amqp.DeferredConfirmation
		for range n {
			last, err = ch.PublishWithDeferredConfirm(exchange, key, false, false, amqp.Publishing{Body: []byte("12345")})
			must(err)
		}
		if !confirmed(t, last) {
			t.Fatal("refused")
		}
	}
	put("counted", "", 100)
	put("", "stats 1", 40)
	put("", "nowhere", 3)
	for range 20 {
		must((<-deliveries).Ack(false))
	}
	other := c.Node(1)
	until := func(n *cluster.Node, path string, patience time.Duration, ok func(v any) bool) (v any) {
		t.Helper()
		for end := time.Now().Add(patience); ; time.Sleep(50 * time.Millisecond) {
			if v = look(t, n, path); ok(v) {
				return v
			}
			if time.Now().After(end) {
				text, _ := json.MarshalIndent(v, "", " ")
				t.Fatalf("%s is still %s", path, text)
			}
		}
	}
	is := func(v any, want map[string]any) bool {
		for path, w := range want {
			if field(v, path) != w {
				return false
			}
		}
		return true
	}
	first := map[string]any{
		"message_stats.publish": 100.0, "message_stats.ack": 20.0, "message_stats.deliver": 50.0, "message_stats.deliver_get": 50.0, "message_stats.redeliver": 0.0,
		"messages": 80.0, "messages_ready": 50.0, "messages_unacknowledged": 30.0, "consumers": 1.0, "message_bytes": 400.0, "message_bytes_unacknowledged": 150.0,
	}
	until(other, "/api/queues/%2F/stats%200", timeoutReply, func(v any) bool { return is(v, first) })
	until(other, "/api/queues?sort=messages&sort_reverse=true&page=1&page_size=2", timeoutReply, func(v any) bool {
		items, _ := field(v, "items").([]any)
		return len(items) == 2 && is(items[0], first) && is(items[1], map[string]any{"name": "stats 1", "messages": 40.0, "message_stats.publish": 40.0})
	})
	until(other, "/api/queues/%2F/stats%200", timeoutReply, func(q any) bool {
		return is(named(field(q, "consumer_details"), "consumer_tag", "the reader"), map[string]any{
			"ack_required": true, "prefetch_count": 30.0, "active": true, "activity_status": "up", "channel_details.node": c.Node(0).Name, "channel_details.number": 1.0,
		})
	})
	passive, err := ch.QueueDeclarePassive("stats 0", true, false, false, false, nil)
	if must(err); passive.Messages != 50 || passive.Consumers != 1 { // G11
		t.Errorf("%+v", passive)
	}
	until(other, "/api/exchanges/%2F/counted", timeoutReply, func(x any) bool {
		return is(x, map[string]any{"message_stats.publish_in": 100.0, "message_stats.publish_out": 100.0})
	})
	one := func(list any) bool { return len(list.([]any)) == 1 }
	name := fmt.Sprint(field(until(other, "/api/channels", timeoutReply, one).([]any)[0], "name"))
	whole := func(v any) bool {
		return is(v, map[string]any{
			"number": 1.0, "confirm": true, "prefetch_count": 30.0, "messages_unacknowledged": 30.0, "consumer_count": 1.0, "user": "guest", "vhost": "/", "transactional": false,
			"message_stats.publish": 143.0, "message_stats.confirm": 143.0, "message_stats.drop_unroutable": 3.0, "message_stats.ack": 20.0,
		})
	}
	until(other, "/api/channels", timeoutReply, func(list any) bool { return one(list) && whole(list.([]any)[0]) })
	until(other, "/api/channels/"+url.PathEscape(name), timeoutReply, whole)
	until(other, "/api/consumers/%2F", timeoutReply, one)
	until(other, "/api/connections/"+url.PathEscape(strings.TrimSuffix(name, " (1)"))+"/channels", timeoutReply, one)
	until(other, "/api/overview", timeoutReply, func(o any) bool {
		return is(o, map[string]any{
			"object_totals.queues": 6.0, "object_totals.connections": 1.0, "object_totals.channels": 1.0, "object_totals.consumers": 1.0, "node": other.Name,
			"message_stats.publish": 143.0, "message_stats.drop_unroutable": 3.0, "message_stats.ack": 20.0, "queue_totals.messages": 120.0, "queue_totals.messages_ready": 90.0,
			"churn_rates.queue_created": 6.0,
		})
	})
	until(other, "/api/vhosts", timeoutReply, func(list any) bool {
		return is(named(list, "name", "/"), map[string]any{"messages": 120.0, "message_stats.publish": 143.0})
	})

	// Rates come with the next sample, at the latest five seconds later, and so do the samples themselves.
	const spans = "?msg_rates_age=10&msg_rates_incr=5&lengths_age=10&lengths_incr=5"
	positive := func(path string) func(any) bool {
		return func(v any) bool { rate, _ := field(v, path).(float64); return rate > 0 }
	}
	busy, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case <-busy:
				return
			case <-time.After(100 * time.Millisecond):
				_ = ch.PublishWithContext(t.Context(), "counted", "", false, false, amqp.Publishing{}) // rates tell whether it worked
			}
		}
	}()
	for path, rate := range map[string]string{
		"/api/queues/%2F/stats%200" + spans: "message_stats.publish_details.rate", "/api/overview" + spans: "message_stats.publish_details.rate",
		"/api/exchanges/%2F/counted" + spans: "message_stats.publish_in_details.rate", "/api/channels/" + url.PathEscape(name) + spans: "message_stats.confirm_details.rate",
		"/api/vhosts/%2F" + spans: "message_stats.publish_details.rate",
		"/api/connections/" + url.PathEscape(strings.TrimSuffix(name, " (1)")): "recv_oct_details.rate",
	} {
		until(other, path, timeoutReply, func(v any) bool {
			samples, _ := field(v, strings.TrimSuffix(rate, "rate")+"samples").([]any)
			return positive(rate)(v) && (!strings.Contains(path, spans) || len(samples) == 3 && field(samples[0], "sample").(float64) >= 100)
		})
	}
	until(other, "/api/nodes/"+c.Node(0).Name+"?node_stats_age=10&node_stats_incr=5", timeoutReply, func(v any) bool {
		samples, _ := field(v, "mem_used_details.samples").([]any)
		links, _ := field(v, "cluster_links").([]any)
		goroutines, _ := field(v, "proc_used").(float64)
		return len(samples) == 3 && field(samples[0], "sample").(float64) > 0 && len(links) == 2 && goroutines > 10 && is(v, map[string]any{"sockets_used": 1.0})
	})
	// Its consumer holds as much as it may, but for a moment now and then.
	until(other, "/api/queues/%2F/stats%200", timeoutReply, func(q any) bool {
		return is(q, map[string]any{"idle_since": nil, "messages_persistent": field(q, "messages")}) &&
			field(q, "memory").(float64) >= 1000 && field(q, "consumer_capacity").(float64) <= 0.1
	})
	connection := strings.TrimSuffix(name, " (1)")
	for file, path := range map[string]string{
		"queue": "queues/%2F/stats%200", "channel": "channels/" + url.PathEscape(name), "connection": "connections/" + url.PathEscape(connection), "exchange": "exchanges/%2F/counted",
		"node": "nodes/" + c.Node(0).Name, "overview": "overview", "vhost": "vhosts/%2F", "consumer": "consumers/%2F",
	} {
		wantFields(t, file, func() any { return look(t, other, "/api/"+path) })
	}
	close(busy)
	<-done

	// What waits for a commit.
	transaction, err := conn.Channel()
	must(err)
	must(transaction.Tx())
	for range 2 {
		must(transaction.PublishWithContext(t.Context(), "", "stats 2", false, false, amqp.Publishing{}))
	}
	until(other, "/api/channels", timeoutReply, func(v any) bool {
		return is(named(v, "number", 2.0), map[string]any{"transactional": true, "messages_uncommitted": 2.0, "acks_uncommitted": 0.0})
	})
	must(transaction.TxCommit())
	until(other, "/api/channels", timeoutReply, func(v any) bool { return is(named(v, "number", 2.0), map[string]any{"messages_uncommitted": 0.0}) })
	must(transaction.Close())

	// What happens is told as it happens.
	events := listen(t, other)
	_, err = ch.QueueDeclare("told", true, false, false, false, nil)
	must(err)
	events("change", func(v any) bool {
		return is(v, map[string]any{"kind": "queue", "action": "created", "vhost": "/", "name": "told"})
	})
	_, err = ch.QueueDelete("told", false, false, false)
	must(err)
	events("change", func(v any) bool { return is(v, map[string]any{"kind": "queue", "action": "deleted", "name": "told"}) })
	events("overview", func(v any) bool { return is(v, map[string]any{"object_totals.queues": 6.0, "node": other.Name}) })

	// A node is killed: its counts are missing, and everything is answered in time.
	must(c.Node(2).Kill())
	events("node", func(v any) bool { return is(v, map[string]any{"name": c.Node(2).Name, "running": false}) })
	for _, path := range []string{"/api/overview", "/api/queues?sort=messages", "/api/channels", "/api/consumers", "/api/vhosts", "/api/exchanges", "/api/nodes"} {
		began := time.Now()
		look(t, other, path)
		if took := time.Since(began); took > bound(4*time.Second, began) {
			t.Errorf("%s took %v", path, took)
		}
	}
	until(other, "/api/queues?sort=messages&sort_reverse=true", timeoutReply, func(v any) bool {
		items, _ := v.([]any)
		if len(items) != 6 {
			return false
		}
		more, _ := field(items[0], "messages").(float64)
		return more >= 80 && is(items[0], map[string]any{"name": "stats 0", "state": "running"})
	})
}

// listen opens a node's stream of events. What it returns waits for an event of a kind, over others.
func listen(t *testing.T, n *cluster.Node) func(event string, ok func(v any) bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*timeoutReply)
	t.Cleanup(cancel)
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, n.HTTP()+"/api/warren/events", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	req.SetBasicAuth("guest", "guest")
	resp, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(req)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { resp.Body.Close() })
	if resp.StatusCode != http.StatusOK || resp.Header.Get("Content-Type") != "text/event-stream" {
		t.Fatalf("%s %v", resp.Status, resp.Header)
	}
	lines := bufio.NewScanner(resp.Body)
	lines.Buffer(nil, 1<<20)
	return func(event string, ok func(v any) bool) {
		t.Helper()
		kind := ""
		for lines.Scan() {
			if name, found := strings.CutPrefix(lines.Text(), "event: "); found {
				kind = name
			}
			data, found := strings.CutPrefix(lines.Text(), "data: ")
			var v any
			if !found || kind != event {
				continue
			}
			if err := json.Unmarshal([]byte(data), &v); err != nil {
				t.Fatalf("%s: %v", data, err)
			}
			if ok(v) {
				return
			}
		}
		t.Fatalf("no %s: %v", event, lines.Err())
	}
}
