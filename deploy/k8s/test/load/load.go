// Package load publishes and consumes through one address and keeps a ledger of what became of each message.
//
// Publishers send numbered messages to the queue "work" with confirms, and send again what is not confirmed when their
// connection ends. Workers take them: one in five is rejected and so dead-lettered to the queue "dead", the others are acked.
// Sinks take the dead letters.
package load

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strconv"
	"strings"
	"sync"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

const (
	queueWork = "work"
	queueDead = "dead"
	// rejectOneIn is how many messages there are for each that is rejected.
	rejectOneIn = 5
	prefetch    = 50
	window      = 100 // unconfirmed messages of a publisher
	redial      = 200 * time.Millisecond
	dialWait    = 5 * time.Second
	confirmWait = 60 * time.Second // a confirm that takes longer ends the connection
	vainMax     = 10               // failed dials that are noted of each client
)

// Config says where and how much.
type Config struct {
	URL        string
	TLS        *tls.Config // for amqps
	Publishers int
	Rate       int // messages a second of all publishers
	Workers    int
}

// message is the ledger's line of one number.
type message struct {
	first     time.Time // when it was first published
	last      time.Time // and last
	tries     int
	confirmed bool
	acked     int // deliveries to workers that were acked and not flagged as redelivered
	rejected  bool
	worked    bool
	dead      int // deliveries to sinks, those left out that were flagged as redelivered
	deadSeen  bool
}

// Wait is the longest time from a message's first publish to its confirm, and where it went.
type Wait struct {
	Total time.Duration
	Begun time.Time     // when it was first sent: to be looked for in the nodes' logs
	Tries int           // how often the message was sent
	Last  time.Duration // from when it was last sent
	Dial  time.Duration // what it took to open the connection on which it was sent last, and the channel
	Vain  []string      // why the dials before that one failed, and what each took
}

// LogValue shows the parts of a wait.
func (w Wait) LogValue() slog.Value {
	return slog.GroupValue(slog.Int64("ms", w.Total.Milliseconds()), slog.String("from", w.Begun.UTC().Format("15:04:05.000")),
		slog.Int("tries", w.Tries), slog.Int64("last-ms", w.Last.Milliseconds()), slog.Int64("dial-ms", w.Dial.Milliseconds()), slog.Any("vain", w.Vain))
}

// Load is a running load.
type Load struct {
	cfg    Config
	ended  <-chan struct{}    // the caller has given up
	cancel context.CancelFunc // ends publishers
	quit   context.CancelFunc // ends consumers
	pubs   sync.WaitGroup
	subs   sync.WaitGroup

	mu       sync.Mutex
	messages []message
	longest  Wait
	links    int // connections that ended by themselves
	problems []error
}

// Start declares the queues and starts all clients.
func Start(ctx context.Context, cfg Config) (*Load, error) {
	l := &Load{cfg: cfg, ended: ctx.Done()}
	if err := declare(cfg); err != nil {
		return nil, err
	}
	publish, cancel := context.WithCancel(ctx)
	consume, quit := context.WithCancel(ctx)
	l.cancel, l.quit = cancel, quit
	for range cfg.Publishers {
		l.pubs.Go(func() { l.publisher(publish, consume) })
	}
	for range cfg.Workers {
		l.subs.Go(func() { l.consumer(consume, queueWork, l.work) })
	}
	l.subs.Go(func() { l.consumer(consume, queueDead, l.sink) })
	return l, nil
}

func declare(cfg Config) error {
	conn, err := dial(cfg)
	if err != nil {
		return err
	}
	defer conn.Close()
	ch, err := conn.Channel()
	if err != nil {
		return err
	}
	for name, args := range map[string]amqp.Table{
		queueDead: {"x-queue-type": "quorum"},
		queueWork: {"x-queue-type": "quorum", "x-dead-letter-exchange": "", "x-dead-letter-routing-key": queueDead},
	} {
		if _, err := ch.QueueDeclare(name, true, false, false, false, args); err != nil {
			return err
		}
	}
	return nil
}

func dial(cfg Config) (*amqp.Connection, error) {
	return amqp.DialConfig(cfg.URL, amqp.Config{
		TLSClientConfig: cfg.TLS,
		Heartbeat:       10 * time.Second,
		Dial:            func(network, addr string) (net.Conn, error) { return net.DialTimeout(network, addr, dialWait) },
	})
}

// dials is what it took one client to get its connection.
type dials struct {
	took time.Duration
	vain []string
}

// session dials, and runs use if it gets a channel. It notes ends that ctx did not cause, and in d what dialling took.
func (l *Load) session(ctx context.Context, d *dials, use func(conn *amqp.Connection, ch *amqp.Channel)) {
	begun := time.Now()
	conn, err := dial(l.cfg)
	if err == nil {
		var ch *amqp.Channel
		if ch, err = conn.Channel(); err == nil {
			d.took = time.Since(begun)
			use(conn, ch)
			d.vain = nil
			if ctx.Err() == nil {
				l.note(func() { l.links++ })
			}
		}
		conn.Close()
	}
	if err != nil && len(d.vain) < vainMax {
		d.vain = append(d.vain, fmt.Sprintf("%v after %d ms", err, time.Since(begun).Milliseconds()))
	}
	select {
	case <-ctx.Done():
	case <-time.After(redial):
	}
}

func (l *Load) note(change func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	change()
}

// publisher publishes new messages until ctx ends, and goes on with what is not confirmed until all ends.
func (l *Load) publisher(ctx, all context.Context) {
	var todo []int
	var d dials
	for (ctx.Err() == nil || len(todo) > 0) && all.Err() == nil {
		l.session(all, &d, func(conn *amqp.Connection, ch *amqp.Channel) { todo = l.publish(ctx, all, conn, ch, todo, d) })
	}
}

type sent struct {
	number  int
	confirm *amqp.DeferredConfirmation
}

// publish sends todo, then new messages, and returns what is not confirmed when the connection ends, which it took d to get.
func (l *Load) publish(ctx, all context.Context, conn *amqp.Connection, ch *amqp.Channel, todo []int, d dials) (left []int) {
	if ch.Confirm(false) != nil {
		return todo
	}
	pending := make(chan sent, window)
	failed := make(chan []int, 1)
	go func() {
		var list []int
		for s := range pending {
			if !l.confirmed(all, s, d) {
				list = append(list, s.number)
				conn.Close()
			}
		}
		failed <- list
	}()
	interval := time.Second * time.Duration(l.cfg.Publishers) / time.Duration(l.cfg.Rate)
	for due := time.Now(); !conn.IsClosed(); due = due.Add(interval) {
		number := -1
		switch {
		case len(todo) > 0:
			number, todo = todo[0], todo[1:]
		case ctx.Err() != nil:
		default:
			time.Sleep(time.Until(due))
			l.note(func() { l.messages = append(l.messages, message{first: time.Now()}); number = len(l.messages) - 1 })
		}
		if number < 0 {
			break
		}
		l.note(func() {
			m := &l.messages[number]
			m.tries, m.last = m.tries+1, time.Now()
		})
		confirm, err := ch.PublishWithDeferredConfirmWithContext(all, "", queueWork, false, false, amqp.Publishing{
			DeliveryMode: amqp.Persistent, MessageId: strconv.Itoa(number), Body: []byte(strings.Repeat("x", 256)),
		})
		pending <- sent{number, confirm}
		if err != nil {
			break
		}
	}
	close(pending)
	return append(<-failed, todo...)
}

// confirmed waits for a confirm. A message that the broker refused is not confirmed.
func (l *Load) confirmed(ctx context.Context, s sent, d dials) bool {
	if s.confirm == nil {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, confirmWait)
	defer cancel()
	ok, err := s.confirm.WaitContext(ctx)
	if err != nil || !ok {
		return false
	}
	l.note(func() {
		m := &l.messages[s.number]
		m.confirmed = true
		if w := (Wait{Total: time.Since(m.first), Begun: m.first, Tries: m.tries, Last: time.Since(m.last), Dial: d.took, Vain: d.vain}); w.Total > l.longest.Total {
			l.longest = w
		}
	})
	return true
}

// consumer takes a queue's messages until ctx ends.
func (l *Load) consumer(ctx context.Context, queue string, handle func(number int, d amqp.Delivery)) {
	var d dials
	for ctx.Err() == nil {
		l.session(ctx, &d, func(_ *amqp.Connection, ch *amqp.Channel) {
			if ch.Qos(prefetch, 0, false) != nil {
				return
			}
			deliveries, err := ch.Consume(queue, "", false, false, false, false, nil)
			for err == nil {
				select {
				case <-ctx.Done():
					return
				case d, ok := <-deliveries:
					if !ok {
						return
					}
					number, err := strconv.Atoi(d.MessageId)
					if err != nil {
						l.note(func() { l.problems = append(l.problems, fmt.Errorf("%s: message %q", queue, d.MessageId)) })
						return
					}
					handle(number, d)
				}
			}
		})
	}
}

func (l *Load) work(number int, d amqp.Delivery) {
	reject := number%rejectOneIn == 0
	l.note(func() {
		m := &l.messages[number]
		m.worked = true
		m.rejected = reject
		if !d.Redelivered {
			m.acked++
		}
	})
	if reject {
		d.Reject(false)
	} else {
		d.Ack(false)
	}
}

func (l *Load) sink(number int, d amqp.Delivery) {
	l.note(func() {
		m := &l.messages[number]
		m.deadSeen = true
		if !d.Redelivered {
			m.dead++
		}
	})
	d.Ack(false)
}

// Reset forgets the longest wait and returns it, for one scenario after the other.
func (l *Load) Reset() (longest Wait, links int) {
	l.note(func() { longest, links, l.longest, l.links = l.longest, l.links, Wait{}, 0 })
	return longest, links
}

// Result is the sum of a ledger.
type Result struct {
	Published, Again int // messages, and those of them that were sent more than once
	Confirmed        int
	DeadLettered     int // messages that sinks have seen
	Lost             int // confirmed, and no worker, or after a rejection no sink, has seen them
	DoubledDead      int // dead letters that came more often, not flagged as redelivered, than they were published
	DoubledWork      int // the same for workers
	FalseDead        int // dead letters of messages that were not rejected
	Problems         []error
}

// Err is what is wrong with the result, nil if nothing.
func (r Result) Err() error {
	if r.Lost+r.DoubledDead+r.DoubledWork+r.FalseDead > 0 || r.Confirmed != r.Published {
		r.Problems = append(r.Problems, fmt.Errorf("%+v", r))
	}
	return errors.Join(r.Problems...)
}

// Finish stops publishing, waits until all messages have arrived, but at most for limit or until Start's context ends, and
// stops the rest.
func (l *Load) Finish(limit time.Duration) Result {
	l.cancel()
	end := time.Now().Add(limit)
	for time.Now().Before(end) {
		if r := l.sum(); r.Lost == 0 && r.Confirmed == r.Published {
			time.Sleep(2 * time.Second) // what comes twice comes late
			break
		}
		select {
		case <-l.ended:
			end = time.Time{}
		case <-time.After(100 * time.Millisecond):
		}
	}
	l.quit()
	l.pubs.Wait()
	l.subs.Wait()
	return l.sum()
}

func (l *Load) sum() (r Result) {
	l.note(func() {
		r.Problems = append(r.Problems, l.problems...)
		for number, m := range l.messages {
			r.Published++
			if m.tries > 1 {
				r.Again++
			}
			if m.confirmed {
				r.Confirmed++
			}
			if m.deadSeen {
				r.DeadLettered++
			}
			if rejected := number%rejectOneIn == 0; m.confirmed && (!m.worked || rejected && !m.deadSeen) {
				r.Lost++
			} else if m.deadSeen && !rejected {
				r.FalseDead++
			}
			if m.dead > m.tries {
				r.DoubledDead++
			}
			if m.acked > m.tries {
				r.DoubledWork++
			}
		}
	})
	return r
}
