package broker

import (
	"testing"

	"github.com/warrenmq/warren/amqp"
)

// A message for an exchange that this node's copy of the catalog does not have yet goes where the up-to-date one says: its publisher is not told
// that there is no such exchange.
func TestPublishIsNotRefusedByAnOldCopy(t *testing.T) {
	late, c, other := lateRig(t)
	atNewestLevel(t, late.b)
	old := late.View()
	for _, x := range []ExchangeDeclare{
		{Name: "x", Type: "fanout", Durable: true},
		{Name: "later", Type: "x-delayed-message", Durable: true, Arguments: table("x-delayed-type", "direct")},
	} {
		if err := other.conn.DeclareExchange(t.Context(), x); err != nil {
			t.Fatal(err)
		}
	}
	other.declare("q", nil)
	if err := other.conn.Bind(t.Context(), Binding{Source: "x", Destination: "q"}); err != nil {
		t.Fatal(err)
	}
	late.hold(old)
	tag, routed, err := c.publish("x", "", "m", nil)
	if err != nil || !routed {
		t.Fatalf("routed %v, %v", routed, err)
	}
	c.await("confirm", func() bool { _, ok := c.confirmed[tag]; return ok })
	late.hold(old)
	_, _, err = c.publish("none", "", "m", nil)
	wantKind(t, err, NotFound, "no exchange 'none' in vhost '/'")
	late.hold(old)
	delayed := properties(func(p *amqp.Properties) { p.SetHeaders(table("x-delay", int32(600_000))) })
	if _, _, err := late.b.PublishCancellable(t.Context(), c.conn.user, "/", Publish{Exchange: "later", Key: "k", Properties: delayed}); err != nil {
		t.Error(err)
	}
}
