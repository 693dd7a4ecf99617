package management

import (
	"context"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/warrenmq/warren/amqp"
	"github.com/warrenmq/warren/broker"
	"github.com/warrenmq/warren/dlx"
)

// peekBroker answers every look with what the test gave it.
type peekBroker struct {
	fakeBroker
	asked  broker.Peek
	answer broker.Peeked
}

func (p *peekBroker) Peek(_ context.Context, user broker.User, _, name string, asked broker.Peek) (broker.Peeked, error) {
	if user.Name == "manager" {
		return broker.Peeked{}, broker.Errorf(broker.AccessRefused, "read access refused")
	}
	if name != "q" {
		return broker.Peeked{}, broker.Errorf(broker.NotFound, "no queue")
	}
	p.asked = asked
	return p.answer, nil
}

func TestMessages(t *testing.T) {
	props, err := amqp.Rewrite(nil, func(p *amqp.Properties) {
		p.SetMessageID("m")
		p.SetDeliveryMode(2)
		p.SetHeaders(amqp.Table{{Name: "n", Value: int32(1)}})
	})
	if err != nil {
		t.Fatal(err)
	}
	b := &peekBroker{fakeBroker: fakeBroker{vhosts: map[string][]string{"/": {"manager", "other"}}}}
	b.answer = broker.Peeked{Next: "0.9", Messages: []broker.PeekedMessage{
		{ID: 8, Exchange: "x", RoutingKeys: []string{"k", "cc"}, Properties: props, Body: []byte("halb \xe2\x82"), BodyBytes: 90, Deaths: []broker.Death{
			{Queue: "src", Reason: dlx.Expired, Count: 2, FirstMillis: 5, LastMillis: 7, Exchange: "y", RoutingKeys: []string{"z"}, Before: 1},
		}},
		{ID: 9, Body: []byte{0xff, 0}, BodyBytes: 2},
	}}
	f := newFakeCluster("a")
	f.apis["a"].cfg.Broker = b
	base := "/api/warren/queues/%2F/q/messages"
	for _, tc := range []struct {
		user, path string
		status     int
		want       string
	}{
		{"other", base, 200, `{"state":"ready","messages":[{"id":8,"exchange":"x","routing_key":"k","routing_keys":["k","cc"],"properties":{"delivery_mode":2,"headers":{"n":1},"message_id":"m"},"payload":"halb ","payload_encoding":"string","payload_bytes":90,"truncated":true,"deaths":[{"queue":"src","reason":"expired","count":2,"first_time":5,"last_time":7,"exchange":"y","routing_keys":["z"],"count_before_retry":1}],"retried":true,"deaths_since_retry":1,"redelivered":false}`},
		{"other", base, 200, `"payload":"/wA=","payload_encoding":"base64","payload_bytes":2,"truncated":false,"deaths":[],"retried":false,"redelivered":false}],"next":"0.9"}`},
		{"other", base + "?encoding=base64", 200, `"payload":"aGFsYiDigg==","payload_encoding":"base64"`},
		{"manager", base, 401, "read access refused"},
		{"other", "/api/warren/queues/%2F/none/messages", 404, "Not Found"},
		{"admin", "/api/warren/queues/nowhere/q/messages", 404, "Not Found"},
		{"other", base + "?count=x", 400, "count 'x' is no number"},
		{"other", base + "?id=-1", 400, "id '-1' is no number"},
		{"other", base + "?older_than=soon", 400, "'soon' is no age"},
		{"other", base + "?header=x", 400, "name=value"},
		{"other", base + "?retried=often", 400, "retried 'often' is neither true nor false"},
		{"other", base + "?encoding=rot13", 400, "neither auto nor base64"},
	} {
		if status, body, _ := f.do(t, "a", tc.user, "GET", tc.path); status != tc.status || !strings.Contains(body, tc.want) {
			t.Errorf("%s %s: %d %s, want %s", tc.user, tc.path, status, body, tc.want)
		}
	}
	f.do(t, "a", "other", "GET", base+"?state=parked&offset=3&count=4&truncate=5&after=1.2&reason=expired&reason=maxlen&from=src&older_than=90&newer_than=2h&id=7&message_id=m&header=a=b=c&retried=false")
	no := false
	if want := (broker.Peek{State: "parked", Offset: 3, Count: 4, After: "1.2", Truncate: 5, Filter: broker.Filter{
		Reasons: []string{"expired", "maxlen"}, From: "src", OlderThan: 90 * time.Second, NewerThan: 2 * time.Hour,
		IDs: []uint64{7}, MessageIDs: []string{"m"}, Header: "a", HeaderValue: "b=c", Retried: &no,
	}}); !reflect.DeepEqual(b.asked, want) {
		t.Errorf("asked for %+v", b.asked)
	}
}
