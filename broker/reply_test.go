package broker

import (
	"bytes"
	"strings"
	"testing"

	"github.com/warrenmq/warren/amqp"
	"github.com/warrenmq/warren/fsm"
)

func (c *client) consumeReplies() *Consumer {
	c.t.Helper()
	x, err := c.ch.Consume(c.t.Context(), Consume{Queue: ReplyQueue, Tag: "replies", NoAck: true})
	if err != nil {
		c.t.Fatal(err)
	}
	return x
}

// request publishes a request to queue and returns the name that its responder
// sees.
func (c *client) request(queue string) string {
	c.t.Helper()
	c.put(queue, "request", properties(func(p *amqp.Properties) { p.SetReplyTo(ReplyQueue); p.SetCorrelationID("1") }))
	d := c.get(queue)
	to, _ := d.Properties.ReplyTo()
	if id, _ := d.Properties.CorrelationID(); id != "1" || !strings.HasPrefix(to, replyPrefix) {
		c.t.Fatalf("request arrived with reply-to %q, correlation-id %q", to, id)
	}
	c.settle(fsm.Ack, d)
	return to
}

func wantKind(t *testing.T, err error, k Kind, text string) {
	t.Helper()
	e, ok := err.(*Error)
	if !ok || e.Kind != k || e.Text != text {
		t.Errorf("got %v, want kind %d %q", err, k, text)
	}
}

func TestDirectReply(t *testing.T) {
	b := newBroker(t)
	requester, responder := dial(t, b), dial(t, b)
	requester.declare("q", nil)
	raw := properties(func(p *amqp.Properties) { p.SetReplyTo(ReplyQueue) })
	_, _, err := requester.publish("", "q", "m", raw)
	wantKind(t, err, PreconditionFailed, "fast reply consumer does not exist")
	_, err = requester.ch.Consume(t.Context(), Consume{Queue: ReplyQueue, Tag: "x"})
	wantKind(t, err, PreconditionFailed, "reply consumer cannot acknowledge")
	x := requester.consumeReplies()
	_, err = requester.ch.Consume(t.Context(), Consume{Queue: ReplyQueue, Tag: "y", NoAck: true})
	wantKind(t, err, PreconditionFailed, "reply consumer already set")

	name := requester.request("q")
	for _, body := range []string{"first", "second"} {
		tag, routed, err := responder.publish("", name, body, nil)
		if err != nil || !routed {
			t.Fatalf("reply: routed %v, %v", routed, err)
		}
		responder.await("confirm", func() bool { _, ok := responder.confirmed[tag]; return ok })
	}
	for i, d := range requester.take(2) {
		if want := []string{"first", "second"}[i]; string(d.Body) != want || d.Key != name || d.Exchange != "" || d.Redelivered {
			t.Errorf("delivery %d: %+v", i, d)
		}
		x.Written(1, d.WindowBytes)
	}
	if n := b.replies.waiting.Load(); n != 0 {
		t.Errorf("%d bytes wait", n)
	}

	for _, who := range []string{ReplyQueue, name} {
		ok, err := responder.conn.DeclareQueue(t.Context(), QueueDeclare{Name: who, Passive: true})
		if err != nil || ok != (QueueOK{Name: who, Consumers: 1}) {
			t.Errorf("declare %s: %+v, %v", who, ok, err)
		}
		_, _, err = responder.ch.Get(t.Context(), who, true)
		wantKind(t, err, NotFound, "no queue '"+who+"' in vhost '/'")
	}
	wantKind(t, responder.conn.Bind(t.Context(), Binding{Source: "amq.direct", Destination: ReplyQueue}), NotFound, "no queue 'amq.rabbitmq.reply-to' in vhost '/'")
	wantKind(t, responder.conn.Bind(t.Context(), Binding{Source: "amq.direct", Destination: name}), AccessRefused, "cannot bind or unbind to a volatile (direct reply-to) queue")

	// Nobody else can be reached by a guess, and nobody after the end.
	token, _ := parseReplyName(name)
	token.secret[3] ^= 1
	if _, routed, err := responder.publish("", token.name(), "m", nil); routed || err != nil {
		t.Errorf("a guess was routed: %v, %v", routed, err)
	}
	if err := x.Cancel(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, routed, err := responder.publish("", name, "late", nil); routed || err != nil {
		t.Errorf("a late reply was routed: %v, %v", routed, err)
	}
	_, err = responder.conn.DeclareQueue(t.Context(), QueueDeclare{Name: name, Passive: true})
	wantKind(t, err, NotFound, "no queue '"+name+"' in vhost '/'")
	requester.consumeReplies() // a channel may consume again
	if again := requester.request("q"); again == name {
		t.Error("one name twice")
	}
	requester.ch.Close(t.Context())
	if len(b.replies.boxes) != 0 {
		t.Error("a requester is left behind")
	}
}

// A requester that does not read costs a bounded amount of memory and nobody
// else's time.
func TestDirectReplyIsBounded(t *testing.T) {
	b := newBroker(t)
	requester, responder := dial(t, b), dial(t, b)
	requester.declare("q", nil)
	x := requester.consumeReplies()
	name := requester.request("q")
	body := strings.Repeat("x", 1<<20)
	taken := 0
	for range 2 * replyBytesMax / len(body) {
		if _, routed, err := responder.publish("", name, body, nil); err != nil {
			t.Fatal(err)
		} else if routed {
			taken++
		}
	}
	if most := replyBytesMax/len(body) + 1; taken == 0 || taken > most || b.RepliesDropped() == 0 {
		t.Errorf("took %d replies of 1 MiB, want up to %d; dropped %d", taken, most, b.RepliesDropped())
	}
	for _, d := range requester.take(taken) {
		x.Written(1, d.WindowBytes)
	}
	if _, routed, _ := responder.publish("", name, "again", nil); !routed {
		t.Error("a requester that reads again gets nothing")
	}
	requester.ch.Close(t.Context())
	x.Written(1, replyOverheadBytes+5) // the gateway may be late
	if n := b.replies.waiting.Load(); n != 0 {
		t.Errorf("%d bytes wait for nobody", n)
	}
}

func TestReplyNames(t *testing.T) {
	token := replyToken{origin: fsm.Origin{Node: 1<<32 - 1, Incarnation: 1<<64 - 1}, number: 1<<64 - 1}
	copy(token.secret[:], bytes.Repeat([]byte{0xff}, replySecretBytes))
	name := token.name()
	if got, ok := parseReplyName(name); !ok || got != token || len(name) > nameBytesMax {
		t.Errorf("%q reads as %+v, %v", name, got, ok)
	}
	for _, bad := range []string{"", ReplyQueue, replyPrefix, name + "A", name[:len(name)-1], replyPrefix + "!!!!", "x" + name} {
		if _, ok := parseReplyName(bad); ok {
			t.Errorf("%q was read", bad)
		}
	}
}

func FuzzDecodeDirectReply(f *testing.F) {
	f.Add((&directReply{vhost: "/", name: replyPrefix + "x", properties: []byte{0, 0}, body: []byte("body")}).encode())
	f.Add((&directReply{probe: true, vhost: "v"}).encode())
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := decodeDirectReply(b)
		if err != nil {
			return
		}
		again, err := decodeDirectReply(m.encode())
		if err != nil || again.probe != m.probe || again.vhost != m.vhost || again.name != m.name ||
			!bytes.Equal(again.properties, m.properties) || !bytes.Equal(again.body, m.body) {
			t.Fatalf("%+v became %+v, %v", m, again, err)
		}
	})
}

func FuzzReplyName(f *testing.F) {
	f.Add((&replyToken{origin: fsm.Origin{Node: 1, Incarnation: 7}, number: 9}).name())
	f.Fuzz(func(t *testing.T, name string) {
		token, ok := parseReplyName(name)
		if again, ok2 := parseReplyName(token.name()); ok && (!ok2 || again != token) {
			t.Fatalf("%q: %+v became %+v", name, token, again)
		}
	})
}
