package process

import (
	"context"
	"fmt"
	"maps"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/warrenmq/warren/test/cluster"
)

// flavours are the kinds of queue that every rule about consumers holds for.
var flavours = []struct {
	name               string
	durable, exclusive bool
	args               amqp.Table
}{
	{name: "durable", durable: true},
	{name: "quorum", durable: true, args: amqp.Table{"x-queue-type": "quorum"}},
	{name: "transient"},
	{name: "exclusive", exclusive: true},
}

// eachFlavour runs f with a queue of each flavour that has these arguments, too.
func eachFlavour(s *session, args amqp.Table, f func(s *session, queue string)) {
	for _, fl := range flavours {
		s.Run(fl.name, func(t *testing.T) {
			sub := newSession(t, s.to)
			all := amqp.Table{}
			for _, from := range []amqp.Table{args, fl.args} {
				maps.Copy(all, from)
			}
			name := sub.name("q")
			_, err := sub.ch.QueueDeclare(name, fl.durable, false, fl.exclusive, false, all)
			sub.noError("declare", err)
			f(sub, name)
			_, err = sub.channel(sub.conn).QueueDelete(name, false, false, false)
			sub.noError("delete", err)
		})
	}
}

var singleActive = amqp.Table{"x-single-active-consumer": true}

// worker is a consumer on a channel of its own.
type worker struct {
	ch         *amqp.Channel
	deliveries <-chan amqp.Delivery
}

func (s *session) worker(queue, tag string, prefetch int, args amqp.Table) worker {
	s.Helper()
	ch := s.channel(s.conn)
	s.noError("qos", ch.Qos(prefetch, 0, false))
	deliveries, err := ch.Consume(queue, tag, false, false, false, false, args)
	s.noError("consume", err)
	return worker{ch, deliveries}
}

// idle checks that a consumer has nothing.
func (s *session) idle(w worker) {
	s.Helper()
	select {
	case d, ok := <-w.deliveries:
		s.Fatalf("a waiting consumer got %q (%v)", d.Body, ok)
	default:
	}
}

func TestSingleActiveConsumer(t *testing.T) {
	t.Parallel()
	runScenarios(t, []scenario{
		{name: "C01 one after the other", run: func(s *session) { eachFlavour(s, singleActive, singleInTurn) }},
		// A classic queue of RabbitMQ 3.10 that comes this way crashes.
		{name: "C01 what is held stays with the cancelled", warrenOnly: true, run: func(s *session) { eachFlavour(s, singleActive, singleCancelled) }},
		{name: "C02 a closed channel", run: func(s *session) { eachFlavour(s, singleActive, singleClosedChannel) }},
		{name: "C02 priority", warrenOnly: true, run: func(s *session) { eachFlavour(s, singleActive, singlePriority) }},
		{name: "C03 refusals", run: singleRefusals},
	})
}

// singleInTurn is the scenario of RabbitMQ's own suite: 5, 4 and 1 of ten messages.
func singleInTurn(s *session, q string) {
	var workers []worker
	for i := range 3 {
		workers = append(workers, s.worker(q, fmt.Sprint("c", i), 0, nil))
	}
	next := 1
	for i, n := range []int{5, 4, 1} {
		bodies := numbered("m", 10)[next-1 : next-1+n]
		s.fill(q, bodies...)
		for _, d := range s.take(workers[i].deliveries, false, bodies...) {
			s.noError("ack", d.Ack(false))
		}
		for _, w := range workers[i+1:] {
			s.idle(w)
		}
		next += n
		s.noError("cancel", workers[i].ch.Cancel(fmt.Sprint("c", i), false))
	}
	s.ready(q, 0)
}

func singleCancelled(s *session, q string) {
	one, two := s.worker(q, "one", 1, nil), s.worker(q, "two", 1, nil)
	s.fill(q, "m1", "m2", "m3")
	held := s.take(one.deliveries, false, "m1")
	s.idle(two)
	s.noError("cancel", one.ch.Cancel("one", false))
	second := s.take(two.deliveries, false, "m2")
	s.noError("ack of the cancelled", held[0].Ack(false))
	s.noError("ack", second[0].Ack(false))
	s.noError("ack", s.take(two.deliveries, false, "m3")[0].Ack(false))
	s.ready(q, 0)
}

func singleClosedChannel(s *session, q string) {
	one, two := s.worker(q, "one", 2, nil), s.worker(q, "two", 5, nil)
	s.fill(q, numbered("m", 5)...)
	s.take(one.deliveries, false, "m1", "m2")
	s.noError("close", one.ch.Close())
	s.take(two.deliveries, true, "m1", "m2")
	for i := 3; i <= 5; i++ {
		if d := s.next(two.deliveries); string(d.Body) != fmt.Sprint("m", i) {
			s.Errorf("got %q, want m%d", d.Body, i)
		}
	}
}

func singlePriority(s *session, q string) {
	low := s.worker(q, "low", 2, nil)
	s.fill(q, numbered("m", 5)...)
	held := s.take(low.deliveries, false, "m1", "m2")
	high := s.worker(q, "high", 2, amqp.Table{"x-priority": 3})
	s.noError("ack", held[0].Ack(false))
	s.ready(q, 3)
	s.idle(low)
	s.idle(high)
	s.noError("ack", held[1].Ack(false))
	s.take(high.deliveries, false, "m3", "m4")
	s.idle(low)
}

func singleRefusals(s *session) {
	q := s.queue("q", amqp.Table{"x-single-active-consumer": true, "x-queue-type": "quorum"})
	by := "quorum queues with single active consumer"
	if !s.to.warren {
		by = "" // <<"quorum">> queues in RabbitMQ 4.3
	}
	wantClosed(s, s.channel(s.conn), 405, "RESOURCE_LOCKED - cannot obtain access to locked queue '"+q+"' in vhost '/'. basic.get operations are not supported by "+by, func(ch *amqp.Channel) error {
		_, _, err := ch.Get(q, true)
		return err
	})
	if s.to.warren { // RabbitMQ 3.10 lets it have the quorum queue
		wantClosed(s, s.channel(s.conn), 403, "ACCESS_REFUSED - queue '"+q+"' in vhost '/' in exclusive use", func(ch *amqp.Channel) error {
			_, err := ch.Consume(q, "", false, true, false, false, nil)
			return err
		})
	}
	classic := s.queue("classic", singleActive)
	s.fill(classic, "m")
	s.holds(classic, "m") // get is for quorum queues only refused
	wantClosed(s, s.channel(s.conn), 406, "PRECONDITION_FAILED - inequivalent arg 'x-single-active-consumer' for queue '"+classic+"'", func(ch *amqp.Channel) error {
		return declare(ch, classic, nil)
	})
}

// line is a queue with a single active consumer under load, and everything its consumers
// got in the order in which they got it.
type line struct {
	t     *testing.T
	queue string

	mu  sync.Mutex
	got []lineDelivery
}

type lineDelivery struct {
	consumer string
	n        int
	at       time.Time
}

func (l *line) join(name string, n *cluster.Node) {
	l.t.Helper()
	s := at(l.t, n)
	w := s.worker(l.queue, name, 20, nil)
	go func() {
		for d := range w.deliveries {
			n, err := strconv.Atoi(string(d.Body))
			if err != nil {
				l.t.Errorf("body %q", d.Body)
			}
			l.mu.Lock()
			l.got = append(l.got, lineDelivery{name, n, time.Now()})
			l.mu.Unlock()
			_ = d.Ack(false) // fails when its node is dead
		}
	}()
}

func (l *line) seen() (last lineDelivery) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.got) > 0 {
		last = l.got[len(l.got)-1]
	}
	return last
}

// await waits until that consumer has got the number.
func (l *line) await(consumer string, n int) {
	l.t.Helper()
	deadline := time.Now().Add(timeoutReply)
	for {
		last := l.seen()
		if last.consumer == consumer && last.n >= n {
			return
		}
		if time.Now().After(deadline) {
			l.t.Fatalf("waited in vain for %s to get %d; last was %s with %d", consumer, n, last.consumer, last.n)
		}
		time.Sleep(time.Millisecond)
	}
}

// check looks at everything that was delivered: each consumer's part is without a gap and
// goes on where the one before stopped, or earlier with what that one held; no consumer
// gets anything after another one has followed it.
func (l *line) check(total int, turns ...string) {
	l.t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	turn, last, highest := 0, 0, 0
	for _, d := range l.got {
		if d.consumer != turns[turn] {
			if turn++; turn == len(turns) || d.consumer != turns[turn] {
				l.t.Fatalf("%s got %d after %s had %d: not its turn", d.consumer, d.n, turns[turn-1], last)
			}
			if d.n > last+1 || d.n < last-40 {
				l.t.Fatalf("%s began with %d after %d", d.consumer, d.n, last)
			}
		} else if d.n != last+1 {
			l.t.Fatalf("%s got %d after %d", d.consumer, d.n, last)
		}
		last = d.n
		highest = max(highest, d.n)
	}
	if highest != total || turn != len(turns)-1 {
		l.t.Errorf("%d of %d messages came, through %v", highest, total, turns[:turn+1])
	}
}

// TestSingleActiveFailover publishes without pause while the leader and then the node of
// the active consumer die. The order is strict all the time, and a living active consumer
// stays the active one.
func TestSingleActiveFailover(t *testing.T) {
	t.Parallel()
	c := startCluster(t, 3)
	s := at(t, c.Node(0))
	l := &line{t: t, queue: plainQueue(s, "line", amqp.Table{"x-single-active-consumer": true})}
	leader, others := leaderOf(t, c, l.queue)
	active, third := others[0], others[1]
	l.join("first", active)
	l.join("second", leader)
	l.join("third", third)
	l.join("fourth", third)

	p := at(t, third)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	total := make(chan int, 1)
	go func() {
		n := 0
		defer func() { total <- n }()
		for ctx.Err() == nil {
			confirm, err := p.ch.PublishWithDeferredConfirm("", l.queue, false, false, message(strconv.Itoa(n+1)))
			if err != nil {
				t.Errorf("publish: %v", err)
				return
			}
			n++
			if n%20 == 0 {
				select {
				case <-confirm.Done():
				case <-time.After(timeoutReply):
					t.Error("no confirm")
					return
				}
			}
		}
	}()
	l.await("first", 200)
	kill(t, leader)
	killed := time.Now()
	l.await("first", l.seen().n+200)
	t.Logf("went on %v after the leader's death", time.Since(killed))
	start(t, leader)
	kill(t, active)
	killed = time.Now()
	last := l.seen().n
	l.await("third", last+200) // the second went with the leader
	t.Logf("the next went on %v after the death of the active consumer's node", time.Since(killed))
	stop()
	n := <-total
	l.await("third", n)
	l.check(n, "first", "third")
}

// TestSingleActiveFrozenNode stops the process of the active consumer's node. It may go on
// at any moment, so the next consumer waits until no leader can deliver there any more;
// when it does go on, its consumer is one of those that wait.
func TestSingleActiveFrozenNode(t *testing.T) {
	t.Parallel()
	c := startCluster(t, 3)
	s := at(t, c.Node(0))
	q := plainQueue(s, "frozen", amqp.Table{"x-single-active-consumer": true})
	leader, others := leaderOf(t, c, q)
	frozen := others[0]
	p, first := at(t, leader), at(t, frozen)
	one := first.worker(q, "one", 2, nil)
	two := at(t, others[1]).worker(q, "two", 2, nil)
	p.fill(q, numbered("m", 6)...)
	p.take(one.deliveries, false, "m1", "m2")
	if err := frozen.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	held := p.take(two.deliveries, true, "m1", "m2")
	if took := time.Since(began); took < 2*time.Second {
		t.Errorf("the next one went on after %v, while the node could have been alive", took)
	}
	if err := frozen.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	for _, d := range held {
		p.noError("ack", d.Ack(false))
	}
	// The one that was lost has two messages that are no longer its own.
	for _, body := range []string{"m3", "m4", "m5", "m6"} {
		d := p.next(two.deliveries)
		if string(d.Body) != body {
			t.Fatalf("got %q, want %q", d.Body, body)
		}
		p.noError("ack", d.Ack(false))
	}
	p.idle(one)
	p.noError("cancel", two.ch.Cancel("two", false))
	p.until("the first one to be the active one again", func() bool {
		p.fill(q, "n")
		select {
		case d := <-one.deliveries:
			return string(d.Body) == "n"
		case <-time.After(100 * time.Millisecond):
			return false
		}
	})
}
