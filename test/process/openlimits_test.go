package process

import (
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/warrenmq/warren/test/cluster"
)

// limitAPI changes a limit through a node's management API; an empty body deletes.
func limitAPI(t *testing.T, n *cluster.Node, path, body string, want int) {
	t.Helper()
	method := http.MethodPut
	if body == "" {
		method = http.MethodDelete
	}
	req, err := http.NewRequestWithContext(t.Context(), method, n.HTTP()+"/api/"+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.SetBasicAuth("guest", "guest")
	resp, err := (&http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}).Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if raw, _ := io.ReadAll(resp.Body); resp.StatusCode != want {
		t.Fatalf("%s %s: %s %s", method, path, resp.Status, raw)
	}
}

// mustDial opens a connection to a node with one channel.
func mustDial(t *testing.T, n *cluster.Node) (*amqp.Connection, *amqp.Channel) {
	t.Helper()
	conn, err := connectWith(n.URL(), amqp.Config{Heartbeat: 10 * time.Second})
	if err != nil {
		t.Fatalf("connect to %s: %v", n.Name, err)
	}
	t.Cleanup(func() { conn.Close() })
	ch, err := conn.Channel()
	if err != nil {
		t.Fatalf("channel on %s: %v", n.Name, err)
	}
	return conn, ch
}

// refusedOpen wants connection.open refused with a text.
func refusedOpen(t *testing.T, n *cluster.Node, text string) {
	t.Helper()
	w := dialWire(t, target{name: n.Name, url: n.URL(), warren: true})
	w.greet("PLAIN", "\x00guest\x00guest", nil)
	w.tune(100, 131072)
	w.send(method(0, 10, 40, "/", "", byte(0)))
	w.expectClose(530, "NOT_ALLOWED - "+text, 10, 40)
}

// TestClusterLimits counts connections and channels of a vhost and of a user over three
// nodes: what ends makes room, and so does what a dead node had; a changed limit holds for
// what comes next.
func TestClusterLimits(t *testing.T) {
	t.Parallel()
	needWarren(t)
	c, outer := startCluster(t, 3), t
	const (
		vhostFull = "access to vhost '/' refused for user 'guest': connection limit (3) is reached"
		userFull  = "connection refused for user 'guest': user connection limit (2) is reached"
	)
	for _, bad := range []string{`{"value":"3"}`, `{"value":`, `{}`} {
		limitAPI(t, c.Node(0), "vhost-limits/%2F/max-connections", bad, http.StatusBadRequest)
		limitAPI(t, c.Node(0), "user-limits/guest/max-channels", bad, http.StatusBadRequest)
	}
	limitAPI(t, c.Node(0), "vhost-limits/%2F/max-connections", `{"value":3}`, http.StatusNoContent)
	conns := make([]*amqp.Connection, 3)
	for i := range conns {
		conns[i], _ = mustDial(t, c.Node(i))
	}
	for _, n := range c.Nodes() {
		refusedOpen(t, n, vhostFull)
	}
	if _, err := connect(c.Node(1).URL()); err == nil {
		t.Error("the client was let in")
	}
	if err := conns[0].Close(); err != nil {
		t.Fatal(err)
	}
	_, ch1 := mustDial(t, c.Node(1))
	refusedOpen(t, c.Node(0), vhostFull)

	t.Run("changed", func(t *testing.T) {
		mustCtl(t, c.Node(2), "clear_vhost_limits")
		mustCtl(t, c.Node(2), "set_user_limits", "guest", `{"max-connections":2}`)
		refusedOpen(t, c.Node(0), userFull)
		for i, n := range c.Nodes() {
			if out := mustCtl(t, n, "list_user_limits", "-q"); out != "{\"max-connections\":2}\n" {
				t.Errorf("node %d lists %q", i, out)
			}
		}
		for _, bad := range []string{`{"max-connections":"2"}`, `{"max-queues":2}`} { // a vhost has max-queues
			if code, _, failure := ctl(t, c.Node(0), "set_user_limits", "guest", bad); code != 70 || failure == "" {
				t.Errorf("%s: exit code %d %q", bad, code, failure)
			}
		}
		if code, _, _ := ctl(t, c.Node(0), "set_user_limits", "nobody", "{}"); code != 67 {
			t.Errorf("no such user: exit code %d", code)
		}
		mustCtl(t, c.Node(0), "clear_user_limits", "guest", "max-connections")
		conn, _ := mustDial(t, c.Node(0))
		if err := conn.Close(); err != nil {
			t.Fatal(err)
		}
		limitAPI(t, c.Node(1), "vhost-limits/%2F/max-connections", `{"value":3}`, http.StatusNoContent)
		refusedOpen(t, c.Node(0), vhostFull)
	})
	t.Run("channels", func(t *testing.T) {
		// Three connections with a channel each are there.
		limitAPI(t, c.Node(0), "user-limits/guest/max-channels", `{"value":4}`, http.StatusNoContent)
		extra, err := conns[2].Channel()
		if err != nil {
			t.Fatal(err)
		}
		closed := conns[1].NotifyClose(make(chan *amqp.Error, 1))
		if _, err := conns[1].Channel(); err == nil {
			t.Error("a fifth channel")
		}
		select {
		case e := <-closed:
			if e == nil || e.Code != 530 || e.Reason != "NOT_ALLOWED - number of channels opened for user 'guest' has reached the maximum allowed user limit of 4" {
				t.Errorf("closed with %v", e)
			}
		case <-time.After(timeoutReply):
			t.Error("the connection was not closed")
		}
		if err := extra.Close(); err != nil {
			t.Fatal(err)
		}
		if err := ch1.Confirm(false); err != nil {
			t.Errorf("another connection suffered: %v", err)
		}
		conns[1], _ = mustDial(outer, c.Node(0)) // connection and channel count no more
		limitAPI(t, c.Node(1), "user-limits/guest/all", "", http.StatusNoContent)
		for range 8 {
			if _, err := conns[1].Channel(); err != nil {
				t.Fatal(err)
			}
		}
	})
	t.Run("node dies", func(t *testing.T) {
		refusedOpen(t, c.Node(0), vhostFull)
		if err := c.Node(2).Kill(); err != nil { // it has one connection
			t.Fatal(err)
		}
		mustDial(t, c.Node(0))
		refusedOpen(t, c.Node(1), vhostFull)
	})
}
