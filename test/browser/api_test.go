package browser

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"testing"
	"time"
)

// api asks the first node's API as guest, and reads the answer into to unless that is nil.
func (r *rig) api(t *testing.T, method, path string, body, to any) {
	t.Helper()
	raw, err := json.Marshal(body)
	if err != nil {
		t.Fatal(err)
	}
	req, err := http.NewRequestWithContext(t.Context(), method, r.cluster.Node(0).HTTP()+"/api/"+path, bytes.NewReader(raw))
	if err != nil {
		t.Fatal(err)
	}
	req.SetBasicAuth("guest", "guest")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode >= 300 {
		t.Fatalf("%s %s: %d %s %v", method, path, resp.StatusCode, answer, err)
	}
	if to != nil {
		if err := json.Unmarshal(answer, to); err != nil {
			t.Fatalf("%s %s: %s: %v", method, path, answer, err)
		}
	}
}

// fields is a JSON object.
type fields map[string]any

// declare declares a quorum queue.
func (r *rig) declare(t *testing.T, name string, arguments fields) {
	t.Helper()
	if arguments == nil {
		arguments = fields{}
	}
	arguments["x-queue-type"] = "quorum"
	r.api(t, "PUT", "queues/%2F/"+name, fields{"durable": true, "arguments": arguments}, nil)
	t.Cleanup(func() { r.drop("queues/%2F/" + name) })
}

// drop deletes something if it is there.
func (r *rig) drop(path string) {
	req, err := http.NewRequest(http.MethodDelete, r.cluster.Node(0).HTTP()+"/api/"+path, http.NoBody)
	if err != nil {
		return
	}
	req.SetBasicAuth("guest", "guest")
	if resp, err := http.DefaultClient.Do(req); err == nil {
		_ = resp.Body.Close()
	}
}

// publish puts a text into a queue.
func (r *rig) publish(t *testing.T, queue, text string, properties fields) {
	t.Helper()
	if properties == nil {
		properties = fields{}
	}
	var got struct{ Routed bool }
	r.api(t, "POST", "exchanges/%2F/amq.default/publish", fields{"properties": properties, "routing_key": queue, "payload": text, "payload_encoding": "string"}, &got)
	if !got.Routed {
		t.Fatalf("%s does not get %q", queue, text)
	}
}

// reject takes so many messages from a queue and rejects them.
func (r *rig) reject(t *testing.T, queue string, n int) {
	t.Helper()
	for until := time.Now().Add(patience); n > 0; time.Sleep(50 * time.Millisecond) { // what is moved may be on its way
		var got []any
		r.api(t, "POST", "queues/%2F/"+queue+"/get", fields{"count": n, "ackmode": "reject_requeue_false", "encoding": "auto"}, &got)
		if n -= len(got); n > 0 && time.Now().After(until) {
			t.Fatalf("%s lacks %d messages", queue, n)
		}
	}
}
