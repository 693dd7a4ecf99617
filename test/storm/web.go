package storm

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"time"

	"github.com/warrenmq/warren/test/cluster"
)

// answerBytesMax is how much of an answer is read.
const answerBytesMax = 16 << 20

// ask makes a request of the management API as guest and returns what was answered.
func (w *world) ask(ctx context.Context, n *cluster.Node, method, path, body string) (status int, answer []byte, err error) {
	req, err := http.NewRequestWithContext(ctx, method, n.HTTP()+"/api/"+path, strings.NewReader(body))
	if err != nil {
		return 0, nil, err
	}
	req.SetBasicAuth("guest", "guest")
	return w.request(req)
}

var webClient = &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: 30 * time.Second}

func (w *world) request(req *http.Request) (status int, answer []byte, err error) {
	resp, err := webClient.Do(req)
	if err != nil {
		return 0, nil, err
	}
	defer resp.Body.Close()
	answer, err = io.ReadAll(io.LimitReader(resp.Body, answerBytesMax))
	w.answered(fmt.Sprintf("http %d", resp.StatusCode))
	if resp.StatusCode == http.StatusInternalServerError {
		w.find("internal error", "%s %s: %s: %.500s", req.Method, req.URL, resp.Status, answer)
	}
	return resp.StatusCode, answer, err
}

// endpoint is a method of a path of the management API.
type endpoint struct{ method, path string }

var (
	pathLine   = regexp.MustCompile(`^  (/\S*):$`)
	methodLine = regexp.MustCompile(`^    (get|put|post|delete):$`)
	inPath     = regexp.MustCompile(`\{([a-z_]+)\}`)
)

// endpoints are those that the node describes, without what would take the harness's own ground away.
func (w *world) endpoints(ctx context.Context) (list []endpoint, err error) {
	status, text, err := w.ask(ctx, w.cluster.Node(0), http.MethodGet, "openapi.yaml", "")
	if err != nil || status != http.StatusOK {
		return nil, fmt.Errorf("the API's description: %d %w", status, err)
	}
	path := ""
	for line := range strings.Lines(string(text)) {
		line = strings.TrimRight(line, "\n")
		if m := pathLine.FindStringSubmatch(line); m != nil {
			path = m[1]
		}
		if m := methodLine.FindStringSubmatch(line); m != nil && path != "" {
			e := endpoint{strings.ToUpper(m[1]), path}
			if e.method == http.MethodPut && path == "/warren/log-level" || strings.HasPrefix(path, "/warren/nodes/") || strings.HasPrefix(path, "/auth/hash_password") {
				continue // what is looked at, nodes that leave for good, and much work
			}
			list = append(list, e)
		}
	}
	return list, nil
}

// browse makes one request after the other, with any content, until ctx ends.
func (w *world) browse(ctx context.Context, number int, list []endpoint) {
	d := newDice(w.cfg.Seed, uint64(3000+number))
	t := w.trace(fmt.Sprintf("http%02d", number))
	for ctx.Err() == nil {
		e := pick(d, list...)
		path := inPath.ReplaceAllStringFunc(e.path, func(p string) string { return url.PathEscape(w.pathValue(d, e, p[1:len(p)-1])) })
		if d.chance(.2) {
			path += "?" + pick(d, "page=1&page_size=2", "columns=name", "sort=name&sort_reverse=true", "for=0", "page=x", "lines=1", "lengths_age=60&lengths_incr=5", "msg_rates_age=60&msg_rates_incr=5",
				"use_regex=true&name=(", "if-unused=true", "if-empty=true", "count=3&state=ready", "disable_stats=true", "%zz")
		}
		body := ""
		if e.method != http.MethodGet {
			body = d.json(3)
		}
		n := w.node(d)
		user := d.user()
		t.say("%s: %s as %q %s %.300s", n.Name, e.method, user, path, body)
		if d.chance(.05) {
			abort(n, e.method, path, d)
			continue
		}
		asking, cancel := context.WithTimeout(ctx, d.between(time.Millisecond, 4*time.Second))
		req, err := http.NewRequestWithContext(asking, e.method, n.HTTP()+"/api"+path, strings.NewReader(body))
		if err == nil {
			if d.chance(.6) {
				user = "guest" // else most is refused
			}
			req.SetBasicAuth(user, d.passwordOf(user))
			var status int
			status, _, err = w.request(req)
			t.say("  %d %v", status, err)
		}
		cancel()
		time.Sleep(d.between(0, 30*time.Millisecond))
	}
}

// abort sends a part of a request and goes.
func abort(n *cluster.Node, method, path string, d dice) {
	conn, err := net.DialTimeout("tcp", strings.TrimPrefix(n.HTTP(), "http://"), time.Second)
	if err != nil {
		return
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(time.Second))
	text := fmt.Sprintf("%s /api%s HTTP/1.1\r\nHost: h\r\nAuthorization: Basic Z3Vlc3Q6Z3Vlc3Q=\r\nContent-Length: 1000\r\n\r\n{\"half\":", method, path)
	_, _ = conn.Write([]byte(text[:d.IntN(len(text))])) // the node may have ended
}

func (w *world) pathValue(d dice, e endpoint, name string) string {
	switch name {
	case "vhost":
		if e.path == "/vhosts/{vhost}" && e.method == http.MethodDelete {
			return pick(d, "v1", "v2")
		}
		return d.vhost()
	case "user":
		if strings.Contains(e.path, "users/") && e.method != http.MethodGet {
			return lostUser
		}
		return pick(d, changed...)
	case "node":
		return pick(d, "node1", "node2", "node3", "none")
	case "exchange", "source":
		return d.exchangeName()
	case "destination":
		if d.chance(.5) {
			return d.exchangeName()
		}
	case "name":
		switch {
		case e.path == "/queues/{vhost}/{name}" && e.method == http.MethodPut:
			return d.oddly()
		case strings.HasPrefix(e.path, "/nodes"):
			return pick(d, "node1", "node2", "none")
		case strings.Contains(e.path, "limits"):
			return pick(d, "max-connections", "max-queues", "max-channels")
		case strings.Contains(e.path, "policies"):
			return pick(d, "p1", "p2")
		}
	case "component":
		return pick(d, "operator_policy", "policy", "shovel")
	case "props":
		return pick(d, "~", "a.b", "k~x")
	case "port":
		return pick(d, "5672", "1", "x")
	}
	return d.queueName()
}

// json is the body of a request.
func (d dice) json(depth int) string {
	if d.chance(.1) {
		return pick(d, "", "null", "[]", "{", `"text"`, "1e999", `{"a":`, "\xff", strings.Repeat("[", 20000), `{}{}`)
	}
	o := map[string]any{}
	for range d.IntN(8) {
		name := pick(d, "durable", "auto_delete", "internal", "arguments", "type", "node", "pattern", "definition", "apply-to", "priority", "value", "count",
			"ackmode", "encoding", "payload", "payload_encoding", "properties", "routing_key", "truncate", "to", "queue", "discard", "reasons", "ids", "rate", "dry_run",
			"tags", "password", "configure", "write", "read", "lost", "vhost", "name", "action", "users", "queues", "exchanges", "bindings", "policies", "permissions",
			"strategy", "vhost_pattern", "queue_pattern", "size", "exchange", "from", "older_than", "message_ids", "header", "requeue", "limit")
		o[name] = d.jsonValue(name, depth)
	}
	text, err := json.Marshal(o)
	if err != nil {
		return err.Error()
	}
	return string(bytes.ToValidUTF8(text, []byte("?")))
}

func (d dice) jsonValue(name string, depth int) any {
	if d.chance(.8) {
		switch name {
		case "durable", "auto_delete", "internal", "discard", "dry_run", "requeue":
			return d.chance(.5)
		case "arguments", "properties":
			return json.RawMessage(pick(d, `{}`, `{}`, `{"x-max-length":3}`, `{"headers":{"h":1}}`, `{"delivery_mode":2,"priority":3}`, `[]`))
		case "definition":
			return json.RawMessage(d.definition())
		case "pattern", "configure", "write", "read", "vhost_pattern", "queue_pattern":
			return pick(d, ".*", "", "^two", "q")
		case "node":
			return pick(d, "node1", "node2", "node3", "none")
		case "lost":
			return []string{pick(d, "node1", "node2", "node3")}
		case "vhost":
			return d.vhost()
		case "priority", "value", "count", "size", "rate", "truncate", "limit":
			return d.number()
		case "ids":
			return []int{d.IntN(20), d.IntN(20)}
		case "users", "queues", "exchanges", "bindings", "policies", "permissions", "reasons", "message_ids":
			if depth > 0 && d.chance(.5) {
				return []any{json.RawMessage(d.json(0))}
			}
			return []any{}
		case "type":
			return pick(d, "direct", "fanout", "x-delayed-message")
		case "ackmode":
			return pick(d, "ack_requeue_true", "ack_requeue_false", "reject_requeue_true", "reject_requeue_false")
		case "encoding", "payload_encoding":
			return pick(d, "auto", "base64", "string")
		case "exchange":
			return d.exchangeName()
		case "tags":
			return pick[any](d, "administrator", "monitoring", "", "policymaker,management", []string{"management"})
		case "password":
			return password
		case "action":
			return pick(d, "sync", "cancel_sync", "none")
		case "strategy":
			return pick(d, "all", "even")
		}
		return strings.ToValidUTF8(d.queueName(), "?")
	}
	return pick[any](d, nil, 1, -1, "text", true, 1.5, []any{}, map[string]any{"a": []any{nil}}, strings.Repeat("x", 5000))
}

// definition is that of a policy.
func (d dice) definition() string {
	return pick(d, `{"max-length":3}`, `{"message-ttl":200}`, `{"expires":800}`, `{"dead-letter-exchange":"x-fanout"}`, `{"dead-letter-exchange":"","dead-letter-routing-key":"q0"}`,
		`{"max-length":2,"overflow":"reject-publish"}`, `{"delivery-limit":1}`, `{"max-length-bytes":0}`, `{"alternate-exchange":"x-topic"}`, `{"deduplication-window":1000}`,
		`{"consumer-timeout":500}`, `{"dead-letter-strategy":"at-least-once","overflow":"reject-publish","dead-letter-exchange":"x-direct"}`, `{"target-group-size":2}`, `{"delayed-retry-type":"all","delayed-retry-min":50}`, `{"dead-letter-on-removal":true,"dead-letter-exchange":"x-fanout"}`, `{"none":1}`, `{}`)
}
