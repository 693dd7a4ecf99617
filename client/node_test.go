package client_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/warrenmq/warren/client"
)

// TestTypes shows that headers come back through a node with the types that they had.
func TestTypes(t *testing.T) {
	addrs := addresses()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	c, err := client.Dial(ctx, client.Config{Addrs: addrs, User: "guest", Password: "guest"})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { must(c.Close(ctx)) }()
	p, err := c.Publisher(client.PublisherConfig{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.DeclareQueue(ctx, client.Queue{Name: "types", Arguments: client.Table{"x-max-priority": 9}}); err != nil {
		t.Fatal(err)
	}
	sent := client.Message{
		RoutingKey: "types", Body: []byte("body"), ContentType: "a", ContentEncoding: "b", DeliveryMode: client.Transient, Priority: 3, CorrelationID: "c", ReplyTo: "d",
		Expiration: client.Expire(time.Hour), MessageID: "e\xff", Timestamp: time.Unix(1_700_000_000, 0).UTC(), Type: "f", UserID: "guest", AppID: "g", ClusterID: "h",
		Headers: client.Table{
			"void": nil, "bool": true, "i8": int8(-8), "i16": int16(-16), "i32": int32(-32), "i64": int64(-64), "u8": uint8(8), "u16": uint16(16), "u32": uint32(32),
			"f32": float32(.5), "f64": .25, "decimal": client.Decimal{Scale: 2, Value: 314}, "text": "t", "bytes\xfe": []byte{1}, "binary": "\xff",
			"time": time.Unix(1, 0).UTC(), "table": client.Table{"in": int8(1)}, "array": []any{uint16(2), "x"},
		},
	}
	if err := p.Publish(ctx, &sent); err != nil {
		t.Fatal(err)
	}
	list, err := c.Get(ctx, "types", 1, client.Release)
	if err != nil || len(list) != 1 {
		t.Fatalf("%v, %v", list, err)
	}
	if err := list[0].Ack(); !errors.Is(err, client.ErrSettled) {
		t.Errorf("a delivery that is settled already: %v", err)
	}
	list[0].Headers = stripped(list[0].Headers, sent.Headers)
	if diff := cmp.Diff(sent, list[0].Message); diff != "" {
		t.Error(diff)
	}
	// Refusals come with the codes and words of the node.
	_, err = c.DeclareQueue(ctx, client.Queue{Name: "types"})
	if e, ok := errors.AsType[*client.Error](err); !ok || !errors.Is(err, client.ErrPreconditionFailed) || e.AMQPCode != 406 {
		t.Errorf("declared otherwise: %v", err)
	}
	if _, err := c.LookQueue(ctx, "no types"); !errors.Is(err, client.ErrNotFound) {
		t.Error(err)
	}
	if err := p.Publish(ctx, &client.Message{Exchange: "no types"}); !errors.Is(err, client.ErrNotFound) {
		t.Error(err)
	}
	if n, err := c.PurgeQueue(ctx, "types"); n != 1 || err != nil {
		t.Error(n, err)
	}
	for _, cfg := range []client.Config{{Addrs: addrs, User: "guest", Password: "wrong"}, {Addrs: addrs, User: "guest", Password: "guest", VHost: "none"}} {
		if _, err := client.Dial(ctx, cfg); !errors.Is(err, client.ErrLoginRefused) && !errors.Is(err, client.ErrNotAllowed) {
			t.Error(err)
		}
	}
}

// stripped are the headers without those that the node adds.
func stripped(headers, sent client.Table) client.Table {
	t := client.Table{}
	for name, v := range headers {
		if _, ok := sent[name]; ok {
			t[name] = v
		}
	}
	return t
}
