package process

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

// api sends a request to a node's management API as guest.
func api(t *testing.T, method, address string, header ...string) (status int, body []byte) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, address, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	req.SetBasicAuth("guest", "guest")
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	client := http.Client{Timeout: timeoutReply, Transport: &http.Transport{DisableKeepAlives: true}}
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

// TestConnectionsAPI lists a connection through one node that a client has to
// another, and ends it through a third.
func TestConnectionsAPI(t *testing.T) {
	t.Parallel()
	needWarren(t)
	c := sharedCluster(t, 3)
	props := amqp.NewConnectionProperties()
	props.SetClientConnectionName("seen by tools")
	conn, err := connectWith(c.Node(0).URL(), amqp.Config{Properties: props, Heartbeat: 20 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	closed := conn.NotifyClose(make(chan *amqp.Error, 1))
	if _, err := conn.Channel(); err != nil {
		t.Fatal(err)
	}

	var found map[string]any
	eventually(t, func() error { // a node that does not answer in time is left out
		status, body := api(t, "GET", c.Node(1).HTTP()+"/api/connections")
		var list []map[string]any
		if err := json.Unmarshal(body, &list); status != http.StatusOK || err != nil {
			return fmt.Errorf("%d %s: %w", status, body, err)
		}
		for _, each := range list {
			if each["user_provided_name"] == "seen by tools" {
				found = each
				return nil
			}
		}
		return fmt.Errorf("not in %s", body)
	})
	for field, want := range map[string]any{
		"user": "guest", "vhost": "/", "protocol": "AMQP 0-9-1", "state": "running", "node": c.Node(0).Name, "type": "network",
		"channels": 1.0, "timeout": 20.0, "auth_mechanism": "PLAIN", "ssl": false, "peer_host": "127.0.0.1", "host": "127.0.0.1",
	} {
		if found[field] != want {
			t.Errorf("%s is %v, want %v", field, found[field], want)
		}
	}
	if t.Failed() {
		t.FailNow()
	}

	path := "/api/connections/" + url.PathEscape(found["name"].(string))
	if status, body := api(t, "DELETE", c.Node(2).HTTP()+path, "X-Reason", "not wanted any more"); status != http.StatusNoContent {
		t.Fatalf("%d %s", status, body)
	}
	select {
	case e := <-closed: // N06
		if e == nil || e.Code != 320 || e.Reason != "CONNECTION_FORCED - not wanted any more" {
			t.Errorf("closed with %v", e)
		}
	case <-time.After(timeoutReply):
		t.Error("the connection is still there")
	}
	// The node hears of its end a moment after the client.
	deadline := time.Now().Add(timeoutReply)
	for status, body := api(t, "DELETE", c.Node(2).HTTP()+path); status != http.StatusNotFound; status, body = api(t, "DELETE", c.Node(2).HTTP()+path) {
		if time.Now().After(deadline) {
			t.Fatalf("%d %s for a connection that is gone", status, body)
		}
		time.Sleep(50 * time.Millisecond)
	}
	resp, err := http.Get(c.Node(0).HTTP() + "/api/connections")
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusUnauthorized || resp.Header.Get("WWW-Authenticate") == "" {
		t.Errorf("without a password: %s", resp.Status)
	}
}
