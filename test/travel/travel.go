// Package travel publishes to a cluster that is being harmed and judges what became of the messages.
//
// Publishers publish to queues whose messages expire into others, the dead ones; when the nodes are well again Judge compares what was
// confirmed with what is in those.
package travel

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/warrenmq/warren/test/cluster"
)

// Times of a publisher.
const (
	dialTimeout   = 3 * time.Second
	redialEvery   = 10 * time.Millisecond
	answerTimeout = 30 * time.Second // for a confirm, while the connection stands
)

// Publisher goes to the next node when its own sends it away. It publishes at a
// fixed rate, each message to another queue, and notes the fate of each.
type Publisher struct {
	Name string
	// URLs are the nodes' addresses at the moment.
	URLs func() []string
	// First is the index of the URL to begin with.
	First  int
	Queues []string
	// Every is the time between two messages.
	Every time.Duration

	mu        sync.Mutex
	sent      int
	confirmed map[string]bool
	open      map[string]bool // published, and the connection ended before the answer
	longest   time.Duration   // from a publish to its confirm
	gap       time.Duration   // between two confirms, with the change of nodes
	last      time.Time
	moves     []string // why connections ended
	silent    []string // messages without an answer
}

// Run publishes until ctx ends, and waits for the answers.
func (p *Publisher) Run(ctx context.Context) {
	p.confirmed, p.open = map[string]bool{}, map[string]bool{}
	for at := p.First; ctx.Err() == nil; at++ {
		urls := p.URLs()
		conn, err := amqp.DialConfig(urls[at%len(urls)], amqp.Config{Heartbeat: 10 * time.Second, Dial: amqp.DefaultDial(dialTimeout)})
		if err != nil {
			time.Sleep(redialEvery)
			continue
		}
		p.publish(ctx, conn)
		_ = conn.Close() // it may have ended
	}
}

// publish publishes over one connection until that or ctx ends.
func (p *Publisher) publish(ctx context.Context, conn *amqp.Connection) {
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
	tick := time.NewTicker(p.Every)
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
		id := fmt.Sprintf("%s-%d", p.Name, p.sent)
		queue := p.Queues[p.sent%len(p.Queues)]
		p.sent++
		p.open[id] = true
		p.mu.Unlock()
		begun := time.Now()
		m := amqp.Publishing{Body: []byte(id), DeliveryMode: amqp.Persistent}
		confirm, err := ch.PublishWithDeferredConfirmWithContext(ctx, "", queue, false, false, m)
		if err != nil {
			continue // the connection has ended
		}
		waits.Go(func() { p.settle(id, begun, confirm) })
	}
}

func (p *Publisher) settle(id string, begun time.Time, confirm *amqp.DeferredConfirmation) {
	select {
	case <-confirm.Done():
	case <-time.After(answerTimeout):
		p.mu.Lock()
		defer p.mu.Unlock()
		p.silent = append(p.silent, id)
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

// Verdict is what became of the messages of all publishers.
type Verdict struct {
	Sent, Confirmed int
	// Open had no answer before their connection ended; Arrived of them are there.
	Open, Arrived int
	// Lost were confirmed and are in none of the dead queues; Doubled are there more than once.
	Lost, Doubled int
	// Longest is the time from a publish to its confirm, Gap between two confirms of one publisher.
	Longest, Gap time.Duration
	// Moves are why connections ended. Silent had no answer though their connection stood.
	Moves, Silent []string
}

// String sums it up.
func (v Verdict) String() string {
	return fmt.Sprintf("%d sent, %d confirmed, %d without an answer, of which %d arrived; %d lost, %d doubled; longest confirm %v, longest pause of a publisher %v",
		v.Sent, v.Confirmed, v.Open, v.Arrived, v.Lost, v.Doubled, v.Longest.Round(time.Millisecond), v.Gap.Round(time.Millisecond))
}

// Judge waits until the source queues are empty and takes what is in the dead ones, through the node at url. The publishers must have ended.
func Judge(ctx context.Context, c *cluster.Cluster, url string, all []*Publisher, sources, dead []string) (v Verdict, err error) {
	confirmed := map[string]bool{}
	for _, p := range all {
		maps.Copy(confirmed, p.confirmed)
		v.Sent, v.Open = v.Sent+p.sent, v.Open+len(p.open)
		v.Longest, v.Gap = max(v.Longest, p.longest), max(v.Gap, p.gap)
		v.Moves, v.Silent = append(v.Moves, p.moves...), append(v.Silent, p.silent...)
	}
	v.Confirmed = len(confirmed)
	err = cluster.Poll(ctx, func() (bool, error) { return settled(ctx, c, sources, dead, len(confirmed)), nil })
	late := err // what is there is counted all the same
	copies, err := Collect(url, dead...)
	if err != nil {
		return v, err
	}
	for id := range confirmed {
		if copies[id] == 0 {
			v.Lost++
		}
	}
	for _, n := range copies {
		if n > 1 {
			v.Doubled++
		}
	}
	v.Arrived = len(copies) - (v.Confirmed - v.Lost)
	if late != nil {
		late = fmt.Errorf("the queues did not settle: %w", late)
	}
	return v, late
}

// settled tells whether the leaders of the sources have nothing left and those of the dead ones at least n messages.
func settled(ctx context.Context, c *cluster.Cluster, sources, dead []string, n int) bool {
	led := map[string]bool{}
	ready := 0
	for _, node := range c.Nodes() {
		qs, err := node.Queues(ctx)
		if err != nil {
			return false
		}
		for i := range qs {
			q := &qs[i]
			if q.Leader != node.Name {
				continue
			}
			led[q.Name] = true
			if slices.Contains(sources, q.Name) && q.Ready+q.Unacked+q.Outbox > 0 {
				return false
			}
			if slices.Contains(dead, q.Name) {
				ready += q.Ready
			}
		}
	}
	for _, name := range slices.Concat(sources, dead) {
		if !led[name] {
			return false
		}
	}
	return ready >= n
}

// Collect takes everything out of queues and counts copies, by body.
func Collect(url string, queues ...string) (copies map[string]int, err error) {
	conn, err := amqp.DialConfig(url, amqp.Config{Heartbeat: 10 * time.Second, Dial: amqp.DefaultDial(dialTimeout)})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, conn.Close()) }()
	ch, err := conn.Channel()
	if err != nil {
		return nil, err
	}
	copies = map[string]int{}
	for _, queue := range queues {
		for {
			d, ok, err := ch.Get(queue, true)
			if err != nil {
				return nil, fmt.Errorf("get from %s: %w", queue, err)
			}
			if !ok {
				break
			}
			copies[string(d.Body)]++
		}
	}
	return copies, nil
}
