package management

import (
	"context"
	"encoding/json"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/warrenmq/warren/amqp"
	"github.com/warrenmq/warren/broker"
)

// publishBroker takes every message.
type publishBroker struct {
	fakeBroker
	body string // of the newest to the default exchange
}

func (p *publishBroker) PublishOnce(_ context.Context, u broker.User, _ string, m broker.Publish) (routed bool, confirm broker.Confirm, err error) {
	switch m.Exchange {
	case "missing":
		return false, confirm, broker.Errorf(broker.NotFound, "no exchange")
	case "secret":
		return false, confirm, broker.Errorf(broker.AccessRefused, "write access refused for user '%s'", u.Name)
	case "wrong":
		return false, confirm, broker.Errorf(broker.PreconditionFailed, "invalid expiration 'x'")
	case "":
		p.body = string(m.Body)
	case "full":
		return true, broker.Confirm{Refused: true}, nil
	}
	return m.Exchange != "nowhere", confirm, nil
}

func TestPublish(t *testing.T) {
	b := &publishBroker{fakeBroker: fakeBroker{vhosts: map[string][]string{"/": {"other"}}}}
	f := newFakeCluster("a")
	f.apis["a"].cfg.Broker = b
	body := func(properties, payload, encoding string) string {
		return `{"properties":` + properties + `,"routing_key":"k","payload":` + payload + `,"payload_encoding":` + encoding + `}`
	}
	plain := body(`{}`, `"m"`, `"string"`)
	for _, tc := range []struct {
		exchange, body string
		status         int
		want           string
	}{
		{"x", plain, 200, `{"routed":true}`},
		{"amq.default", body(`[]`, `"bQ=="`, `"base64"`), 200, `{"routed":true}`},
		{"nowhere", plain, 200, `{"routed":false}`},
		{"full", plain, 400, "Unable to publish message. Check queue limits."},
		{"missing", plain, 404, `{"error":"not_found","reason":"exchange_not_found"}`},
		{"secret", plain, 401, "write access refused for user 'other'"},
		{"wrong", plain, 400, "invalid expiration"},
		{"x", `{"routing_key":"k","payload":"m","payload_encoding":"string"}`, 400, "key_missing: properties"},
		{"x", `{`, 400, "not_json"},
		{"x", body(`{}`, "\"\xff\"", `"string"`), 400, "not_json"},
		{"x", body(`{"headers":{"é":1}}`, `"é"`, `"string"`), 200, ""},
		{"x", body(`{}`, `7`, `"string"`), 400, "payload is no text"},
		{"x", body(`{}`, `"*"`, `"base64"`), 400, "payload is not base64"},
		{"x", body(`{}`, `"m"`, `"rot13"`), 400, "unsupported encoding: rot13"},
		{"x", body(`"none"`, `"m"`, `"string"`), 400, "properties is no object"},
		{"x", body(`{"colour":"red"}`, `"m"`, `"string"`), 400, "unknown property: colour"},
		{"x", body(`{"priority":256}`, `"m"`, `"string"`), 400, "property priority is no integer from 0 to 255"},
		{"x", body(`{"priority":1.5}`, `"m"`, `"string"`), 400, "property priority is no integer"},
		{"x", body(`{"type":["t"]}`, `"m"`, `"string"`), 400, "property type is no text"},
		{"x", body(`{"type":"`+strings.Repeat("t", 256)+`"}`, `"m"`, `"string"`), 400, "property type is no text"},
		{"x", body(`{"timestamp":"now"}`, `"m"`, `"string"`), 400, "property timestamp is no integer"},
		{"x", body(`{"headers":{"h":"`+strings.Repeat("h", amqp.PropertiesMax)+`"}}`, `"m"`, `"string"`), 400, "are more than 122880"},
		{"x", body(`{"headers":3}`, `"m"`, `"string"`), 400, "property headers is no object"},
		{"x", body(`{"headers":{"a":1e999}}`, `"m"`, `"string"`), 400, "out of range"},
		{"x", body(`{"headers":{"`+strings.Repeat("h", 256)+`":1}}`, `"m"`, `"string"`), 400, "longer than 255 bytes"},
		{"x", body(`{"headers":{"a":`+strings.Repeat(`[`, 40)+strings.Repeat(`]`, 40)+`}}`, `"m"`, `"string"`), 400, "nested too deeply"},
		{"x", `{"properties":{},"routing_key":"` + strings.Repeat("k", 256) + `","payload":"m","payload_encoding":"string"}`, 400, "routing_key is no text"},
	} {
		r := httptest.NewRequestWithContext(t.Context(), "POST", "/api/exchanges/%2F/"+tc.exchange+"/publish", strings.NewReader(tc.body))
		r.RemoteAddr = "127.0.0.1:1"
		r.SetBasicAuth("other", "secret")
		w := httptest.NewRecorder()
		f.apis["a"].ServeHTTP(w, r)
		status, got := w.Code, w.Body.String()
		if status != tc.status || !strings.Contains(got, tc.want) {
			t.Errorf("%s %s: %d %s, want %d %s", tc.exchange, tc.body, status, got, tc.status, tc.want)
		}
	}
	if b.body != "m" {
		t.Errorf("the default exchange got %q", b.body)
	}
}

// TestPublishUnderAlarm: a message waits for the end of an alarm, for a while; then it is refused with the reason, and not stored.
func TestPublishUnderAlarm(t *testing.T) {
	for _, tc := range []struct {
		lasts  time.Duration
		status int
		want   string
	}{
		{time.Second, 200, `{"routed":true}`},
		{time.Minute, 503, `"reason":"publishers are blocked: low on memory"`},
	} {
		synctest.Test(t, func(t *testing.T) {
			b := &publishBroker{fakeBroker: fakeBroker{vhosts: map[string][]string{"/": {"other"}}}}
			a := newFakeCluster("a").apis["a"]
			a.cfg.Broker = b
			a.cfg.HoldUp = func(ctx context.Context) string {
				select {
				case <-time.After(tc.lasts):
					return ""
				case <-ctx.Done():
					return "low on memory"
				}
			}
			r := httptest.NewRequestWithContext(t.Context(), "POST", "/api/exchanges/%2F/amq.default/publish",
				strings.NewReader(`{"properties":{},"routing_key":"k","payload":"m","payload_encoding":"string"}`))
			r.RemoteAddr = "127.0.0.1:1"
			r.SetBasicAuth("other", "secret")
			w := httptest.NewRecorder()
			began := time.Now()
			a.ServeHTTP(w, r)
			if w.Code != tc.status || !strings.Contains(w.Body.String(), tc.want) || (b.body != "") != (tc.status == 200) || time.Since(began) > timeoutConfirm {
				t.Errorf("%d %s after %v, stored %q", w.Code, w.Body, time.Since(began), b.body)
			}
		})
	}
}

func TestPropertiesOf(t *testing.T) {
	const text = `{"app_id":"a","content_encoding":"e","content_type":"t","correlation_id":"c","delivery_mode":2,"expiration":"5",` +
		`"headers":{"array":[1,"two",null],"float":1.5,"no":null,"number":7,"table":{"in":true},"text":"x"},` +
		`"message_id":"m","priority":3,"reply_to":"r","timestamp":9,"type":"y","user_id":"u"}`
	dec := json.NewDecoder(strings.NewReader(text))
	dec.UseNumber()
	var fields map[string]any
	if err := dec.Decode(&fields); err != nil {
		t.Fatal(err)
	}
	props, err := propertiesOf(fields)
	if err != nil {
		t.Fatal(err)
	}
	got, err := json.Marshal(PropertiesJSON(props))
	if err != nil || string(got) != text {
		t.Errorf("got  %s (%v)\nwant %s", got, err, text)
	}
	fields["expiration"] = json.Number("60000") // as careless clients send it
	if props, err = propertiesOf(fields); err != nil {
		t.Fatal(err)
	}
	if e, _ := props.Expiration(); e != "60000" {
		t.Errorf("expiration %q", e)
	}
}
