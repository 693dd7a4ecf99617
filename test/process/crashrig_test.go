package process

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/warrenmq/warren/failpoint"
	"github.com/warrenmq/warren/test/cluster"
)

// Times of the crash tests.
const (
	crashWait = 90 * time.Second // for all that must come after the harm
	downTime  = 700 * time.Millisecond
	cutTime   = 3 * time.Second
	expiryTTL = 300 // ms
)

func contains(data []byte, text string) bool { return bytes.Contains(data, []byte(text)) }

// crash is one run of a row.
type crash struct {
	*testing.T
	c        *cluster.Cluster
	row      crashRow
	messages int
	pass     uint64 // of the point, after it was armed

	// eachLetter: each dead letter has to be looked at for its way.
	eachLetter bool

	source  string
	targets []string
	dlx     string
	at      struct{ source, target, clients *cluster.Node }
	late    *cluster.Node // down from the start, if the harm is fillLate
	ids     struct{ source, target uint64 }

	arming sync.Once
	armed  chan struct{} // closed when the point is armed
	// died counts the messages that were rejected, or published to expire; at the harm it
	// had come to harmedAt.
	died, harmedAt atomic.Int64
	// pause is locked while nothing may be rejected.
	pause sync.RWMutex
	// again are the messages that the source delivered a second time. requeued are these, and
	// those marked as redelivered to a consumer that had lost a connection: they may have been
	// under way to it. flagged counts all that were marked. They are the consumer's until it
	// has ended.
	again, requeued map[string]bool
	flagged         int
}

func newCrash(t *testing.T, c *cluster.Cluster, row crashRow, messages, turn int) *crash {
	k := &crash{T: t, c: c, row: row, messages: messages, pass: 1, armed: make(chan struct{}), again: map[string]bool{}, requeued: map[string]bool{}}
	k.at.source, k.at.target, k.at.clients = c.Node(turn%3), c.Node((turn+1)%3), c.Node((turn+2)%3)
	switch row.harm {
	case killOne:
		k.at.target = k.at.source
	case fillLate:
		k.late, k.at.target = k.at.target, k.at.source
		k.pass = 2                        // the log has grown without the late node
		k.messages = max(messages, 4_000) // there are later passes
	}
	return k
}

func (k *crash) run() {
	begun := time.Now()
	k.declare()
	ctx, cancel := context.WithTimeout(k.Context(), crashWait)
	defer cancel()
	var work sync.WaitGroup
	defer work.Wait()
	defer cancel()
	published := make(chan error, 1)
	if k.late != nil {
		k.kill(k.late)
	}
	if k.row.harm == killAll || k.row.harm == restartAll || k.row.harm == fillLate { // the publisher has one connection
		if err := k.publish(ctx); err != nil {
			k.Fatal(err)
		}
		published <- nil
	} else {
		work.Go(func() { published <- k.publish(ctx) })
	}
	if !k.row.byItself() {
		work.Go(func() { k.reject(ctx) })
	}
	k.doHarm(ctx)
	harmed := time.Since(begun)
	select {
	case err := <-published:
		if err != nil {
			k.Fatal(err)
		}
	case <-ctx.Done():
		k.Fatal("the publisher does not come to an end")
	}
	k.awaitMoved(ctx)
	if k.row.harm == isolateSource || k.row.harm == isolateTarget {
		// What the deposed leader still says must change nothing.
		time.Sleep(time.Second)
		k.awaitMoved(ctx)
	}
	cancel()
	work.Wait()
	moved := time.Since(begun)
	for _, target := range k.targets {
		k.check(target)
	}
	k.checkKept()
	k.forget()
	k.Logf("harm at message %d of %d, over after %.1f s, all moved after %.1f s, %d marked and %d delivered again, checked after %.1f s",
		k.harmedAt.Load(), k.messages, harmed.Seconds(), moved.Seconds(), k.flagged, len(k.again), time.Since(begun).Seconds())
}

// lookedAt tells whether the way of a letter depends on its key. Otherwise it has its targets
// as it dies.
func (k *crash) lookedAt() bool {
	return k.eachLetter || k.row.point == failpoint.MoveUnrouted || k.row.point == failpoint.MoveRouteProposed
}

// steps are those that the letters pass.
func (k *crash) steps() []failpoint.Point {
	if k.lookedAt() {
		return failpoint.Steps()
	}
	return failpoint.Planned()
}

// declare makes the queues, led where the row wants them.
func (k *crash) declare() {
	k.Helper()
	k.declareOn(map[string]any{"x-queue-leader-locator": "client-local"})
}

func (k *crash) declareOn(args amqp.Table) {
	k.Helper()
	s := at(k.T, k.at.source)
	s.id = fmt.Sprintf("c%08x", time.Now().UnixNano()&0xffffffff)
	k.dlx = s.name("dlx")
	kind := "fanout"
	if k.lookedAt() {
		kind = "topic"
	}
	s.noError("declare", s.ch.ExchangeDeclare(k.dlx, kind, true, false, false, false, nil))
	for i := range k.row.targets {
		where := []*cluster.Node{k.at.target, k.at.clients, k.at.source}[i]
		name := plainQueue(at(k.T, where), s.name(fmt.Sprint("target", i)), args)
		k.targets = append(k.targets, name)
		s.bind(name, "#", k.dlx, nil)
	}
	withDLX := maps.Clone(args)
	withDLX["x-dead-letter-exchange"] = k.dlx
	switch k.row.reason {
	case expired:
		withDLX["x-message-ttl"] = expiryTTL
	case maxLen:
		withDLX["x-max-length"] = k.row.kept()
	case limited:
		withDLX["x-queue-type"], withDLX["x-delivery-limit"] = "quorum", 0
	}
	k.source = plainQueue(s, s.name("source"), withDLX)
	k.ids.source = k.led(k.source, k.at.source)
	k.ids.target = k.led(k.targets[0], k.at.target)
}

// led waits until the queue is led there and returns its id.
func (k *crash) led(queue string, by *cluster.Node) uint64 {
	k.Helper()
	ctx, cancel := context.WithTimeout(k.Context(), timeoutReply)
	defer cancel()
	var q cluster.Queue
	err := cluster.Poll(ctx, func() (bool, error) {
		var err error
		q, err = k.c.Queue(ctx, queue)
		return err == nil && q.Leader == by.Name, nil
	})
	if err != nil {
		k.Fatalf("%s is led by %q, not by %s", queue, q.Leader, by.Name)
	}
	return q.ID
}

// stopped is the node that passes the row's point.
func (k *crash) stopped() *cluster.Node {
	if k.row.atTarget() {
		return k.at.target
	}
	return k.at.source
}

// suicide tells whether the node that passes the point is all that dies.
func (k *crash) suicide() bool {
	switch k.row.harm {
	case killSource:
		return !k.row.atTarget()
	case killTarget:
		return k.row.atTarget()
	}
	return k.row.harm == killOne
}

// armPoint is called by who makes the messages die, so that enough of them are left.
func (k *crash) armPoint() {
	k.arming.Do(func() {
		defer close(k.armed)
		f := cluster.Failpoint{Point: string(k.row.point), Queue: k.ids.source, Action: "hold", At: k.pass}
		if k.row.atTarget() {
			f.Queue = k.ids.target
		}
		if k.suicide() {
			f.Action = "kill"
		}
		if err := k.stopped().Arm(k.Context(), f); err != nil {
			k.Errorf("arm %+v: %v", f, err)
		}
	})
}

// doHarm waits until the point is reached, does the row's harm and ends it.
func (k *crash) doHarm(ctx context.Context) {
	k.Helper()
	select {
	case <-k.armed:
	case <-ctx.Done():
		k.Fatal("the point was never armed")
	}
	k.awaitPoint(ctx)
	k.harmedAt.Store(k.died.Load())
	switch k.row.harm {
	case killSource:
		k.kill(k.at.source)
	case killTarget, killOne:
		k.kill(k.at.target)
	case killBoth:
		k.kill(k.at.source, k.at.target)
	case killAll:
		k.kill(k.c.Nodes()...)
	case cutApart:
		k.links(ctx, cluster.Cut, k.at.source, k.at.target)
	case isolateSource:
		k.isolate(ctx, k.at.source)
	case isolateTarget:
		k.isolate(ctx, k.at.target)
	case fillLate:
		k.fill(ctx)
		startAll(k.T, k.c)
		return
	}
	if k.stopped().Running() { // a node that is held does not stop
		if err := k.stopped().Disarm(ctx); err != nil {
			k.Errorf("disarm: %v", err)
		}
	}
	switch k.row.harm {
	case isolateSource, isolateTarget:
		return
	case cutApart:
		time.Sleep(cutTime)
		k.links(ctx, cluster.Heal, k.at.source, k.at.target)
		return
	case restartAll:
		stopAll(k.T, k.c)
	}
	time.Sleep(downTime)
	startAll(k.T, k.c)
}

// isolate cuts a node off from both others until another leader has done its work; then
// what is held there goes on, and finds the links open.
func (k *crash) isolate(ctx context.Context, node *cluster.Node) {
	k.Helper()
	for _, other := range k.c.Nodes() {
		if other != node {
			k.links(ctx, cluster.Cut, node, other)
		}
	}
	if node == k.stopped() {
		k.awaitMoved(ctx)
	} else {
		time.Sleep(cutTime)
	}
	for _, other := range k.c.Nodes() {
		if other != node {
			k.links(ctx, cluster.Heal, node, other)
		}
	}
}

func (k *crash) links(ctx context.Context, do func(context.Context, *cluster.Node, *cluster.Node) error, a, b *cluster.Node) {
	k.Helper()
	if err := do(ctx, a, b); err != nil {
		k.Fatal(err)
	}
}

// awaitPoint waits until a goroutine is held at the point, or the process has killed itself there.
func (k *crash) awaitPoint(ctx context.Context) {
	k.Helper()
	node := k.stopped()
	err := cluster.Poll(ctx, func() (bool, error) {
		if !node.Running() {
			return true, nil
		}
		list, err := node.Armed(ctx)
		return err == nil && slices.ContainsFunc(list, func(f cluster.Failpoint) bool { return f.Held }), nil
	})
	if err != nil {
		k.Fatalf("nothing came to %s on %s", k.row.point, node.Name)
	}
	if died := !node.Running(); died != k.suicide() {
		k.Fatalf("%s ended: %v", node.Name, died)
	}
}

func (k *crash) kill(nodes ...*cluster.Node) {
	for _, n := range nodes {
		kill(k.T, n)
	}
}

// awaitMoved waits until the source is empty and every target has taken all messages.
func (k *crash) awaitMoved(ctx context.Context) {
	k.Helper()
	var source cluster.Queue
	var taken []int
	err := cluster.Poll(ctx, func() (bool, error) {
		queues := map[string]cluster.Queue{}
		list, err := k.at.clients.Queues(ctx) // the others may be cut off
		for _, q := range list {
			if q.Leader != "" {
				queues[q.Name] = q
			}
		}
		var known bool
		if source, known = queues[k.source]; err != nil || !known {
			return false, nil
		}
		taken = nil
		done := source.Ready == k.row.kept() && source.Unacked == 0 && source.Outbox == 0
		for _, target := range k.targets {
			q, known := queues[target]
			if !known || q.Transferred == nil {
				return false, nil
			}
			taken = append(taken, *q.Transferred)
			done = done && *q.Transferred >= k.messages
		}
		return done, nil
	})
	if err != nil {
		k.Fatalf("not all was moved: %d ready, %d unacked, %d in the outbox, %v taken by the targets", source.Ready, source.Unacked, source.Outbox, taken)
	}
	for i, n := range taken {
		if n != k.messages {
			k.Errorf("%s has taken %d messages, want %d", k.targets[i], n, k.messages)
		}
	}
}

// check empties a target: each message must be there once, and those that were not requeued
// in the source in their order.
func (k *crash) check(target string) {
	k.Helper()
	got := k.drain(target)
	count := map[string]int{}
	last := ""
	for _, id := range got {
		count[id]++
		if k.requeued[id] {
			continue
		}
		if id < last {
			k.Errorf("%s has %s behind %s", target, id, last)
		}
		last = id
	}
	for i := range k.messages {
		id, _, _ := strings.Cut(k.body(i), " ")
		if n := count[id]; n != 1 {
			k.Errorf("%s has %s %d times", target, id, n)
		}
		delete(count, id)
	}
	for id := range count {
		k.Errorf("%s has %q, which nobody published", target, id)
	}
}

// checkKept checks what the source keeps: what was published last.
func (k *crash) checkKept() {
	k.Helper()
	var want []string
	for i := range k.row.kept() {
		want = append(want, fmt.Sprintf("%06d", k.messages+i))
	}
	if want == nil {
		return
	}
	if got := k.drain(k.source); !slices.Equal(got, want) {
		k.Errorf("the source has kept %v, want %v", got, want)
	}
}

// drain takes everything out of a queue and returns the ids in their order.
func (k *crash) drain(queue string) (ids []string) {
	k.Helper()
	s := at(k.T, k.at.clients)
	defer s.conn.Close()
	// Nothing is published any more, so an empty queue stays empty.
	for {
		q, err := s.ch.QueueDeclarePassive(queue, true, false, false, false, nil)
		s.noError("look", err)
		if q.Messages == 0 {
			return ids
		}
		ch, deliveries := s.consume(queue, 1000)
		for i := range q.Messages {
			d := s.next(deliveries)
			id, _, _ := strings.Cut(string(d.Body), " ")
			ids = append(ids, id)
			if why, died := d.Headers["x-first-death-reason"]; died && k.row.reason != "" && why != k.row.reason {
				k.Errorf("%s died of %v", id, why)
			}
			if i%200 == 199 || i == q.Messages-1 {
				s.noError("ack", d.Ack(true))
			}
		}
		s.noError("close", ch.Close())
	}
}

// forget deletes the queues, so that later rows are not slowed down by them.
func (k *crash) forget() {
	s := at(k.T, k.at.clients)
	defer s.conn.Close()
	for _, q := range append([]string{k.source}, k.targets...) {
		if _, err := s.ch.QueueDelete(q, false, false, false); err != nil {
			k.Errorf("delete %s: %v", q, err)
			return
		}
	}
	s.noError("delete", s.ch.ExchangeDelete(k.dlx, false, false))
}
