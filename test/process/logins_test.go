package process

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

// TestLoginAttempts guesses a user's password over AMQP and HTTP until the node does not look any more, and logs in with the right one
// from another address at the same time.
func TestLoginAttempts(t *testing.T) {
	t.Parallel()
	needWarren(t)
	c := sharedCluster(t, 3)
	n := c.Node(0)
	user := at(t, n).name("guessed")
	mustCtl(t, n, "add_user", user, "right")
	mustCtl(t, n, "set_user_tags", user, "management")
	mustCtl(t, n, "set_permissions", user, ".*", ".*", ".*")
	t.Cleanup(func() { mustCtl(t, n, "delete_user", user) })
	dialer := func(address string) *net.Dialer {
		return &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(address)}, Timeout: timeoutReply}
	}
	overAMQP := func(from, password string) error {
		target := strings.Replace(n.URL(), "guest:guest@", user+":"+password+"@", 1)
		conn, err := connectWith(target, amqp.Config{Dial: func(network, addr string) (net.Conn, error) {
			conn, err := dialer(from).Dial(network, addr)
			if err == nil {
				err = conn.SetDeadline(time.Now().Add(timeoutReply))
			}
			return conn, err
		}})
		if err == nil {
			err = conn.Close()
		}
		return err
	}
	overHTTP := func(from, password string) (status int, retry string) {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, n.HTTP()+"/api/whoami", http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		req.SetBasicAuth(user, password)
		client := http.Client{Timeout: timeoutReply, Transport: &http.Transport{DialContext: dialer(from).DialContext, DisableKeepAlives: true}}
		resp, err := client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		return resp.StatusCode, resp.Header.Get("Retry-After")
	}
	for end := time.Now().Add(timeoutStart); ; {
		for i := range 2 {
			if err := overAMQP("127.0.0.1", "wrong"); err == nil || !strings.Contains(err.Error(), "403") {
				t.Fatalf("guess %d: %v", i, err)
			}
		}
		for i := range 7 {
			if status, _ := overHTTP("127.0.0.1", "wrong"); status != http.StatusUnauthorized {
				t.Fatalf("guess %d: %d", i, status)
			}
		}
		last := time.Now()
		if status, _ := overHTTP("127.0.0.1", "wrong"); status != http.StatusUnauthorized {
			t.Fatalf("the last guess: %d", status)
		}
		status, retry := overHTTP("127.0.0.1", "right")
		if status == http.StatusTooManyRequests && retry == "1" {
			break
		}
		// The node looks again after a second; then the right one has made all forgotten.
		if status != http.StatusOK || time.Since(last) < time.Second || time.Now().After(end) {
			t.Fatalf("after ten guesses: %d, Retry-After %q, %v after the last", status, retry, time.Since(last))
		}
	}
	if err := overAMQP("127.0.0.2", "right"); err != nil {
		t.Errorf("from another address: %v", err)
	}
	if status, _ := overHTTP("127.0.0.2", "right"); status != http.StatusOK {
		t.Errorf("from another address: %d", status)
	}
	// Any node tells of this one.
	status, raw := api(t, http.MethodGet, c.Node(1).HTTP()+"/api/auth/attempts/"+n.Name+"/source")
	var sources []struct {
		Address  string `json:"remote_address"`
		User     string `json:"username"`
		Failures int    `json:"auth_attempts_failed"`
	}
	if err := json.Unmarshal(raw, &sources); err != nil || status != 200 || !strings.Contains(fmt.Sprint(sources), fmt.Sprintf("{127.0.0.1 %s 10}", user)) {
		t.Errorf("%d %s %v", status, raw, err)
	}
	deadline := time.Now().Add(timeoutReply)
	for status, _ := overHTTP("127.0.0.1", "right"); status != http.StatusOK; status, _ = overHTTP("127.0.0.1", "right") {
		if time.Now().After(deadline) {
			t.Fatalf("still %d", status)
		}
		time.Sleep(100 * time.Millisecond)
	}
	if err := overAMQP("127.0.0.1", "right"); err != nil {
		t.Errorf("a success forgets nothing: %v", err)
	}
	if status, raw = api(t, http.MethodGet, n.HTTP()+"/metrics"); status != 200 || !strings.Contains(string(raw), `warren_logins_held_up_total{protocol="http"}`) {
		t.Errorf("no figure of logins: %d", status)
	}
}
