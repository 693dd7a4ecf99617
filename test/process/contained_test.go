package process

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"strings"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"
	"google.golang.org/grpc/codes"

	warrenv1 "github.com/warrenmq/warren/api/warren/v1"
	"github.com/warrenmq/warren/test/cluster"
)

// faultyTimes is how often a client meets a fault of the program.
const faultyTimes = 20

// TestAFaultEndsOneConnection: a client that meets a fault of the program, and comes back each time, ends no node and no work of another client.
func TestAFaultEndsOneConnection(t *testing.T) {
	t.Parallel()
	needWarren(t)
	binary, err := shared.stoppable()
	if err != nil {
		t.Fatal(err)
	}
	c := newCluster(t, 1, func(cfg *cluster.Config) { cfg.Binary, cfg.Contained = binary, true })
	n := c.Node(0)
	n.SetEnv("WARREN_SEEDED_FAULT=panic-for-client")
	start(t, n)
	other, rpc := at(t, n), rpcAt(t, n, "guest", "guest")
	q := plainQueue(other, "q", nil)
	watching := rpc.consumer(&warrenv1.ConsumeOpen{Queue: plainQueue(other, "watched", nil)}, 10)
	for _, by := range []struct {
		protocol string
		meet     func(t *testing.T, n *cluster.Node, queue string) (times float64)
	}{{"amqp", faultOverAMQP}, {"grpc", faultOverGRPC}, {"http", faultOverHTTP}} {
		t.Run(by.protocol, func(t *testing.T) {
			times := by.meet(t, n, q)
			other.publish("", "watched", message(by.protocol)) // and confirmed
			watching.next(by.protocol)
			if got := scrape(t, "/metrics", n)[`warren_panics_contained_total{protocol="`+by.protocol+`"}`]; got != times {
				t.Errorf("%v faults contained, want %v", got, times)
			}
		})
	}
	other.publish("", q, message("still here"))
	other.holds(q, "still here")
	// Nothing is kept for those that are gone.
	awaitMetrics(t, []*cluster.Node{n}, map[string]float64{"rabbitmq_connections": 1, "warren_grpc_connections": 1, "warren_grpc_streams": 1, "rabbitmq_consumers": 1})
}

func faultOverAMQP(t *testing.T, n *cluster.Node, q string) float64 {
	for range faultyTimes {
		conn, err := connect(n.URL())
		if err != nil {
			t.Fatal(err)
		}
		ch, err := conn.Channel()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := ch.Consume(q, "", false, false, false, false, nil); err != nil {
			t.Fatal(err)
		}
		err = ch.Flow(true)
		if e, ok := errors.AsType[*amqp.Error](err); !ok || e.Code != amqp.InternalError {
			t.Fatalf("flow: %v", err)
		}
	}
	return faultyTimes
}

// faultOverGRPC meets it in a call, and in a stream that has a message, which goes back.
func faultOverGRPC(t *testing.T, n *cluster.Node, q string) float64 {
	rpc := rpcAt(t, n, "guest", "guest")
	rpc.fill(q, "held")
	for range faultyTimes {
		_, err := rpc.topology.PurgeQueue(rpc.ctx, &warrenv1.PurgeQueueRequest{Queue: q})
		wantCode(t, err, codes.Internal, "INTERNAL")
		x := rpc.consumer(&warrenv1.ConsumeOpen{Queue: q}, 1)
		x.next("held")
		x.send(&warrenv1.ConsumeRequest{Cancel: true})
		wantCode(t, x.ends(), codes.Internal, "INTERNAL")
	}
	got, err := rpc.consume.Get(rpc.ctx, &warrenv1.GetRequest{Queue: q, Settle: warrenv1.SettleKind_SETTLE_KIND_ACK})
	if d := got.GetDeliveries(); err != nil || len(d) != 1 || string(d[0].GetMessage().GetBody()) != "held" {
		t.Errorf("%v, %v", got, err)
	}
	_ = rpc.conn.Close()
	return 2 * faultyTimes
}

// faultOverHTTP meets it in a request that reads and in one that changes something: the connection ends without an answer.
func faultOverHTTP(t *testing.T, n *cluster.Node, q string) float64 {
	client := http.Client{Timeout: timeoutReply, Transport: &http.Transport{DisableKeepAlives: true}}
	for range faultyTimes {
		for method, path := range map[string]string{http.MethodGet: "/api/whoami", http.MethodDelete: fmt.Sprintf("/api/queues/%%2F/%s/contents", url.PathEscape(q))} {
			req, err := http.NewRequestWithContext(t.Context(), method, n.HTTP()+path, http.NoBody)
			if err != nil {
				t.Fatal(err)
			}
			req.SetBasicAuth("guest", "guest")
			if resp, err := client.Do(req); err == nil {
				t.Errorf("%s %s: %s", method, path, resp.Status)
				_ = resp.Body.Close()
			}
		}
	}
	if status, body := api(t, http.MethodGet, n.HTTP()+"/api/queues/%2F/"+q); status != http.StatusOK {
		t.Errorf("a request without a fault: %d %s", status, body)
	}
	log, err := os.ReadFile(n.LogFile())
	if err != nil {
		t.Fatal(err)
	}
	audited := 0
	for line := range strings.Lines(string(log)) {
		if strings.Contains(line, "msg=administration ") && strings.Contains(line, "method=DELETE") && strings.Contains(line, "/contents result=failed") {
			audited++
		}
	}
	if audited != faultyTimes {
		t.Errorf("%d changes that met a fault are in the log, want %d", audited, faultyTimes)
	}
	return 2 * faultyTimes
}
