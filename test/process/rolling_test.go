package process

import (
	"context"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/warrenmq/warren/test/cluster"
)

// traveller is a publisher that goes to the next node when its own sends it away. It publishes at a
// fixed rate, each message to another queue, and notes the fate of each.
type traveller struct {
	t      *testing.T
	name   string
	urls   []string
	queues []string
	every  time.Duration

	mu        sync.Mutex
	sent      int
	confirmed map[string]bool
	open      map[string]bool // published, and the connection ended before the answer
	longest   time.Duration   // from a publish to its confirm
	gap       time.Duration   // between two confirms, with the change of nodes
	last      time.Time
	moves     []string // why connections ended
}

func (p *traveller) run(ctx context.Context) {
	for at := 0; ctx.Err() == nil; at++ {
		conn, err := amqp.DialConfig(p.urls[at%len(p.urls)], amqp.Config{Heartbeat: 10 * time.Second})
		if err != nil {
			time.Sleep(10 * time.Millisecond)
			continue
		}
		p.publish(ctx, conn)
		conn.Close()
	}
}

// publish publishes over one connection until that or ctx ends.
func (p *traveller) publish(ctx context.Context, conn *amqp.Connection) {
	closed := conn.NotifyClose(make(chan *amqp.Error, 1))
	ch, err := conn.Channel()
	if err == nil {
		err = ch.Confirm(false)
	}
	if err != nil {
		return
	}
	var waits sync.WaitGroup
	defer waits.Wait()
	tick := time.NewTicker(p.every)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case err := <-closed:
			p.mu.Lock()
			p.moves = append(p.moves, fmt.Sprint(err))
			p.mu.Unlock()
			return
		case <-tick.C:
		}
		p.mu.Lock()
		id := fmt.Sprintf("%s-%d", p.name, p.sent)
		queue := p.queues[p.sent%len(p.queues)]
		p.sent++
		p.open[id] = true
		p.mu.Unlock()
		begun := time.Now()
		confirm, err := ch.PublishWithDeferredConfirm("", queue, false, false, message(id))
		if err != nil {
			continue // the connection has ended
		}
		waits.Go(func() { p.settle(id, begun, confirm) })
	}
}

func (p *traveller) settle(id string, begun time.Time, confirm *amqp.DeferredConfirmation) {
	select {
	case <-confirm.Done():
	case <-time.After(timeoutReply):
		p.t.Errorf("no answer to %s", id)
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if !confirm.Acked() {
		return // the connection has ended, or the message was refused
	}
	now := time.Now()
	delete(p.open, id)
	p.confirmed[id] = true
	p.longest = max(p.longest, now.Sub(begun))
	if !p.last.IsZero() {
		p.gap = max(p.gap, now.Sub(p.last))
	}
	p.last = now
}

// collect takes everything out of a queue and counts copies.
func collect(t *testing.T, n *cluster.Node, queue string, copies map[string]int) {
	t.Helper()
	s := at(t, n)
	for {
		d, ok, err := s.ch.Get(queue, true)
		if err != nil {
			t.Fatal(err)
		}
		if !ok {
			return
		}
		copies[string(d.Body)]++
	}
}

// confirmMax bounds the longest confirm while nodes are restarted one by one.
func confirmMax() time.Duration {
	if os.Getenv(cluster.RaceEnv) != "" {
		return 5 * time.Second
	}
	return 2 * time.Second
}

// TestRollingRestart stops and starts each of three nodes in turn while publishers at all of them publish at a fixed rate
// to queues whose messages expire into others: nothing that was confirmed is lost, no dead letter is
// doubled, no confirm takes long, and leaders change hands by being moved and not by elections.
func TestRollingRestart(t *testing.T) {
	t.Parallel()
	const queues, publishers, every = 30, 6, 25 * time.Millisecond
	c := newCluster(t, 3)
	startAll(t, c)
	s := at(t, c.Node(0))
	var names []string
	dead := []string{"dead0", "dead1", "dead2"}
	for _, name := range dead {
		plainQueue(s, name, nil)
	}
	for i := range queues {
		names = append(names, plainQueue(at(t, c.Node(i%3)), fmt.Sprint("rolling", i), amqp.Table{
			"x-message-ttl": 200, "x-dead-letter-exchange": "", "x-dead-letter-routing-key": dead[i%len(dead)],
		}))
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var all []*traveller
	var work sync.WaitGroup
	for i := range publishers {
		urls := c.URLs()
		p := &traveller{
			t: t, name: fmt.Sprint("p", i), queues: append(slices.Clone(names[i:]), names[:i]...), every: every,
			urls: slices.Concat(urls[i%3:], urls[:i%3]), confirmed: map[string]bool{}, open: map[string]bool{},
		}
		all = append(all, p)
		work.Go(func() { p.run(ctx) })
	}
	elections := func(nodes ...*cluster.Node) (n int) {
		for _, node := range nodes {
			n += figure(t, node, "warren_leader_elections_total")
		}
		return n
	}
	for i := range 3 {
		time.Sleep(time.Second)
		others := []*cluster.Node{c.Node((i + 1) % 3), c.Node((i + 2) % 3)}
		before := elections(others...)
		begun := time.Now()
		stopNode(t, c.Node(i))
		stopped := time.Since(begun)
		time.Sleep(500 * time.Millisecond)
		held := elections(others...) - before
		start(t, c.Node(i))
		t.Logf("%s: stopped in %v, away for %v, %d elections", c.Node(i).Name, stopped, time.Since(begun), held)
		if held > 0 {
			t.Errorf("%d elections while %s was stopped: leaders were not moved", held, c.Node(i).Name)
		}
	}
	time.Sleep(time.Second)
	cancel()
	work.Wait()
	checkTravellers(t, c, all, dead, names)
}

// checkTravellers compares what publishers know with what is in the queues of dead letters, once all others are empty.
func checkTravellers(t *testing.T, c *cluster.Cluster, all []*traveller, dead, sources []string) {
	t.Helper()
	confirmed, open := map[string]bool{}, map[string]bool{}
	var longest, gap time.Duration
	sent := 0
	for _, p := range all {
		p.mu.Lock()
		maps.Copy(confirmed, p.confirmed)
		maps.Copy(open, p.open)
		longest, gap, sent = max(longest, p.longest), max(gap, p.gap), sent+p.sent
		for _, why := range p.moves {
			if !strings.Contains(why, "320") && why != "<nil>" {
				t.Errorf("%s was sent away with %s", p.name, why)
			}
		}
		p.mu.Unlock()
	}
	await(t, timeoutReply, "sources are empty", func() bool {
		qs, err := c.Node(0).Queues(t.Context())
		if err != nil {
			return false
		}
		for i := range qs {
			if slices.Contains(sources, qs[i].Name) && qs[i].Leader == c.Node(0).Name {
				if qs[i].Ready+qs[i].Unacked+qs[i].Outbox > 0 {
					return false
				}
			}
		}
		copies := 0
		for _, n := range c.Nodes() {
			qs, err := n.Queues(t.Context())
			if err != nil {
				return false
			}
			for i := range qs {
				if slices.Contains(dead, qs[i].Name) && qs[i].Leader == n.Name {
					copies += qs[i].Ready
				}
			}
		}
		return copies >= len(confirmed)
	})
	copies := map[string]int{}
	for _, name := range dead {
		collect(t, c.Node(0), name, copies)
	}
	lost, doubled := 0, 0
	for id := range confirmed {
		if copies[id] == 0 {
			lost++
		}
	}
	for _, n := range copies {
		if n > 1 {
			doubled++
		}
	}
	t.Logf("%d sent, %d confirmed, %d without an answer, of which %d arrived; longest confirm %v, longest pause of a publisher %v",
		sent, len(confirmed), len(open), len(copies)-len(confirmed)+lost, longest, gap)
	if lost > 0 || doubled > 0 {
		t.Errorf("%d lost, %d dead letters doubled", lost, doubled)
	}
	if longest > confirmMax() {
		t.Errorf("a confirm took %v", longest)
	}
}
