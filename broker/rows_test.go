package broker

import (
	"testing"

	"github.com/warrenmq/warren/amqp"
	"github.com/warrenmq/warren/fsm"
)

// What lists and metrics tell of a queue in which nothing happens is what its leader tells clients: a retry delay that has
// passed is over there, too.
func TestFiguresOfWhatIsReadyAgain(t *testing.T) {
	b := newBroker(t)
	c := dial(t, b)
	var args amqp.Table
	args.Set("x-delayed-retry-type", "all")
	args.Set("x-delayed-retry-min", int32(300))
	args.Set("x-delayed-retry-max", int32(300))
	c.declare("q", args)
	c.put("q", "x", nil)
	c.settle(fsm.RequeueCounted, c.get("q"))
	var r QueueRow
	var f QueueFigures
	figures := func(ready int) bool {
		for x := range b.Rows {
			r = *x
		}
		f = b.Figures()[0]
		return int(r.Ready) == ready && int(r.Delayed) == 1-ready && f.Ready == ready && f.Delayed == 1-ready
	}
	c.await("the delay", func() bool { return figures(0) })
	c.await("its end", func() bool { return figures(1) })
	if r.Bytes != 1 || r.UnackedBytes != 0 || f.Bytes != 1 {
		t.Fatalf("row %+v, figures %+v", r, f)
	}
}
