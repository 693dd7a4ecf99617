package broker

import (
	"sync/atomic"
	"testing"

	"github.com/warrenmq/warren/fsm"
)

// What clients do shows in the counters.
func TestTraffic(t *testing.T) {
	b := newBroker(t)
	c := dial(t, b)
	c.declareFanout("twice")
	c.declare("q", nil)
	c.declare("quorum", table("x-queue-type", "quorum"))
	for _, q := range []string{"q", "quorum"} {
		if err := c.conn.Bind(t.Context(), Binding{Source: "twice", Destination: q}); err != nil {
			t.Fatal(err)
		}
	}
	if d, _, err := c.ch.Get(t.Context(), "q", false); d != nil || err != nil {
		t.Fatal(d, err)
	}
	c.put("q", "1", nil)
	tag, _, err := c.publish("twice", "", "2", nil)
	if err != nil {
		t.Fatal(err)
	}
	c.await("confirm", func() bool { _, ok := c.confirmed[tag]; return ok })
	for _, mandatory := range []bool{false, true} {
		p := Publish{Exchange: "", Key: "nowhere", Mandatory: mandatory, Properties: []byte{0, 0}, Tag: 77}
		if routed, err := c.ch.Publish(t.Context(), &p); routed || err != nil {
			t.Fatal(routed, err)
		}
	}
	p := Publish{Exchange: "", Key: "q", Properties: []byte{0, 0}} // without a confirm
	if _, err := c.ch.Publish(t.Context(), &p); err != nil {
		t.Fatal(err)
	}
	c.ch.Flush()
	c.consume("q", 0)
	ds := c.take(3)
	c.settle(fsm.Ack, ds[0], ds[1])
	c.settle(fsm.RequeueFailed, ds[2])
	c.settle(fsm.Discard, c.take(1)...)
	d, _, err := c.ch.Get(t.Context(), "quorum", true)
	if d == nil || err != nil {
		t.Fatal(d, err)
	}
	want := Traffic{Received: 5, ReceivedConfirm: 4, Routed: 4, Confirmed: 4, UnroutableReturned: 1, UnroutableDropped: 1}
	want.ByType[ClassicQueue] = TypeTraffic{DeliveredManual: 4, GetEmpty: 1, Redelivered: 1, Acked: 2}
	want.ByType[QuorumQueue] = TypeTraffic{GotAuto: 1}
	if got := b.Traffic(); got != want {
		t.Errorf("\n got %+v\nwant %+v", got, want)
	}
	if got, want := b.QueueChurn(), (QueueChurn{Declared: 2, Created: 2}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	if got := b.Clients(); got.Consumers != 1 {
		t.Errorf("%+v", got)
	}
	c.await("figures", func() bool {
		for _, f := range b.Figures() {
			if f.Name == "q" && (f.Ready != 0 || f.Unacked != 0 || f.Consumers != 1 || f.Counters.Published != 3) {
				return false
			}
		}
		return true
	})
}

// BenchmarkCounting is what counting adds to a burst of 64 published messages and their
// confirms.
func BenchmarkCounting(b *testing.B) {
	var c traffic
	var confirmed atomic.Uint64
	p := Publish{Tag: 1}
	b.RunParallel(func(pb *testing.PB) {
		var t tally
		var ch counts
		t.to(new(exchangeCounts))
		for pb.Next() {
			for range 64 {
				t.published(&p, true, 1)
			}
			t.flush(&c, &ch)
			confirmed.Add(64)
		}
	})
}
