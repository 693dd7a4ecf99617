package management

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/warrenmq/warren/amqp"
	"github.com/warrenmq/warren/broker"
	"github.com/warrenmq/warren/fsm"
)

// topologyBroker has one queue "q", one exchange "x" and what was bound; it says what it was asked last.
type topologyBroker struct {
	fakeBroker
	bound []broker.BindingInfo
	last  string
	got   []broker.Fetched
}

func (b *topologyBroker) says(format string, args ...any) { b.last = fmt.Sprintf(format, args...) }

func (b *topologyBroker) Exchanges(string) []broker.ExchangeInfo {
	return []broker.ExchangeInfo{{VHost: "/", Type: "direct", Durable: true}, {VHost: "/", Name: "x", Type: "fanout", Policy: "p"}, {VHost: "v", Name: "y", Type: "topic"}}
}

func (b *topologyBroker) FindExchange(_ context.Context, vhost, name string) (broker.ExchangeInfo, error) {
	for _, x := range b.Exchanges("") {
		if x.VHost == vhost && x.Name == name {
			return x, nil
		}
	}
	return broker.ExchangeInfo{}, broker.Errorf(broker.NotFound, "no exchange")
}

func (b *topologyBroker) PutExchange(_ context.Context, u broker.User, vhost string, d broker.ExchangeDeclare) (bool, error) {
	b.says("%s declares %+v in %s", u.Name, d, vhost)
	switch d.Name {
	case "secret":
		return false, broker.Errorf(broker.AccessRefused, "configure access to exchange 'secret' in vhost '/' refused for user '%s'", u.Name)
	case "other":
		return false, broker.Errorf(broker.PreconditionFailed, "inequivalent arg 'type'")
	}
	return d.Name != "x", nil
}

func (b *topologyBroker) DropExchange(_ context.Context, _ broker.User, _, name string, ifUnused bool) error {
	b.says("deletes %s %t", name, ifUnused)
	return nil
}

func (b *topologyBroker) Bindings(string) []broker.BindingInfo { return b.bound }
func (b *topologyBroker) BindingsFrom(_, source string) (list []broker.BindingInfo) {
	for _, x := range b.bound {
		if x.Source == source {
			list = append(list, x)
		}
	}
	return list
}

func (b *topologyBroker) BindingsTo(_, destination string, toExchange bool) (list []broker.BindingInfo) {
	for _, x := range b.bound {
		if x.Destination == destination && x.ToExchange == toExchange {
			list = append(list, x)
		}
	}
	return list
}

func (b *topologyBroker) PutBinding(_ context.Context, _ broker.User, vhost string, bd broker.Binding) error {
	if bd.Destination == "none" {
		return broker.Errorf(broker.NotFound, "no queue 'none' in vhost '/'")
	}
	b.bound = append(b.bound, broker.BindingInfo{VHost: vhost, Binding: bd})
	return nil
}

func (b *topologyBroker) DropBinding(_ context.Context, _ broker.User, _ string, bd broker.Binding) error {
	b.says("unbinds %q", bd.Key)
	return nil
}

func (b *topologyBroker) PutQueue(_ context.Context, u broker.User, vhost string, d broker.QueueDeclare) (bool, error) {
	b.says("%s declares %+v in %s", u.Name, d, vhost)
	return d.Name != "q", nil
}

func (b *topologyBroker) ForceDropQueue(_ context.Context, _ broker.User, vhost, name string) (uint32, error) {
	b.says("deletes %s in %s by force", name, vhost)
	return 0, nil
}

func (b *topologyBroker) ForceDropDelays(_ context.Context, _ broker.User, vhost, name string) error {
	b.says("deletes what %s in %s kept by force", name, vhost)
	return nil
}

func (b *topologyBroker) DropQueue(_ context.Context, _ broker.User, _, name string, ifUnused, ifEmpty bool) (uint32, error) {
	b.says("deletes %s %t %t", name, ifUnused, ifEmpty)
	switch name {
	case "missing":
		return 0, broker.Errorf(broker.NotFound, "no queue")
	case "locked":
		return 0, broker.Errorf(broker.ResourceLocked, "cannot obtain exclusive access to locked queue 'locked'")
	}
	return 0, nil
}

func (b *topologyBroker) PauseQueue(_ context.Context, _ broker.User, _, name string, paused bool) error {
	b.says("pauses %s %t", name, paused)
	if name == "missing" {
		return broker.Errorf(broker.NotFound, "no queue")
	}
	return nil
}

func (b *topologyBroker) Purge(_ context.Context, _ broker.User, _, name string) (uint32, error) {
	b.says("purges %s", name)
	return 1, nil
}

func (b *topologyBroker) FetchOnce(_ context.Context, _ broker.User, _, name string, f broker.Fetch) ([]broker.Fetched, error) {
	if name == "none" {
		return nil, broker.Errorf(broker.NotFound, "no queue 'none' in vhost '/'")
	}
	b.says("fetches %d to %d, ends %d", f.Count, f.Truncate, f.End)
	return b.got, nil
}

func topologyOf(t *testing.T) (*topologyBroker, func(method, path, body string) *httptest.ResponseRecorder) {
	return topologyFor(t, "other")
}

func topologyFor(t *testing.T, user string) (*topologyBroker, func(method, path, body string) *httptest.ResponseRecorder) {
	b := &topologyBroker{fakeBroker: fakeBroker{vhosts: map[string][]string{"/": {"other", "admin"}, "v": {}}, queues: []broker.QueueInfo{{VHost: "/", Name: "q"}}}}
	f := newFakeCluster("a")
	f.apis["a"].cfg.Broker = b
	return b, func(method, path, body string) *httptest.ResponseRecorder {
		t.Helper()
		r := httptest.NewRequestWithContext(t.Context(), method, path, strings.NewReader(body))
		r.RemoteAddr = "127.0.0.1:1"
		r.SetBasicAuth(user, "secret")
		w := httptest.NewRecorder()
		f.apis["a"].ServeHTTP(w, r)
		return w
	}
}

func TestQueueDeletedByForce(t *testing.T) {
	b, do := topologyFor(t, "admin")
	if w := do("DELETE", "/api/queues/%2F/q?force=true&if-empty=true", ""); w.Code != 400 || !strings.Contains(w.Body.String(), "nobody can tell without its leader") {
		t.Errorf("only if it is empty: %d %s", w.Code, w.Body)
	}
	for path, asked := range map[string]string{
		"%2F/q?force=true":                        "deletes q in / by force",
		"deleted/q?force=true":                    "deletes q in deleted by force",
		"%2F/x?force=true&delayed-exchange=true":  "deletes what x in / kept by force",
		"gone/x?force=true&delayed-exchange=true": "deletes what x in gone kept by force",
	} {
		if w := do("DELETE", "/api/queues/"+path, ""); w.Code != 204 || b.last != asked {
			t.Errorf("%s: %d %s, asked %q", path, w.Code, w.Body, b.last)
		}
	}
	if w := do("DELETE", "/api/queues/%2F/x?delayed-exchange=true", ""); w.Code != 400 || !strings.Contains(w.Body.String(), "goes with the exchange") {
		t.Errorf("without force: %d %s", w.Code, w.Body)
	}
	if w := do("DELETE", "/api/queues/gone/q", ""); w.Code != 404 {
		t.Errorf("in a vhost that is not there: %d %s", w.Code, w.Body)
	}
}

func TestTopology(t *testing.T) {
	b, do := topologyOf(t)
	b.got = []broker.Fetched{{Exchange: "x", Key: "k", Redelivered: true, Remaining: 4, Body: []byte("héllo"[:2]), BodyBytes: 6}, {Body: []byte{0xff}, BodyBytes: 1}}
	for _, tc := range []struct {
		method, path, body string
		status             int
		want               string // in the answer
		asked              string // of the broker
	}{
		{"GET", "exchanges", "", 200, `[{"name":"","vhost":"/","type":"direct","durable":true,"auto_delete":false,"internal":false,"arguments":{},"policy":null},{"name":"x"`, ""},
		{"GET", "exchanges/%2F/x", "", 200, `"policy":"p"`, ""},
		{"GET", "exchanges/%2F/amq.default", "", 200, `"type":"direct"`, ""},
		{"GET", "exchanges/%2F/none", "", 404, "Not Found", ""},
		{"GET", "exchanges/v", "", 401, "User not authorised", ""},
		{"GET", "exchanges/none", "", 404, "Not Found", ""},
		{
			"PUT", "exchanges/%2F/new", `{"type":"topic","durable":"true","auto_delete":false,"arguments":{"alternate-exchange":"x"}}`,
			201, "", "other declares {Name:new Type:topic Passive:false Durable:true AutoDelete:false Internal:false Arguments:[alternate-exchange=x]} in /",
		},
		{"PUT", "exchanges/%2F/x", `{}`, 204, "", "Type:direct Passive:false Durable:false"},
		{"PUT", "exchanges/%2F/secret", `{}`, 401, `{"error":"not_authorised","reason":"configure access to exchange 'secret' in vhost '/' refused for user 'other'"}`, ""},
		{"PUT", "exchanges/%2F/other", `{}`, 400, `{"error":"bad_request","reason":"inequivalent arg 'type'"}`, ""},
		{"PUT", "exchanges/%2F/new", `{"durable":7}`, 400, "not_boolean: durable is 7", ""},
		{"PUT", "exchanges/%2F/new", `{"type":""}`, 201, "", "Name:new Type: Passive:false"}, // the broker refuses it
		{"PUT", "exchanges/%2F/new", `{"type":null}`, 201, "", "Name:new Type:null Passive:false"},
		{"PUT", "exchanges/%2F/new", `{"type":7}`, 400, "type should be a string", ""},
		{"PUT", "exchanges/%2F/new", `{"arguments":7}`, 400, "arguments should be an object", ""},
		{"PUT", "exchanges/%2F/new", `[`, 400, "not_json", ""},
		{"DELETE", "exchanges/%2F/x?if-unused=true", "", 204, "", "deletes x true"},
		{"PUT", "queues/%2F/new", `{"durable":true,"arguments":{"x-max-length":3}}`, 201, "", "Durable:true Exclusive:false AutoDelete:false Arguments:[x-max-length=3]"},
		{"PUT", "queues/%2F/a%2Fb", `{"arguments":[]}`, 201, "", "Name:a/b"},
		{"PUT", "queues/%2F/q", ``, 204, "", "Durable:false"},
		{"PUT", "queues/%2F/new", `{"exclusive":true}`, 400, "belongs to a connection", ""},
		{"DELETE", "queues/%2F/q?if-empty=true", "", 204, "", "deletes q false true"},
		{"DELETE", "queues/%2F/q?force=true", "", 401, "User not authorised", ""},
		{"DELETE", "queues/none/q?force=true", "", 404, "Not Found", ""},
		{"DELETE", "queues/%2F/missing", "", 404, "Not Found", ""},
		{"DELETE", "queues/%2F/locked", "", 400, "exclusive access", ""},
		{"DELETE", "queues/%2F/q/contents", "", 204, "", "purges q"},
		{"PUT", "queues/%2F/q/pause", "", 204, "", "pauses q true"},
		{"PUT", "queues/%2F/q/resume", "", 204, "", "pauses q false"},
		{"PUT", "queues/%2F/missing/pause", "", 404, `"error":"Object Not Found"`, "pauses missing true"},
		{"POST", "queues/%2F/q/get", `{"count":"2","ackmode":"ack_requeue_false","encoding":"auto","truncate":2}`, 200, `[{"payload_bytes":6,"redelivered":true,` +
			`"exchange":"x","routing_key":"k","message_count":4,"properties":{},"payload":"h","payload_encoding":"string"},{"payload_bytes":1,`, fmt.Sprintf("fetches 2 to 2, ends %d", fsm.Ack)},
		{"POST", "queues/%2F/q/get", `{"count":1,"ackmode":"ack_requeue_true","encoding":"base64"}`, 200, `"payload":"/w==","payload_encoding":"base64"`, fmt.Sprintf("to -1, ends %d", fsm.RequeueFailed)},
		{"POST", "queues/%2F/q/get", `{"count":1,"ackmode":"reject_requeue_true","encoding":"auto"}`, 200, "", fmt.Sprintf("ends %d", fsm.RequeueFailed)},
		{"POST", "queues/%2F/q/get", `{"count":1,"ackmode":"reject_requeue_false","encoding":"auto"}`, 200, "", fmt.Sprintf("ends %d", fsm.Discard)},
		{"POST", "queues/%2F/q/get", `{"count":1,"requeue":false,"encoding":"auto"}`, 200, "", fmt.Sprintf("ends %d", fsm.Ack)},
		{"POST", "queues/%2F/none/get", `{"count":1,"ackmode":"ack_requeue_true","encoding":"auto"}`, 404, `{"error":"not_found","reason":"queue_not_found"}`, ""},
		{"POST", "bindings/%2F/e/x/q/none", `{"routing_key":"k"}`, 404, `{"error":"not_found","reason":"no queue 'none' in vhost '/'"}`, ""},
		{"POST", "queues/%2F/q/get", `{"count":1,"encoding":"auto"}`, 400, "[{key_missing,ackmode}]", ""},
		{"POST", "queues/%2F/q/get", `{"count":1,"ackmode":"eat","encoding":"auto"}`, 400, "unsupported ackmode", ""},
		{"POST", "queues/%2F/q/get", `{"count":-1,"ackmode":"ack_requeue_true","encoding":"auto"}`, 400, "count is negative", ""},
		{"POST", "queues/%2F/q/get", `{"count":"all","ackmode":"ack_requeue_true","encoding":"auto"}`, 400, "not_integer: count", ""},
		{"POST", "queues/%2F/q/get", `{"count":1,"ackmode":"ack_requeue_true","encoding":"rot13"}`, 400, "Unsupported encoding", ""},
		{"POST", "queues/%2F/q/get", `{"count":1,"ackmode":"ack_requeue_true","encoding":"auto","truncate":-1}`, 400, "truncate is negative", ""},
		{"POST", "queues/%2F/q/actions", `{"action":"sync"}`, 401, "Not administrator user", ""},
	} {
		b.last = ""
		w := do(tc.method, "/api/"+tc.path, tc.body)
		if w.Code != tc.status || !strings.Contains(w.Body.String(), tc.want) || !strings.Contains(b.last, tc.asked) {
			t.Errorf("%s %s %s: %d %s, asked %q\nwant %d %s, %q", tc.method, tc.path, tc.body, w.Code, w.Body, b.last, tc.status, tc.want, tc.asked)
		}
	}
}

// TestBindingsByPropertiesKey makes bindings with any key and arguments, and finds and deletes them by what the answers tell.
func TestBindingsByPropertiesKey(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		b, do := topologyOf(t)
		keys := rapid.SliceOfNDistinct(rapid.OneOf(rapid.SampledFrom([]string{"", "~", "a/b", "a%2Fb", "%", "a~b", "+ +", "é.*.#", ".", ".."}), rapid.StringN(0, 8, 60)), 1, 4,
			rapid.ID[string]).Draw(rt, "keys")
		for _, kind := range []string{"q/q", "e/x"} {
			b.bound = nil
			base := "/api/bindings/%2F/e/x/" + kind
			for _, key := range keys {
				for _, args := range []string{"{}", `{"x-match":"any","n":1}`, `{"n":2}`} {
					w := do("POST", base, `{"routing_key":`+quoted(key)+`,"arguments":`+args+`}`)
					if w.Code != 201 {
						rt.Fatalf("bind %q: %d %s", key, w.Code, w.Body)
					}
					at, err := url.Parse("http://h" + base)
					if err == nil {
						at, err = at.Parse(w.Header().Get("Location"))
					}
					if err != nil {
						rt.Fatal(err)
					}
					made := b.bound[len(b.bound)-1]
					w = do("GET", at.RequestURI(), "")
					if w.Code != 200 || !strings.Contains(w.Body.String(), `"properties_key":`+quoted(propsKey(&made))) || !strings.Contains(w.Body.String(), `"routing_key":`+quoted(key)) {
						rt.Fatalf("%q at %s: %d %s", key, at, w.Code, w.Body)
					}
					if w = do("DELETE", at.RequestURI(), ""); w.Code != 204 || b.last != fmt.Sprintf("unbinds %q", key) {
						rt.Fatalf("delete %q: %d %s, %s", key, w.Code, w.Body, b.last)
					}
				}
			}
			seen := map[string]bool{}
			for i := range b.bound {
				if key := propsKey(&b.bound[i]); seen[key] {
					rt.Fatalf("two bindings with the key %q", key)
				} else {
					seen[key] = true
				}
			}
		}
	})
}

func TestBindings(t *testing.T) {
	b, do := topologyOf(t)
	b.bound = []broker.BindingInfo{
		{VHost: "/", Binding: broker.Binding{Destination: "q", Key: "q"}},
		{VHost: "/", Binding: broker.Binding{Source: "x", Destination: "q", Key: "a/b"}},
		{VHost: "/", Binding: broker.Binding{Source: "x", Destination: "x", ToExchange: true, Arguments: amqp.Table{{Name: "a", Value: int32(1)}}}},
		{VHost: "v", Binding: broker.Binding{Source: "y", Destination: "hidden"}},
	}
	for path, want := range map[string]string{
		"bindings": `[{"source":"","vhost":"/","destination":"q","destination_type":"queue","routing_key":"q","arguments":{},"properties_key":"q"},` +
			`{"source":"x","vhost":"/","destination":"q","destination_type":"queue","routing_key":"a/b","arguments":{},"properties_key":"a%2Fb"},` +
			`{"source":"x","vhost":"/","destination":"x","destination_type":"exchange","routing_key":"","arguments":{"a":1},"properties_key":"~AVq9f1zFei3ZS3WQ8ErYCA"}]`,
		"queues/%2F/q/bindings":                          `"properties_key":"a%2Fb"}]`,
		"queues/%2F/none/bindings":                       "[]", // tools take an error for more than the end of what they have made
		"exchanges/%2F/none/bindings/source":             "[]",
		"exchanges/%2F/none/bindings/destination":        "[]",
		"exchanges/%2F/amq.default/bindings/source":      `[{"source":"","vhost":"/","destination":"q"`,
		"exchanges/%2F/x/bindings/destination":           `[{"source":"x","vhost":"/","destination":"x","destination_type":"exchange"`,
		"bindings/%2F/e/x/q/q":                           `[{"source":"x","vhost":"/","destination":"q"`,
		"bindings/%2F/e/amq.default/q/q/q":               `{"source":"","vhost":"/"`,
		"bindings/%2F/e/x/q/q/a%252Fb":                   `"routing_key":"a/b"`,
		"bindings/%2F/e/x/q/q/a%2Fb":                     `"routing_key":"a/b"`, // escaped once too little
		"bindings/%2F/e/x/q/q/none":                      "Not Found",
		"bindings/%2F/e/x/e/x/~AVq9f1zFei3ZS3WQ8ErYCA":   `"arguments":{"a":1}`,
		"bindings/%2F/e/x/e/x/~":                         "Not Found",
		"bindings/%2F/e/none/q/q":                        "[]",
		"bindings/%2F/e/x/q/none":                        "[]",
		"bindings/%2F/e/x/e/none":                        "[]",
		"bindings/%2F/e/none/q/q/k":                      "Not Found",
		"bindings/v":                                     "User not authorised",
		"exchanges/%2F/x/bindings/source?vhost=whatever": `[{"source":"x"`,
		"bindings?default=false":                         `[{"source":"x","vhost":"/","destination":"q"`,
		"bindings/%2F?default=false":                     `[{"source":"x","vhost":"/","destination":"q"`,
		"bindings/%2F?default=true":                      `[{"source":"","vhost":"/"`,
		"bindings/%2F?default=no":                        "default has to be true or false",
	} {
		if got := do("GET", "/api/"+path, "").Body.String(); !strings.Contains(got, want) {
			t.Errorf("%s: %s\nwant %s", path, got, want)
		}
	}
	if strings.Contains(do("GET", "/api/bindings", "").Body.String(), "hidden") {
		t.Error("bindings of a vhost that the user may not see")
	}
	for body, want := range map[string]string{
		`{"routing_key":7}`: "routing_key should be a string",
		`{"routing_key":"` + strings.Repeat("k", 256) + `"}`:      "longer than 255",
		`{"arguments":{"a":` + strings.Repeat("[", 99) + `7`:      "not_json",
		`{"arguments":{"` + strings.Repeat("a", 256) + `":true}}`: "longer than 255",
	} {
		if w := do("POST", "/api/bindings/%2F/e/x/q/q", body); w.Code != 400 || !strings.Contains(w.Body.String(), want) {
			t.Errorf("%s: %d %s", body, w.Code, w.Body)
		}
	}
}

func quoted(s string) string {
	var w strings.Builder
	enc := json.NewEncoder(&w)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(s); err != nil {
		panic(err)
	}
	return strings.TrimSpace(w.String())
}
