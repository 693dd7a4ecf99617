package process

import (
	"errors"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/warrenmq/warren/test/cluster"
)

// TestAFaultEndsOneConnection: a client that meets a fault of the program, and comes back each time, ends no node and no other connection.
func TestAFaultEndsOneConnection(t *testing.T) {
	binary, err := shared.stoppable()
	if err != nil {
		t.Fatal(err)
	}
	c := newCluster(t, 1, func(cfg *cluster.Config) { cfg.Binary, cfg.Contained = binary, true })
	n := c.Node(0)
	n.SetEnv("WARREN_SEEDED_FAULT=panic-at-flow")
	start(t, n)
	other := at(t, n)
	q := plainQueue(other, "q", nil)
	const times = 20
	for range times {
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
	other.publish("", q, message("still here")) // and confirmed
	if got := scrape(t, "/metrics", n)[`warren_panics_contained_total{protocol="amqp"}`]; got != times {
		t.Errorf("%v faults contained", got)
	}
	other.holds(q, "still here")
}
