package netns

import (
	"errors"
	"net/http"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"
)

// TestGuestFromElsewhere: guest may log in from other machines only if the settings say so.
func TestGuestFromElsewhere(t *testing.T) {
	t.Parallel()
	r := founded(t, options{nodes: 1})
	n := r.Node(0)
	logsIn := func() (byHTTP int, byAMQP error) {
		conn, err := amqp.Dial(n.URL())
		if err == nil {
			r.must("close", conn.Close())
		}
		req, e := http.NewRequestWithContext(t.Context(), http.MethodGet, n.HTTP()+"/api/whoami", http.NoBody)
		r.must("request", e)
		req.SetBasicAuth("guest", "guest")
		resp, e := http.DefaultClient.Do(req)
		r.must("whoami", e)
		r.must("close", resp.Body.Close())
		return resp.StatusCode, err
	}
	byHTTP, byAMQP := logsIn()
	if e, ok := errors.AsType[*amqp.Error](byAMQP); !ok || e.Code != amqp.AccessRefused || byHTTP != http.StatusUnauthorized {
		t.Errorf("by default: %v, %d", byAMQP, byHTTP)
	}
	r.must("stop", n.Stop(t.Context()))
	n.SetEnv("WARREN_LOOPBACK_USERS=none")
	r.readyAll()
	if byHTTP, byAMQP = logsIn(); byAMQP != nil || byHTTP != http.StatusOK {
		t.Errorf("as it is set: %v, %d", byAMQP, byHTTP)
	}
}
