package process

import (
	"bufio"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"
)

// TestHeavyRequests: what a request of the management port may cost is bounded, before a login and after it.
func TestHeavyRequests(t *testing.T) {
	needWarren(t)
	c := sharedCluster(t, 3)
	base := c.Node(0).HTTP()
	// A head that does not end is refused at once, and not read to 1 MiB.
	nc, err := (&net.Dialer{Timeout: timeoutReply}).DialContext(t.Context(), "tcp", strings.TrimPrefix(base, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	_ = nc.SetDeadline(time.Now().Add(timeoutReply))
	fmt.Fprintf(nc, "GET /healthz HTTP/1.1\r\nHost: x\r\nX: %s", strings.Repeat("a", 20<<10))
	resp, err := http.ReadResponse(bufio.NewReader(nc), nil)
	if err != nil {
		t.Fatalf("a large head that goes on has no answer: %v", err)
	}
	if resp.Body.Close(); resp.StatusCode != http.StatusRequestHeaderFieldsTooLarge {
		t.Errorf("a large head: %s", resp.Status)
	}
	// What fits is served.
	if status, _ := api(t, "GET", base+"/api/queues?columns=name", "X", strings.Repeat("a", 12<<10)); status != http.StatusOK {
		t.Errorf("a head of 12 KiB: %d", status)
	}
	// A filter of a kilobyte is no program of megabytes, which each name is run through.
	filter := url.QueryEscape(strings.Repeat("(a*a?){999}", 90))
	if status, body := api(t, "GET", base+"/api/queues?use_regex=true&name="+filter); status != http.StatusBadRequest {
		t.Errorf("a costly filter: %d %.100s", status, body)
	}
}
