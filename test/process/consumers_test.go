package process

import (
	"context"
	"fmt"
	"net"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/warrenmq/warren/test/cluster"
)

// TestQueuePlacement: how many replicas a queue gets, and where its leader is.
func TestQueuePlacement(t *testing.T) {
	needWarren(t)
	c := sharedCluster(t, 3)
	for i, n := range c.Nodes() {
		s := at(t, n)
		for size, want := range map[int]int{1: 1, 2: 2, 3: 3, 9: 3} {
			name := s.queue(fmt.Sprint("size", size), amqp.Table{"x-quorum-initial-group-size": size, "x-queue-leader-locator": "client-local"})
			q, err := c.Queue(t.Context(), name)
			if err != nil || len(q.Members) != want || !slices.Contains(q.Members, n.Name) {
				t.Errorf("size %d: %v, %v", size, q.Members, err)
			}
			if leader, _ := leaderOf(t, c, name); leader != n {
				t.Errorf("size %d: %s leads what was declared at %s", size, leader.Name, n.Name)
			}
		}
		if i > 0 {
			continue
		}
		for _, locator := range []string{"balanced", "random", "least-leaders"} {
			s.queue(locator, amqp.Table{"x-queue-leader-locator": locator})
		}
		for _, bad := range []amqp.Table{
			{"x-quorum-initial-group-size": 0},
			{"x-quorum-initial-group-size": -3},
			{"x-quorum-initial-group-size": "three"},
			{"x-queue-leader-locator": "nearby"},
			{"x-queue-leader-locator": 7},
			{"x-delivery-limit": "many"},
		} {
			for arg := range bad {
				wantClosed(s, s.channel(s.conn), 406, "PRECONDITION_FAILED - invalid arg '"+arg+"' for queue 'new' in vhost '/': ", func(ch *amqp.Channel) error {
					return declare(ch, "new", bad)
				})
			}
		}
	}
}

// TestDeliveryLimitOfEveryFlavour: the argument works on every kind of queue, and only
// quorum queues have a limit without it.
func TestDeliveryLimitOfEveryFlavour(t *testing.T) {
	t.Parallel()
	runScenarios(t, []scenario{{name: "limit", warrenOnly: true, run: func(s *session) {
		eachFlavour(s, amqp.Table{"x-delivery-limit": 1}, func(s *session, q string) {
			s.fill(q, "m")
			for i := range 2 {
				d := s.get(q)
				if count, _ := d.Headers["x-delivery-count"].(int64); int(count) != i {
					s.Errorf("delivery count %d, want %d", count, i)
				}
				s.noError("reject", d.Reject(true))
			}
			s.ready(q, 0)
		})
	}}})
}

// TestChannelWidePrefetch is W17: consumers of queues with different leaders share the
// limit of their channel.
func TestChannelWidePrefetch(t *testing.T) {
	t.Parallel()
	needWarren(t)
	c := sharedCluster(t, 3)
	s := at(t, c.Node(0))
	const limit, each = 3, 10
	var queues []string
	for i, n := range c.Nodes() {
		q := at(t, n).queue(fmt.Sprint("q", i), amqp.Table{"x-queue-leader-locator": "client-local"})
		s.fill(q, numbered(fmt.Sprint(i, "-"), each)...)
		queues = append(queues, q)
	}
	ch := s.channel(s.conn)
	s.noError("qos", ch.Qos(limit, 0, true))
	all := make(chan amqp.Delivery)
	for _, q := range queues {
		deliveries, err := ch.Consume(q, "", false, false, false, false, nil)
		s.noError("consume", err)
		go func() {
			for d := range deliveries {
				all <- d
			}
		}()
	}
	var held []amqp.Delivery
	last := map[string]string{}
	for range len(queues) * each {
		for len(held) < limit && len(last) < len(queues)*each {
			d := s.next(all)
			if last[string(d.Body)] != "" {
				t.Errorf("%q came twice", d.Body)
			}
			last[string(d.Body)] = d.RoutingKey
			held = append(held, d)
		}
		select {
		case d := <-all:
			t.Fatalf("%q came beyond the limit of %d", d.Body, limit)
		case <-time.After(2 * time.Millisecond):
		}
		s.noError("ack", held[0].Ack(false))
		held = held[1:]
	}
	s.noError("close", ch.Close())
	// A limit of its own holds for one consumer, beside the channel's.
	own := s.channel(s.conn)
	s.noError("qos", own.Qos(1, 0, false))
	s.noError("qos", own.Qos(2, 0, true))
	one, err := own.Consume(queues[0], "", false, false, false, false, nil)
	s.noError("consume", err)
	two, err := own.Consume(queues[1], "", false, false, false, false, nil)
	s.noError("consume", err)
	s.fill(queues[0], "a", "b")
	s.fill(queues[1], "c", "d")
	a := s.take(one, false, "a")
	s.take(two, false, "c")
	select {
	case d := <-one:
		t.Errorf("%q came beyond a prefetch of 1", d.Body)
	case <-time.After(20 * time.Millisecond):
	}
	s.noError("ack", a[0].Ack(false))
	s.take(one, false, "b")
}

// TestChannelWidePrefetchChanges: a new limit of a channel is one for its running consumers at once, beside the queues' leader
// and away from it.
func TestChannelWidePrefetchChanges(t *testing.T) {
	t.Parallel()
	needWarren(t)
	c := sharedCluster(t, 3)
	for _, n := range c.Nodes()[:2] {
		t.Run(n.Name, func(t *testing.T) {
			s := at(t, n)
			q := at(t, c.Node(0)).queue("q", amqp.Table{"x-queue-leader-locator": "client-local"})
			ch := s.channel(s.conn)
			s.noError("qos", ch.Qos(8, 0, false))
			s.noError("qos", ch.Qos(3, 0, true))
			own, err := ch.Consume(q, "", false, false, false, false, nil)
			s.noError("consume", err)
			var held []amqp.Delivery
			holds := func(limit, more int) {
				t.Helper()
				if limit >= 0 {
					s.noError("qos", ch.Qos(limit, 0, true))
				}
				for range more {
					held = append(held, s.next(own))
				}
				select {
				case d := <-own:
					t.Fatalf("%q came beyond the %d of a limit of %d", d.Body, len(held), limit)
				case <-time.After(10 * time.Millisecond):
				}
			}
			s.fill(q, numbered("m", 20)...)
			holds(-1, 3)
			holds(5, 2)
			holds(2, 0)
			s.noError("ack", held[2].Ack(true))
			held = held[3:]
			holds(-1, 0)
			holds(3, 1)
			holds(100, 5) // its own prefetch
			holds(4, 0)
			holds(0, 0)
			s.noError("ack", held[len(held)-1].Ack(true))
			held = nil
			holds(-1, 8)
		})
	}
}

// TestChannelWidePrefetchLowered: what waits for the channel beyond its new limit goes to others, as if it had never been away.
func TestChannelWidePrefetchLowered(t *testing.T) {
	t.Parallel()
	needWarren(t)
	s := at(t, sharedCluster(t, 3).Node(0))
	q := s.queue("q", nil)
	ch := s.channel(s.conn)
	s.noError("qos", ch.Qos(5, 0, true))
	for range 3 {
		_, err := ch.Consume(q, "", false, false, false, false, nil)
		s.noError("consume", err)
	}
	s.fill(q, numbered("m", 15)...)
	s.ready(q, 0)
	s.noError("qos", ch.Qos(1, 0, true))
	_, other := s.consume(q, 20)
	for range 15 - 5 - 3 { // the client has five, and one waits for each consumer, at most
		if d := s.next(other); d.Redelivered {
			t.Errorf("%q is flagged", d.Body)
		}
	}
}

// TestConsumerLost is A10 over nodes: consumers learn that their queue was deleted by a
// client of another node, or went with the node that it lived on.
func TestConsumerLost(t *testing.T) {
	t.Parallel()
	c := startCluster(t, 3)
	here, there := at(t, c.Node(0)), at(t, c.Node(1))
	wait := func(what string, cancelled <-chan string) {
		t.Helper()
		select {
		case tag := <-cancelled:
			if tag != "mine" {
				t.Errorf("%s: cancelled %q", what, tag)
			}
		case <-time.After(timeoutReply):
			t.Fatalf("%s: no cancel came", what)
		}
	}
	watch := func(q string) <-chan string {
		w := here.worker(q, "mine", 1, nil)
		return w.ch.NotifyCancel(make(chan string, 1))
	}
	q := plainQueue(here, "deleted", nil)
	cancelled := watch(q)
	plain := dialWire(t, target{url: c.Node(2).URL()})
	plain.login() // without any capability
	plain.send(method(1, 60, 20, uint16(0), q, "plain", byte(0), []byte{}))
	plain.expect(60, 21)
	_, err := there.ch.QueueDelete(q, false, false, false)
	there.noError("delete", err)
	wait("a deleted queue", cancelled)
	plain.send(method(1, 60, 30, "plain", byte(0))) // it is told nothing, and may cancel
	plain.expect(60, 31)

	_, err = there.ch.QueueDeclare("lost", false, false, false, false, nil)
	there.noError("declare", err)
	cancelled = watch("lost")
	kill(t, c.Node(1))
	start(t, c.Node(1))
	wait("a queue that went with its node", cancelled)
	if _, err := here.ch.QueueDeclare("lost", false, false, false, false, nil); err != nil {
		t.Errorf("declare again: %v", err)
	}
}

// TestSlowReader: a consumer that stops reading, without acks or without a prefetch, does
// not hurt another one of the same queue, and is sent no more than its window. What it had not read
// goes to the other.
func TestSlowReader(t *testing.T) {
	t.Parallel()
	for _, noAck := range []bool{false, true} {
		t.Run(fmt.Sprintf("noAck=%v", noAck), func(t *testing.T) {
			needWarren(t)
			c := sharedCluster(t, 3)
			n := c.Node(0)
			s := at(t, n)
			q := s.queue("q", nil)
			slow := dialWire(t, target{url: n.URL()})
			slow.login()
			var flags byte
			if noAck {
				flags = 2
			}
			slow.send(method(1, 60, 20, uint16(0), q, "slow", flags, []byte{}))
			slow.expect(60, 21) // and reads no more
			other := s.worker(q, "fast", 50, nil)
			var got atomic.Int64
			go func() {
				for d := range other.deliveries {
					got.Add(1)
					_ = d.Ack(false)
				}
			}()
			const total, size = 2000, 16 << 10
			p := at(t, c.Node(1))
			ctx, cancel := context.WithTimeout(t.Context(), timeoutReply)
			defer cancel()
			var confirms []*amqp.DeferredConfirmation
			for range total {
				d, err := p.ch.PublishWithDeferredConfirm("", q, false, false, amqp.Publishing{Body: make([]byte, size)})
				p.noError("publish", err)
				confirms = append(confirms, d)
			}
			for _, d := range confirms {
				if ok, err := d.WaitContext(ctx); err != nil || !ok {
					t.Fatalf("confirm: %v, %v", ok, err)
				}
			}
			s.ready(q, 0)
			stuck := total - int(got.Load())
			t.Logf("%d of %d messages are with the slow consumer", stuck, total)
			// Its window of 1 MiB, and what the sockets' buffers take.
			if stuck*size > 16<<20 {
				t.Errorf("%d messages of %d bytes are with a consumer that reads nothing", stuck, size)
			}
			slow.conn.Close()
			s.until("what the slow one had not read", func() bool {
				return got.Load() >= total || noAck && got.Load() > int64(total-stuck)
			})
			s.ready(q, 0)
		})
	}
}

// TestManySlowReaders has more consumers that do not read than the node keeps messages
// for: all of them together get no more than that, and one that reads goes on.
func TestManySlowReaders(t *testing.T) {
	t.Parallel()
	const connections, each, size, total, bound = 3, 16, 16 << 10, 2500, 8 << 20
	c := newCluster(t, 1, func(cfg *cluster.Config) { cfg.Args = append(cfg.Args, "--unread-max", fmt.Sprint(bound)) })
	startAll(t, c)
	n := c.Node(0)
	s := at(t, n)
	q := s.queue("q", nil)
	for range connections {
		slow := dialWire(t, target{url: n.URL()})
		defer slow.conn.Close()
		if tcp, ok := slow.conn.(*net.TCPConn); ok {
			s.noError("small buffer", tcp.SetReadBuffer(64<<10))
		}
		slow.login()
		for i := range each {
			slow.send(method(1, 60, 20, uint16(0), q, fmt.Sprint("slow", i), byte(0), []byte{}))
			slow.expect(60, 21) // and reads no more
		}
	}
	other := s.worker(q, "fast", 50, nil)
	var got atomic.Int64
	go func() {
		for d := range other.deliveries {
			got.Add(1)
			_ = d.Ack(false)
		}
	}()
	ctx, cancel := context.WithTimeout(t.Context(), timeoutReply)
	defer cancel()
	var confirms []*amqp.DeferredConfirmation
	for range total {
		d, err := s.ch.PublishWithDeferredConfirm("", q, false, false, amqp.Publishing{Body: make([]byte, size)})
		s.noError("publish", err)
		confirms = append(confirms, d)
	}
	for _, d := range confirms {
		if ok, err := d.WaitContext(ctx); err != nil || !ok {
			t.Fatalf("confirm: %v, %v", ok, err)
		}
	}
	s.ready(q, 0)
	before := got.Load()
	for then := int64(-1); before != then; before = got.Load() { // what is on its way to the one that reads arrives
		then = before
		time.Sleep(time.Second)
	}
	stuck := total - int(before)
	t.Logf("%d of %d messages are with %d consumers that read nothing", stuck, total, connections*each)
	// The bound, a few for each consumer, and what the sockets' buffers take.
	if limit := bound + connections*each*(32<<10) + connections*(6<<20); stuck*size > limit {
		t.Errorf("%d bytes are with consumers that read nothing, want %d at most", stuck*size, limit)
	}
	for range 100 {
		s.publish("", q, message("more"))
	}
	s.ready(q, 0)
	s.until("one that reads goes on", func() bool { return got.Load() >= before+100 })
}
