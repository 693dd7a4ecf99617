package process

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/warrenmq/warren/client"
	"github.com/warrenmq/warren/test/cluster"
)

// Consumers that come and go by chance: as many at a time, on so many queues, for so long. The variables set a seed and a longer
// time; the test prints the seed. With an odd one nodes are killed.
const (
	goingSeedEnv, goingTimeEnv = "WARREN_TEST_GOING_SEED", "WARREN_TEST_GOING_TIME"

	goingTime       = 5 * time.Second
	goingConsumers  = 5
	goingGRPC       = 2
	goingPublishers = 3
	goingPause      = 4 * time.Millisecond // between two messages of a publisher
	goingStuck      = 15 * time.Second     // without progress at the end
)

// goingQueues are the arguments of the queues.
var goingQueues = []amqp.Table{
	nil,
	{"x-queue-type": "quorum", "x-delivery-limit": -1},
	{"x-single-active-consumer": true},
}

// sighting is what clients have seen of one message.
type sighting struct {
	confirmed, acked, gone bool
	unflagged, all         int
}

// goings is one run: what was published, and what consumers saw.
type goings struct {
	*testing.T
	c      *cluster.Cluster
	queues []string
	kills  bool

	channels atomic.Int64 // numbers publishing channels
	ending   chan struct{}
	over     chan struct{}
	progress atomic.Int64

	mu   sync.Mutex
	seen map[string]*sighting
	open map[string]int // consumers by queue, at the end
}

func (g *goings) of(body string) *sighting {
	s := g.seen[body]
	if s == nil {
		s = &sighting{}
		g.seen[body] = s
	}
	return s
}

// saw notes a delivery to who, if that is known to have got it just now, and checks what does not depend on its channel.
func (g *goings) saw(who, body string, redelivered bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	s := g.of(body)
	s.all++
	if s.gone && who != "" {
		g.Errorf("%s came to %s after it was acked", body, who)
	}
	if redelivered {
		return
	}
	if s.unflagged++; s.unflagged > 1 {
		g.Errorf("%s was delivered %d times without the flag", body, s.unflagged)
	}
}

func (g *goings) acks(bodies ...string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, b := range bodies {
		g.of(b).acked = true
	}
	g.progress.Add(int64(len(bodies)))
}

// publish sends numbered messages by one channel after the other until the end.
func (g *goings) publish(r *rand.Rand) {
	for {
		select {
		case <-g.ending:
			return
		default:
		}
		conn, err := g.dial(r, nil)
		if err != nil {
			time.Sleep(20 * time.Millisecond)
			continue
		}
		g.publishBy(r, conn)
		conn.Close()
	}
}

func (g *goings) publishBy(r *rand.Rand, conn *amqp.Connection) {
	ch, err := conn.Channel()
	if err != nil || ch.Confirm(false) != nil {
		return
	}
	name := fmt.Sprint("p", g.channels.Add(1))
	var wait sync.WaitGroup
	defer wait.Wait()
	for i := 0; r.IntN(400) > 0; i++ {
		select {
		case <-g.ending:
			return
		case <-time.After(goingPause):
		}
		q := r.IntN(len(g.queues))
		body := fmt.Sprintf("%d/%s/%d", q, name, i)
		conf, err := ch.PublishWithDeferredConfirm("", g.queues[q], false, false, amqp.Publishing{Body: []byte(body), DeliveryMode: amqp.Persistent})
		if err != nil {
			return
		}
		wait.Go(func() {
			ctx, cancel := context.WithTimeout(g.Context(), timeoutReply)
			defer cancel()
			if ok, err := conf.WaitContext(ctx); ok && err == nil {
				g.mu.Lock()
				g.of(body).confirmed = true
				g.mu.Unlock()
			}
		})
	}
}

// dial connects to a node by chance.
func (g *goings) dial(r *rand.Rand, socket *net.Conn) (*amqp.Connection, error) {
	return connectWith(g.c.Node(r.IntN(3)).URL(), amqp.Config{Heartbeat: 10 * time.Second, Dial: func(network, addr string) (net.Conn, error) {
		conn, err := net.DialTimeout(network, addr, time.Second)
		if socket != nil && err == nil {
			*socket = conn
		}
		return conn, err
	}})
}

// subscribe consumes over gRPC, now and then at another node.
func (g *goings) subscribe(r *rand.Rand, cl *client.Client) {
	for g.Context().Err() == nil {
		select {
		case <-g.ending:
			return
		default:
		}
		ctx, cancel := context.WithTimeout(g.Context(), time.Duration(20+r.IntN(600))*time.Millisecond)
		q, last := g.queues[r.IntN(len(g.queues))], map[string]int{}
		err := cl.Consume(ctx, q, client.ConsumerConfig{Prefetch: 1 + r.IntN(8), Priority: int32(r.IntN(3))}, func(_ context.Context, d *client.Delivery) error {
			body := string(d.Body)
			g.saw("a stream", body, d.Redelivered)
			from, n := parted(body)
			if l, ok := last[from]; ok && n < l && !d.Redelivered && !g.kills {
				g.Errorf("a stream got %s without the flag, after number %d of the same channel", body, l)
			}
			last[from] = max(last[from], n)
			switch r.IntN(8) {
			case 0:
				return d.Requeue()
			case 1:
				return d.Release()
			}
			g.acks(body)
			return nil
		})
		cancel()
		if err != nil && !errors.Is(err, context.Canceled) && !g.kills {
			g.Errorf("consume %s: %v", q, err)
		}
	}
}

// harm moves leaders, and kills nodes if it may.
func (g *goings) harm(r *rand.Rand) {
	for {
		select {
		case <-g.ending:
			return
		case <-time.After(time.Duration(100+r.IntN(900)) * time.Millisecond):
		}
		n := g.c.Node(r.IntN(3))
		if g.kills && r.IntN(2) == 0 {
			err := n.Kill()
			time.Sleep(time.Duration(100+r.IntN(1500)) * time.Millisecond)
			if err = errors.Join(err, started(g.T, n)); err != nil {
				g.Error(err)
				return
			}
			continue
		}
		ctl(g.T, n, "transfer_leadership", "-q", g.queues[r.IntN(len(g.queues))], g.c.Node(r.IntN(3)).Name)
	}
}

// left counts the confirmed messages that nobody has acked.
func (g *goings) left() (bodies []string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for b, s := range g.seen {
		if s.confirmed && !s.acked {
			bodies = append(bodies, b)
		}
	}
	slices.Sort(bodies)
	return bodies
}

// empties waits until everything is acked. A queue that has consumers needs no other; who has none gets one.
func (g *goings) empties() {
	had, since := g.progress.Load(), time.Now()
	swept := map[string]bool{}
	for len(g.left()) > 0 {
		if now := g.progress.Load(); now != had {
			had, since = now, time.Now()
		}
		stood := time.Since(since)
		for _, q := range g.queues {
			g.mu.Lock()
			alone := g.open[q] == 0
			g.mu.Unlock()
			if stood > 2*time.Second && alone && !swept[q] {
				swept[q] = true
				go g.sweep(q)
			}
		}
		if stood > goingStuck {
			left := g.left()
			g.mu.Lock()
			g.Errorf("%d messages are stuck: %v; consumers %v", len(left), left[:min(len(left), 20)], g.open)
			g.mu.Unlock()
			for _, q := range g.queues {
				st, err := g.c.Queue(g.Context(), q)
				g.Logf("%+v %v", st, err)
			}
			return
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// cleared waits until nothing is in the queues. An ack may have got lost with its connection.
func (g *goings) cleared(s *session) {
	for i, q := range g.queues {
		ch, ds := s.consume(q, 100)
		begun := time.Now()
		for {
			st, err := g.c.Queue(g.Context(), q)
			if err == nil && st.Ready == 0 && st.Unacked == 0 {
				break
			}
			if time.Since(begun) > goingStuck {
				g.Errorf("queue %d is left with %+v %v", i, st, err)
				break
			}
			select {
			case d := <-ds:
				g.saw("the end", string(d.Body), d.Redelivered)
				_ = d.Ack(false)
			case <-time.After(20 * time.Millisecond):
			}
		}
		ch.Close()
	}
}

func (g *goings) sweep(q string) {
	conn, err := connect(g.c.Node(0).URL())
	if err != nil {
		return
	}
	defer conn.Close()
	ch, err := conn.Channel()
	if err != nil {
		return
	}
	ds, err := ch.Consume(q, "", false, false, false, false, nil)
	if err != nil {
		return
	}
	for {
		select {
		case <-g.over:
			return
		case d, ok := <-ds:
			if !ok {
				return
			}
			g.saw("the end", string(d.Body), d.Redelivered)
			g.acks(string(d.Body))
			_ = d.Ack(false)
		}
	}
}

// TestConsumersComeAndGo: whatever consumers do beside each other, what a channel gets is in order or flagged, no delivery but the first
// is without the flag, nobody has more than its prefetch, and nothing is lost or stays where somebody could take it.
func TestConsumersComeAndGo(t *testing.T) {
	t.Parallel()
	needWarren(t)
	seed, long := rand.Uint64(), goingTime
	if s, err := strconv.ParseUint(os.Getenv(goingSeedEnv), 10, 64); err == nil {
		seed = s
	}
	if d, err := time.ParseDuration(os.Getenv(goingTimeEnv)); err == nil {
		long = d
	}
	t.Logf("seed %d", seed)
	c := startCluster(t, 3)
	g := &goings{
		T: t, c: c, kills: seed%2 == 1, ending: make(chan struct{}), over: make(chan struct{}),
		seen: map[string]*sighting{}, open: map[string]int{},
	}
	s := at(t, c.Node(0))
	for i, args := range goingQueues {
		g.queues = append(g.queues, plainQueue(s, fmt.Sprint("going", i), args))
	}
	var all, publishers sync.WaitGroup
	next := uint64(0)
	chance := func() *rand.Rand { next++; return rand.New(rand.NewPCG(seed, next)) }
	for range goingPublishers {
		r := chance()
		publishers.Go(func() { g.publish(r) })
	}
	for i := range goingConsumers {
		w := &wanderer{goings: g, r: chance(), name: fmt.Sprint("w", i)}
		all.Go(w.run)
	}
	for i := range goingGRPC {
		r, cl := chance(), goClientAt(t, c, c.Node(i))
		publishers.Go(func() { g.subscribe(r, cl) })
	}
	r := chance()
	publishers.Go(func() { g.harm(r) })
	time.Sleep(long)
	close(g.ending)
	publishers.Wait()
	g.empties()
	close(g.over)
	all.Wait()
	g.cleared(at(t, c.Node(0)))
	g.mu.Lock()
	defer g.mu.Unlock()
	t.Logf("%d messages, %d acked", len(g.seen), g.progress.Load())
}
