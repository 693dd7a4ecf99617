package broker

import (
	"fmt"
	"testing"

	"github.com/warrenmq/warren/amqp"
)

// TestRouteOnce asks where messages would go, and sees that none went.
func TestRouteOnce(t *testing.T) {
	b := newBroker(t)
	ctx, guest := t.Context(), User{Name: "guest"}
	c := dial(t, b)
	for _, q := range []string{"q1", "q2", "other"} {
		c.declare(q, nil)
	}
	for name, d := range map[string]ExchangeDeclare{
		"topics": {Type: "topic", Arguments: table("alternate-exchange", "rest")}, "rest": {Type: "fanout"}, "inner": {Type: "fanout", Internal: true},
		"later": {Type: "x-delayed-message", Arguments: table("x-delayed-type", "direct")},
	} {
		d.Name = name
		if _, err := b.PutExchange(ctx, guest, "/", d); err != nil {
			t.Fatal(err)
		}
	}
	for _, bd := range []Binding{
		{Source: "topics", Destination: "q1", Key: "a.*"},
		{Source: "topics", Destination: "q2", Key: "#.b"},
		{Source: "topics", Destination: "q1", Key: "a.b"},
		{Source: "rest", Destination: "other"},
		{Source: "later", Destination: "q2", Key: "k"},
	} {
		if err := b.PutBinding(ctx, guest, "/", bd); err != nil {
			t.Fatal(err)
		}
	}
	headers := func(args ...any) amqp.RawProperties {
		var p amqp.Properties
		p.SetHeaders(table(args...))
		return p.AppendTo(nil)
	}
	for _, x := range []struct {
		exchange, key string
		props         amqp.RawProperties
		want          string
	}{
		{"topics", "a.b", nil, "{[q1 q2] 0}"},
		{"topics", "a.c", nil, "{[q1] 0}"},
		{"topics", "c", nil, "{[other] 0}"},
		{"topics", "c", headers("CC", amqp.Array{"a.x"}), "{[q1] 0}"},
		{"", "q2", nil, "{[q2] 0}"},
		{"", "none", nil, "{[] 0}"},
		{"later", "k", headers("x-delay", int64(700)), "{[q2] 700}"},
		{"later", "k", nil, "{[q2] 0}"},
		{"later", "other", headers("x-delay", int64(700)), "{[] 700}"},
	} {
		r, err := b.RouteOnce(ctx, guest, "/", Publish{Exchange: x.exchange, Key: x.key, Properties: x.props})
		if got := fmt.Sprint(r); err != nil || got != x.want {
			t.Errorf("%s with %s: %s, want %s (%v)", x.exchange, x.key, got, x.want, err)
		}
	}
	for name, kind := range map[string]Kind{"none": NotFound, "inner": AccessRefused} {
		if _, err := b.RouteOnce(ctx, guest, "/", Publish{Exchange: name}); !isKind(err, kind) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := b.RouteOnce(ctx, User{Name: "nobody"}, "/", Publish{Exchange: "topics"}); !isKind(err, NotAllowed) {
		t.Error(err)
	}
	for _, q := range []string{"q1", "q2", "other"} {
		if d, _, err := c.ch.Get(ctx, q, true); err != nil || d != nil {
			t.Errorf("%s has %v (%v)", q, d, err)
		}
	}
}
