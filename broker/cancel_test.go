package broker

import (
	"bytes"
	"testing"

	"github.com/warrenmq/warren/amqp"
)

// TestCancelDelayed: a delayed message is taken back by its handle or goes on, and each asker is told which.
func TestCancelDelayed(t *testing.T) {
	b := newBroker(t)
	c := dial(t, b)
	guest := User{Name: "guest", Tags: []string{"administrator"}}
	for name, typ := range map[string]string{"dly": "x-delayed-message", "fan": "fanout"} {
		d := ExchangeDeclare{Name: name, Type: typ, Durable: true}
		if typ == "x-delayed-message" {
			d.Arguments = table("x-delayed-type", "fanout")
		}
		if err := c.conn.DeclareExchange(t.Context(), d); err != nil {
			t.Fatal(err)
		}
	}
	c.declare("q", nil)
	for _, x := range []Binding{{Source: "dly", Destination: "q"}, {Source: "fan", Destination: "dly", ToExchange: true}} {
		if err := c.conn.Bind(t.Context(), x); err != nil {
			t.Fatal(err)
		}
	}
	delayed := func(millis int64) amqp.RawProperties {
		return properties(func(p *amqp.Properties) { p.SetHeaders(amqp.Table{{Name: "x-delay", Value: millis}}) })
	}
	publish := func(exchange, body string, millis int64) ([]byte, error) {
		handle, refused, err := b.PublishCancellable(t.Context(), guest, "/", Publish{Exchange: exchange, Body: []byte(body), Properties: delayed(millis)})
		if refused {
			t.Errorf("%s was refused", body)
		}
		return handle, err
	}
	cancel := func(handle []byte, want bool) {
		t.Helper()
		if got, err := b.CancelDelayed(t.Context(), guest, "/", handle); err != nil || got != want {
			t.Errorf("cancelled %v, %v, want %v", got, err, want)
		}
	}
	back, err := publish("fan", "back", 600_000) // by another exchange
	if err != nil {
		t.Fatal(err)
	}
	gone, err := publish("dly", "gone", 1)
	if err != nil {
		t.Fatal(err)
	}
	if got := c.eventually("q"); string(got.Body) != "gone" {
		t.Errorf("got %s", got.Body)
	}
	cancel(gone, false)
	cancel(back, true)
	cancel(back, true)

	// What does not wait, or not only there, has no handle and goes nowhere.
	for body, try := range map[string]struct {
		exchange string
		millis   int64
	}{"at once": {"dly", 0}, "to a queue": {"", 600_000}} {
		if _, err := publish(try.exchange, body, try.millis); kindOfRefusal(err) != PreconditionFailed {
			t.Errorf("%s: %v", body, err)
		}
	}
	if err := c.conn.Bind(t.Context(), Binding{Source: "fan", Destination: "q"}); err != nil {
		t.Fatal(err)
	}
	if _, err := publish("fan", "both", 600_000); kindOfRefusal(err) != PreconditionFailed {
		t.Errorf("both: %v", err)
	}
	if _, err := publish("none", "", 1); kindOfRefusal(err) != NotFound {
		t.Errorf("no exchange: %v", err)
	}
	for _, bad := range [][]byte{nil, back[1:], bytes.Repeat([]byte{1}, handleBytes), handleOf("another", 1, 1)} {
		if _, err := b.CancelDelayed(t.Context(), guest, "/", bad); kindOfRefusal(err) != PreconditionFailed {
			t.Errorf("handle %x: %v", bad, err)
		}
	}
	q := b.cat.View().Queue("/", "q")
	for _, id := range []uint64{q.ID, 1 << 60} { // a queue of clients, and none
		if _, err := b.CancelDelayed(t.Context(), guest, "/", handleOf("c", id, 1)); kindOfRefusal(err) != NotFound {
			t.Errorf("queue %d: %v", id, err)
		}
	}
	if _, err := b.CancelDelayed(t.Context(), User{Name: "nobody"}, "/", back); kindOfRefusal(err) != AccessRefused && kindOfRefusal(err) != NotAllowed {
		t.Errorf("without permissions: %v", err)
	}
	last, err := publish("dly", "last", 600_000)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.conn.DeleteExchange(t.Context(), "dly", false); err != nil {
		t.Fatal(err)
	}
	if _, err := b.CancelDelayed(t.Context(), guest, "/", last); kindOfRefusal(err) != NotFound {
		t.Errorf("without the exchange: %v", err)
	}
	if d := c.get("q"); d != nil {
		t.Errorf("got %s", d.Body)
	}
}

// FuzzHandle: what reads as a handle is one that was made.
func FuzzHandle(f *testing.F) {
	f.Add(handleOf("c", 1, 2))
	f.Add(handleOf("d", 1<<63, 1<<63))
	f.Add([]byte{handleVersion})
	f.Fuzz(func(t *testing.T, data []byte) {
		q, id, ok := readHandle("c", data)
		if ok && !bytes.Equal(handleOf("c", q, id), data) {
			t.Fatalf("%x reads as message %d of queue %d", data, id, q)
		}
	})
}
