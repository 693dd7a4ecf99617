package management

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/warrenmq/warren/broker"
)

// FuzzTopologyRequests sends any name and any body to what declares, binds, publishes and gets: each has an answer of its own, never the
// node's trouble (5xx), and refusals have RabbitMQ's form.
func FuzzTopologyRequests(f *testing.F) {
	for _, body := range []string{
		``, `{}`, `[]`, `null`, `"x"`, `{"type":"topic","durable":"true","arguments":{"a":[1,{"b":null}]}}`, `{"arguments":[],"exclusive":1}`,
		`{"routing_key":"k","arguments":{"x-match":"any"}}`, `{"count":"2","ackmode":"ack_requeue_true","encoding":"auto","truncate":"1"}`,
		`{"count":1e400,"ackmode":{},"encoding":[]}`, `{"properties":{"headers":{}},"routing_key":"","payload":"","payload_encoding":"base64"}`,
	} {
		f.Add("name", body)
	}
	f.Add("%2F", `{}`)
	f.Add("..", `{"durable":true}`)
	f.Fuzz(func(t *testing.T, name, body string) {
		b := &topologyBroker{fakeBroker: fakeBroker{vhosts: map[string][]string{"/": {"admin"}}, queues: []broker.QueueInfo{{VHost: "/", Name: name}, {VHost: "/", Name: "q"}}}}
		a := newFakeCluster("a").apis["a"]
		a.cfg.Broker = b
		part := url.PathEscape(name)
		for _, to := range []struct{ method, path string }{
			{http.MethodPut, "exchanges/%2F/" + part},
			{http.MethodPut, "queues/%2F/" + part},
			{http.MethodDelete, "queues/%2F/" + part + "?if-empty=" + url.QueryEscape(name)},
			{http.MethodPost, "queues/%2F/" + part + "/get"},
			{http.MethodPost, "queues/%2F/" + part + "/actions"},
			{http.MethodPost, "bindings/%2F/e/x/q/q"},
			{http.MethodGet, "bindings/%2F/e/x/q/q/" + part},
			{http.MethodPut, "parameters/" + part + "/%2F/n"},
			{http.MethodPut, "global-parameters/" + part},
		} {
			r := httptest.NewRequestWithContext(t.Context(), to.method, "/api/"+to.path, strings.NewReader(body))
			r.RemoteAddr = "127.0.0.1:1"
			r.SetBasicAuth("admin", "secret")
			w := httptest.NewRecorder()
			a.ServeHTTP(w, r)
			if w.Code >= 500 || w.Code >= 400 && !strings.HasPrefix(w.Body.String(), `{"error":"`) {
				t.Errorf("%s %s with %q: %d %s", to.method, to.path, body, w.Code, w.Body)
			}
		}
	})
}
