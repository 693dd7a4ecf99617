package broker

import (
	"testing"

	"github.com/warrenmq/warren/amqp"
	"github.com/warrenmq/warren/catalog"
)

// G06: a topic permission counts for each key, and for topic exchanges only.
func TestTopicPermissions(t *testing.T) {
	b := newBroker(t)
	c := dial(t, b)
	c.declare("q", nil)
	if err := c.conn.Bind(t.Context(), Binding{Source: "amq.topic", Destination: "q", Key: "#"}); err != nil {
		t.Fatal(err)
	}
	for _, exchange := range []string{"amq.topic", "amq.direct"} {
		put := &catalog.PutTopicPermission{Vhost: "/", User: "guest", Exchange: exchange, Write: "^a", Read: "^b"}
		if _, err := b.cat.Propose(t.Context(), put); err != nil {
			t.Fatal(err)
		}
	}
	copies := func(name string, keys ...any) amqp.RawProperties {
		return properties(func(p *amqp.Properties) { p.SetHeaders(amqp.Table{{Name: name, Value: amqp.Array(keys)}}) })
	}
	for _, tc := range []struct {
		name, exchange, key string
		props               amqp.RawProperties
		refused             string
	}{
		{"key and CC match", "amq.topic", "a.1", copies("CC", "a.2"), ""},
		{"key", "amq.topic", "x.1", nil, "x.1"},
		{"CC", "amq.topic", "a.1", copies("CC", "a.2", "x.2"), "x.2"},
		{"BCC", "amq.topic", "a.1", copies("BCC", "x.3"), "x.3"},
		{"another type of exchange", "amq.direct", "x.1", nil, ""},
	} {
		_, _, err := c.publish(tc.exchange, tc.key, "m", tc.props)
		if tc.refused == "" {
			if err != nil {
				t.Errorf("%s: %v", tc.name, err)
			}
			continue
		}
		wantKind(t, err, AccessRefused, "write access to topic '"+tc.refused+"' in exchange 'amq.topic' in vhost '/' refused for user 'guest'")
	}
	err := c.conn.Bind(t.Context(), Binding{Source: "amq.topic", Destination: "q", Key: "a.1"})
	wantKind(t, err, AccessRefused, "read access to topic 'a.1' in exchange 'amq.topic' in vhost '/' refused for user 'guest'")
	if err := c.conn.Bind(t.Context(), Binding{Source: "amq.topic", Destination: "q", Key: "b.1"}); err != nil {
		t.Error(err)
	}
	// A change counts for the next message.
	if _, err := b.cat.Propose(t.Context(), &catalog.DeleteTopicPermission{Vhost: "/", User: "guest"}); err != nil {
		t.Fatal(err)
	}
	if _, _, err := c.publish("amq.topic", "x.1", "m", nil); err != nil {
		t.Error(err)
	}
}
