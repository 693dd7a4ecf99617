package upgrade

import (
	"context"
	"fmt"
	"strings"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/warrenmq/warren/test/cluster"
)

// Scene is what is made in a cluster and looked for in it.
type Scene struct {
	// Prefix begins all its names.
	Prefix string
	// Midway, if not nil, is called when half of it is made.
	Midway func(ctx context.Context) error
}

// bigBytes is the size of a body that does not fit into one entry with others.
const bigBytes = 300 << 10

// Times in milliseconds. A scene may be kept for years, and whatever still has its time then is looked for as on the first day.
const (
	soon = 4000            // after which some messages are due or expire
	ages = 315_360_000_000 // ten years, the longest life of a message, window and delay of a retry
	// undue is almost the longest delay that an exchange takes. The scene has the time at which it is over, as that comes.
	undue = 40 * 24 * 3_600_000
)

// full is a message with every property.
func full() amqp.Publishing {
	return amqp.Publishing{
		Body: []byte("with all properties"), DeliveryMode: amqp.Persistent, ContentType: "text/plain", ContentEncoding: "identity",
		Priority: 3, CorrelationId: "c-1", ReplyTo: "answers", Expiration: fmt.Sprint(ages), MessageId: "m-1",
		Timestamp: time.Unix(1_700_000_000, 0), Type: "t-1", UserId: "guest", AppId: "a-1",
		Headers: amqp.Table{
			"text": "x", "small": int32(-7), "large": int64(1) << 40, "true": true, "real": 2.5, "bytes": []byte{1, 2}, "when": time.Unix(1_600_000_000, 0),
			"table": amqp.Table{"inner": "y"}, "list": []any{"z", int32(1)}, "none": nil,
		},
	}
}

func big() string { return strings.Repeat("0123456789abcdef", bigBytes/16) }

func numbered(prefix string, n int) (list []string) {
	for i := range n {
		list = append(list, fmt.Sprint(prefix, i))
	}
	return list
}

// Make makes the scene through the first node. What consumers hold they hold until release is called, or the nodes have
// been killed: kill them within soon milliseconds.
func (sc Scene) Make(ctx context.Context, c *cluster.Cluster) (release func(), err error) {
	s := open(ctx, c, 0, sc.Prefix)
	s.makeTopology()
	s.makeUsers()
	s.makeMessages()
	s.makeDeaths()
	if sc.Midway != nil && s.err == nil {
		s.failed("midway", sc.Midway(ctx))
	}
	s.makeHeld()
	s.makeSoon()
	return s.close, s.err
}

func (s *stage) makeTopology() {
	s.exchange("other", "fanout", nil)
	s.exchange("events", "topic", amqp.Table{"alternate-exchange": s.prefix + "other"})
	s.queue("orders", nil)
	s.queue("unrouted", nil)
	s.bind("orders", "order.*", "events")
	s.bind("unrouted", "", "other")
	s.http("PUT", "policies/%2F/"+s.prefix+"limit", map[string]any{
		"pattern": "^" + s.prefix + "limited", "apply-to": "queues", "priority": 7, "definition": map[string]any{"max-length": 5},
	})
	s.queue("limited", nil)
	s.fill("limited", numbered("l", 8)...)
}

func (s *stage) makeUsers() {
	tenant, user := s.prefix+"tenant", s.prefix+"alice"
	s.http("PUT", "vhosts/"+tenant, map[string]any{})
	s.http("PUT", "users/"+user, map[string]any{"password": "secret", "tags": "monitoring"})
	s.http("PUT", "permissions/"+tenant+"/"+user, map[string]any{"configure": "^t", "write": ".*", "read": ".*"})
	s.http("PUT", "vhost-limits/"+tenant+"/max-queues", map[string]any{"value": 1})
	a := s.tenant()
	a.queue("t", nil)
	a.fill("t", "of the tenant")
	s.failed("tenant", a.result())
	a.close()
}

// tenant is a stage of the user in the virtual host.
func (s *stage) tenant() *stage {
	a := &stage{ctx: s.ctx, c: s.c, err: s.err}
	a.conn, a.ch = a.dial("amqp://" + s.prefix + "alice:secret@" + s.c.Node(0).AMQPAddr() + "/" + s.prefix + "tenant")
	return a
}

func (s *stage) makeMessages() {
	s.queue("plain", nil)
	s.fill("plain", numbered("m", 12)...)
	s.publish("", s.prefix+"plain", full())
	s.fill("plain", big())
	s.settle("plain", 5, ack)

	s.queue("churned", amqp.Table{"x-queue-type": "quorum"})
	for _, body := range numbered("gone", 60) {
		s.fill("churned", body)
	}
	s.settle("churned", 58, ack)
	s.fill("churned", "last")

	s.queue("priorities", amqp.Table{"x-max-priority": 5})
	for _, p := range []uint8{0, 5, 3} {
		m := text(fmt.Sprint("p", p))
		m.Priority = p
		s.publish("", s.prefix+"priorities", m)
	}

	s.queue("window", amqp.Table{"x-deduplication-window": ages})
	for _, id := range []string{"a", "b"} {
		s.once(id)
	}
	s.settle("window", 1, ack)
}

// once publishes a message to the queue with a window.
func (s *stage) once(id string) {
	m := text(id)
	m.Headers = amqp.Table{"x-deduplication-header": id}
	s.publish("", s.prefix+"window", m)
}

func (s *stage) makeDeaths() {
	// One that has arrived, three that wait for room, two without a way.
	s.queue("rejected", nil)
	s.queue("refused", s.deadTo("rejected", nil))
	s.fill("refused", "died")
	s.settle("refused", 1, reject)
	s.until("rejected", "has it", func(q cluster.Queue) bool { return q.Ready == 1 })

	s.queue("narrow", amqp.Table{"x-max-length": 2, "x-overflow": "reject-publish"})
	s.fill("narrow", "n1", "n2")
	s.queue("waiting", s.deadTo("narrow", nil))
	s.fill("waiting", "w1", "w2", "w3")
	s.settle("waiting", 3, reject)
	s.until("waiting", "has three in its outbox", func(q cluster.Queue) bool { return q.Outbox == 3 })

	s.exchange("nowhere", "direct", nil)
	s.queue("parking", amqp.Table{
		"x-queue-type": "quorum", "x-dead-letter-exchange": s.prefix + "nowhere", "x-dead-letter-strategy": "at-least-once", "x-overflow": "reject-publish",
	})
	s.fill("parking", "k1", "k2")
	s.settle("parking", 2, reject)
	s.until("parking", "has two in its outbox", func(q cluster.Queue) bool { return q.Outbox == 2 })
}

func (s *stage) makeHeld() {
	s.queue("counted", amqp.Table{"x-queue-type": "quorum"})
	s.fill("counted", "came back")
	s.settle("counted", 2, requeue)

	s.queue("retried", amqp.Table{"x-queue-type": "quorum", "x-delayed-retry-type": "all", "x-delayed-retry-min": ages})
	s.fill("retried", "fails", "waits")
	s.settle("retried", 1, requeue)

	s.queue("held", nil)
	s.fill("held", numbered("h", 6)...)
	if s.err != nil {
		return
	}
	ch, err := s.conn.Channel()
	if err == nil {
		err = ch.Qos(3, 0, false)
	}
	if err == nil {
		var deliveries <-chan amqp.Delivery
		if deliveries, err = ch.Consume(s.prefix+"held", "", false, false, false, false, nil); err == nil {
			for range 3 {
				<-deliveries
			}
		}
	}
	s.failed("hold", err)
	s.until("held", "has three that are held", func(q cluster.Queue) bool { return q.Unacked == 3 })
}

// makeSoon comes last: its messages are to be on their way when the nodes end.
func (s *stage) makeSoon() {
	s.exchange("later", "x-delayed-message", amqp.Table{"x-delayed-type": "direct"})
	s.queue("due", nil)
	s.bind("due", "due", "later")
	s.queue("undue", nil)
	s.bind("undue", "undue", "later")
	s.queue("expired", nil)
	s.queue("expiring", s.deadTo("expired", amqp.Table{"x-message-ttl": soon}))
	over := time.Now().Add(undue * time.Millisecond).Format(time.RFC3339)
	s.queue("over", nil)
	s.fill("over", over)
	s.delayed("undue", over, undue)
	s.delayed("due", "soon", soon)
	s.fill("expiring", "e1", "e2")
}

// delayed publishes a message to the exchange that keeps it.
func (s *stage) delayed(key, body string, millis int64) {
	m := text(body)
	m.Headers = amqp.Table{"x-delay": millis}
	s.publish(s.prefix+"later", key, m)
}

// Check looks for all of the scene through a node, and uses it up.
func (sc Scene) Check(ctx context.Context, c *cluster.Cluster, node int) error {
	s := open(ctx, c, node, sc.Prefix)
	defer s.close()
	s.checkMessages()
	s.checkTopology()
	s.checkUsers()
	s.checkDeaths()
	s.checkHeld()
	s.checkSoon()
	return s.result()
}

func (s *stage) checkMessages() {
	want := numbered("m", 12)[5:]
	for range want {
		d := s.get("plain")
		s.is("plain", string(d.Body), want[0])
		want = want[1:]
		s.failed("ack", d.Ack(false))
	}
	s.checkFull(s.get("plain"))
	if d := s.get("plain"); string(d.Body) != big() {
		s.is("the big body's size", len(d.Body), bigBytes)
	}
	s.empty("plain")
	s.holds("churned", "gone58", "gone59", "last")
	s.holds("priorities", "p5", "p3", "p0")
	for _, id := range []string{"a", "b", "c"} { // of the first two the window knows
		s.once(id)
	}
	s.holds("window", "b", "c")
}

// checkFull compares a message with full.
func (s *stage) checkFull(d amqp.Delivery) {
	f := full()
	s.is("properties", []any{
		string(d.Body), d.DeliveryMode, d.ContentType, d.ContentEncoding, d.Priority, d.CorrelationId, d.ReplyTo, d.Expiration, d.MessageId, d.Timestamp.Unix(), d.Type, d.UserId, d.AppId,
	}, []any{
		string(f.Body), f.DeliveryMode, f.ContentType, f.ContentEncoding, f.Priority, f.CorrelationId, f.ReplyTo, f.Expiration, f.MessageId, f.Timestamp.Unix(), f.Type, f.UserId, f.AppId,
	})
	for k, v := range f.Headers {
		got := d.Headers[k]
		if t, ok := got.(time.Time); ok {
			got, v = t.Unix(), v.(time.Time).Unix()
		}
		s.is("header "+k, fmt.Sprintf("%T %v", got, got), fmt.Sprintf("%T %v", v, v))
	}
}

func (s *stage) checkTopology() {
	s.publish(s.prefix+"events", "order.new", text("routed"))
	s.publish(s.prefix+"events", "nothing", text("stray"))
	s.holds("orders", "routed")
	s.holds("unrouted", "stray")
	s.fill("limited", "l8") // the policy's limit still holds
	s.holds("limited", "l4", "l5", "l6", "l7", "l8")
}

func (s *stage) checkUsers() {
	a := s.tenant()
	a.holds("t", "of the tenant")
	s.wrong, s.err = append(s.wrong, a.wrong...), a.err
	if s.err == nil {
		_, err := a.ch.QueueDeclare("t2", true, false, false, false, nil)
		s.is("a queue above the limit is refused", err != nil, true)
	}
	a.close()
	if !strings.Contains(string(s.http("GET", "users/"+s.prefix+"alice", nil)), "monitoring") {
		s.is("tags of the user", "others", "monitoring")
	}
}

func (s *stage) checkDeaths() {
	d := s.get("rejected")
	s.is("rejected", string(d.Body), "died")
	s.is("why", []any{d.Headers["x-first-death-reason"], d.Headers["x-first-death-queue"]}, []any{"rejected", s.prefix + "refused"})
	s.failed("ack", ack(d))
	// Each that is taken makes room for one.
	s.holds("narrow", "n1", "n2", "w1", "w2", "w3")
	s.until("waiting", "has nothing left", func(q cluster.Queue) bool { return q.Outbox+q.Ready+q.Unacked == 0 })
	s.empty("narrow")
	s.queue("found", nil)
	s.bind("found", s.prefix+"parking", "nowhere")
	s.holds("found", "k1", "k2")
	s.until("parking", "has nothing left", func(q cluster.Queue) bool { return q.Outbox+q.Ready+q.Unacked == 0 })
}

func (s *stage) checkHeld() {
	d := s.get("counted")
	s.is("counted", []any{string(d.Body), d.Redelivered, d.Headers["x-delivery-count"]}, []any{"came back", true, int64(2)})
	s.failed("ack", ack(d))
	s.holds("retried", "waits")
	s.delayedIn("retried", 1)
	for i, body := range numbered("h", 6) {
		d := s.get("held")
		s.is("held", string(d.Body), body)
		// What consumers held has been delivered; what was ready behind it may have been announced to be.
		if i < 3 {
			s.is(body+" is redelivered", d.Redelivered, true)
		}
		s.failed("ack", ack(d))
	}
}

func (s *stage) checkSoon() {
	s.holds("expired", "e1", "e2")
	s.holds("due", "soon")
	over := string(s.get("over").Body)
	at, err := time.Parse(time.RFC3339, over)
	s.failed("the time at which the long delay is over", err)
	if time.Now().Before(at) {
		s.empty("undue")
	} else {
		s.holds("undue", over)
	}
	s.exchange("later", "x-delayed-message", amqp.Table{"x-delayed-type": "direct"}) // as it is
}
