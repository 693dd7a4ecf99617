package broker

import (
	"fmt"
	"testing"
	"time"

	"github.com/warrenmq/warren/exchange"
	"github.com/warrenmq/warren/queue/leader"
)

// TestOneOfSeveralGetsALetter: dead letters go to a queue that has no room for long, and to one of two others, by a random exchange. While the catalog changes the
// routes are looked at again and again: no letter gets to both of the two, also if the exchange prefers queues that are led here, and these are others by then.
func TestOneOfSeveralGetsALetter(t *testing.T) {
	for _, kind := range []exchange.Type{exchange.Random, exchange.LocalRandom} {
		t.Run(kind.String(), func(t *testing.T) { oneOfSeveral(t, kind) })
	}
}

func oneOfSeveral(t *testing.T, kind exchange.Type) {
	const letters, review = 16, 20 * time.Millisecond
	b := newBrokerTuned(t, func(c Catalog) Catalog { return c }, &memGroups{logs: map[uint64]*leader.MemLog{}}, func(c *Config) { c.MoveReview = review })
	c := dial(t, b)
	c.declare("full", table("x-max-length", int64(1), "x-overflow", "reject-publish"))
	c.put("full", "stays", nil)
	c.declareFanout("fan", "full")
	for _, q := range []string{"a", "b"} {
		c.declare(q, nil)
	}
	if err := c.conn.DeclareExchange(t.Context(), ExchangeDeclare{Name: "one", Type: kind.String()}); err != nil {
		t.Fatal(err)
	}
	c.bind(Binding{Source: "fan", Destination: "one", ToExchange: true})
	for _, q := range []string{"a", "b"} {
		c.bind(Binding{Source: "one", Destination: q})
	}
	c.declare("src", table("x-queue-type", "quorum", "x-overflow", "reject-publish", "x-dead-letter-strategy", "at-least-once", "x-dead-letter-exchange", "fan"))
	for i := range letters {
		c.kill("src", fmt.Sprint(i))
	}
	arrived := func() int { return len(c.bodies(b, "a")) + len(c.bodies(b, "b")) }
	c.await("the letters", func() bool { return arrived() == letters })
	if len(c.bodies(b, "a")) == 0 || len(c.bodies(b, "b")) == 0 {
		t.Error("all have taken one way")
	}
	a := b.queues.get(b.cat.View().Queue("/", "a").ID)
	a.lead(99, secondNode, false) // so that another one is led here
	for i := range 10 {
		c.declare(fmt.Sprint("news", i), nil)
		time.Sleep(5 * review) // longer, and nothing is missed
	}
	a.lead(100, testNode, true) // which can be asked
	if n := arrived(); n != letters {
		t.Errorf("%d letters have arrived, %d have died", n, letters)
	}
}
