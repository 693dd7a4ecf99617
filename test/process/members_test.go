package process

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/warrenmq/warren/test/cluster"
)

// replica adds a replica of a queue on a node, or deletes the one it has, and waits for the end of the change if it can. It
// returns the status, 0 if the node that was asked does not answer.
func replica(t *testing.T, n *cluster.Node, method, queue, node string) (status int, answer string) {
	t.Helper()
	path := "add"
	if method == http.MethodDelete {
		path = "delete"
	}
	req, err := http.NewRequestWithContext(t.Context(), method, n.HTTP()+"/api/queues/quorum/%2F/"+queue+"/replicas/"+path+"?for=20", strings.NewReader(fmt.Sprintf(`{"node":%q}`, node)))
	if err != nil {
		return 0, err.Error()
	}
	req.SetBasicAuth("guest", "guest")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, err.Error()
	}
	defer resp.Body.Close()
	body, _ := io.ReadAll(resp.Body)
	return resp.StatusCode, string(body)
}

// members are the nodes that have a replica of a queue, as n knows it, in their order by name.
func members(t *testing.T, n *cluster.Node, queue string) []string {
	t.Helper()
	queues, err := patiently(func() ([]cluster.Queue, error) { return n.Queues(t.Context()) })
	if err != nil {
		return nil
	}
	for _, q := range queues {
		if q.VHost == "/" && q.Name == queue {
			return slices.Sorted(slices.Values(q.Members))
		}
	}
	return nil
}

// hasReplica tells whether a running node has a log of a queue.
func hasReplica(t *testing.T, n *cluster.Node, id uint64) bool {
	t.Helper()
	code, _, failure := inspect(t, n, "queue", strconv.FormatUint(id, 10))
	if code != 0 && !strings.Contains(failure, "no replica of this queue here") {
		t.Logf("inspect of %s: %d, %s", n.Name, code, failure)
		return true // it could not be read just now
	}
	return code == 0
}

// books are those of messages that are published to one queue and rejected into another.
type books struct {
	t            *testing.T
	source, dead string

	mu        sync.Mutex
	confirmed map[int]bool
	rejected  map[int]bool
	acked     map[int]bool
	sent      atomic.Int64
}

// work publishes and consumes through nodes that live, until ctx ends; each third message is rejected.
func (b *books) work(ctx context.Context, publisher, consumer *cluster.Node) (wait func()) {
	b.t.Helper()
	open := func(n *cluster.Node) (*amqp.Connection, *amqp.Channel) {
		conn, err := connect(n.URL())
		if err != nil {
			b.t.Fatal(err)
		}
		b.t.Cleanup(func() { conn.Close() })
		ch, err := conn.Channel()
		if err != nil {
			b.t.Fatal(err)
		}
		return conn, ch
	}
	var all sync.WaitGroup
	_, out := open(publisher)
	if err := out.Confirm(false); err != nil {
		b.t.Fatal(err)
	}
	confirms := out.NotifyPublish(make(chan amqp.Confirmation, 1<<16))
	all.Go(func() {
		for c := range confirms {
			if !c.Ack {
				b.t.Errorf("message %d is refused", c.DeliveryTag)
			}
			b.mu.Lock()
			b.confirmed[int(c.DeliveryTag)] = true
			b.mu.Unlock()
		}
	})
	last := make(chan struct{}) // is out
	all.Go(func() {
		defer out.Close()
		for n := 1; ctx.Err() == nil; n++ {
			if err := out.Publish("", b.source, false, false, message(strconv.Itoa(n))); err != nil {
				b.t.Errorf("publish: %v", err)
				break
			}
			b.sent.Store(int64(n))
			time.Sleep(3 * time.Millisecond)
		}
		close(last)
		for end := time.Now().Add(timeoutReply); time.Now().Before(end) && !b.allConfirmed(); time.Sleep(10 * time.Millisecond) {
		}
	})
	conn, in := open(consumer)
	if err := in.Qos(40, 0, false); err != nil {
		b.t.Fatal(err)
	}
	deliveries, err := in.Consume(b.source, "", false, false, false, false, nil)
	if err != nil {
		b.t.Fatal(err)
	}
	all.Go(func() {
		for d := range deliveries {
			n, _ := strconv.Atoi(string(d.Body))
			b.mu.Lock()
			if n%3 == 0 {
				b.rejected[n] = true
				_ = d.Reject(false)
			} else {
				b.acked[n] = true
				_ = d.Ack(false)
			}
			b.mu.Unlock()
		}
	})
	return func() {
		<-last
		for end := time.Now().Add(timeoutReply); time.Now().Before(end) && !b.allSeen(); time.Sleep(10 * time.Millisecond) {
		}
		conn.Close()
		all.Wait()
	}
}

func (b *books) allConfirmed() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.confirmed) == int(b.sent.Load())
}

func (b *books) allSeen() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.confirmed) == int(b.sent.Load()) && len(b.rejected)+len(b.acked) >= len(b.confirmed)
}

// check looks at what is in the dead-letter queue: each message that was rejected, once.
func (b *books) check(n *cluster.Node) {
	b.t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.confirmed) != int(b.sent.Load()) {
		b.t.Errorf("%d of %d are confirmed", len(b.confirmed), b.sent.Load())
	}
	want := 0
	for m := range b.confirmed {
		if !b.rejected[m] && !b.acked[m] {
			b.t.Errorf("message %d was confirmed and never delivered", m)
		}
		if m%3 == 0 {
			want++
		}
	}
	s := at(b.t, n)
	s.ready(b.dead, want)
	got := map[string]int{}
	for _, body := range s.drainMany(b.dead) {
		got[body]++
	}
	for m := range b.rejected {
		if got[strconv.Itoa(m)] != 1 {
			b.t.Errorf("dead letter %d is there %d times", m, got[strconv.Itoa(m)])
		}
	}
	if len(got) != len(b.rejected) {
		b.t.Errorf("%d dead letters, %d were rejected", len(got), len(b.rejected))
	}
	b.t.Logf("%d messages, %d of them dead", len(b.confirmed), len(got))
}

// TestMembersMoveUnderLoad moves the replicas of a queue and of its dead-letter queue from node to node, while messages are published,
// consumed and rejected and nodes are killed, one at a time, leaders above all. Nothing is lost or twice; who is no member any more
// has nothing left, and the members have the same.
func TestMembersMoveUnderLoad(t *testing.T) {
	t.Parallel()
	const rounds = 3
	c := startCluster(t, 5)
	untilFlags(t, c, "enabled enabled")
	s := at(t, c.Node(0))
	plainQueue(s, "dead", amqp.Table{"x-queue-type": "quorum"})
	plainQueue(s, "source", amqp.Table{
		"x-queue-type": "quorum", "x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead",
		"x-dead-letter-strategy": "at-least-once", "x-overflow": "reject-publish", "x-delivery-limit": int32(-1),
	})
	b := &books{t: t, source: "source", dead: "dead", confirmed: map[int]bool{}, rejected: map[int]bool{}, acked: map[int]bool{}}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	wait := b.work(ctx, c.Node(0), c.Node(1))
	names := []string{"node1", "node2", "node3", "node4", "node5"}
	for round := range rounds {
		for _, queue := range []string{"source", "dead"} {
			was := members(t, c.Node(0), queue)
			to := slices.DeleteFunc(slices.Clone(names), func(n string) bool { return slices.Contains(was, n) })[round%2]
			from := was[round%3]
			leader, _ := leaderOf(t, c, queue)
			if round%2 == 0 {
				from = leader.Name
			}
			move := make(chan struct{})
			go func() {
				defer close(move)
				ask := func(method, node string) {
					for end := time.Now().Add(2 * timeoutStart); ; time.Sleep(200 * time.Millisecond) {
						status, answer := replica(t, c.Node(0), method, queue, node)
						if status == http.StatusNoContent {
							return
						}
						if time.Now().After(end) {
							t.Errorf("%s %s of %s: %d %s", method, node, queue, status, answer)
							return
						}
					}
				}
				ask(http.MethodPost, to)
				ask(http.MethodDelete, from)
			}()
			// Clients are at the first two nodes.
			if victim := leader; round > 0 {
				if victim == c.Node(0) || victim == c.Node(1) {
					victim = c.Node(2 + round%3)
				}
				time.Sleep(time.Duration(round*37%200) * time.Millisecond)
				kill(t, victim)
				time.Sleep(400 * time.Millisecond)
				start(t, victim)
			}
			<-move
			want := append(slices.DeleteFunc(was, func(n string) bool { return n == from }), to)
			slices.Sort(want)
			await(t, timeoutStart, "the members of "+queue+" are those that were asked for", func() bool {
				return slices.Equal(members(t, c.Node(0), queue), want)
			})
			if t.Failed() {
				t.FailNow()
			}
		}
	}
	cancel()
	wait()
	for _, queue := range []string{"source", "dead"} {
		id := queueID(t, c, queue)
		in := members(t, c.Node(0), queue)
		for _, n := range c.Nodes() {
			await(t, timeoutStart, fmt.Sprintf("%s has a replica of %s if it is one of %v", n.Name, queue, in), func() bool {
				return hasReplica(t, n, id) == slices.Contains(in, n.Name)
			})
		}
	}
	replicasAgree(t, c, "dead", queueID(t, c, "dead"))
	b.check(c.Node(0))
}

// replicasAgree waits until all members of a queue have the same messages.
func replicasAgree(t *testing.T, c *cluster.Cluster, queue string, id uint64) {
	t.Helper()
	var seen []string
	await(t, timeoutStart, "the replicas of "+queue+" are the same", func() bool {
		seen = nil
		for _, n := range members(t, c.Node(0), queue) {
			var q inspected
			if !inspectJSON(t, c.ByName(n), &q, "queue", strconv.FormatUint(id, 10)) {
				return false
			}
			text, _ := json.Marshal(q)
			if seen = append(seen, string(text)); seen[0] != string(text) {
				return false
			}
		}
		return true
	})
}

// TestQuarantinedReplicaIsRefilled changes a byte of one message in a replica's sealed log. The node starts with its other queues, plans
// the replica's renewal, and has it filled: then the queue works with it and without the node that had filled it.
func TestQuarantinedReplicaIsRefilled(t *testing.T) {
	t.Parallel()
	const messages = 60
	c := startCluster(t, 3)
	untilFlags(t, c, "enabled enabled")
	s := at(t, c.Node(0))
	name := plainQueue(s, "decays", amqp.Table{"x-queue-type": "quorum"})
	other := plainQueue(s, "sound", amqp.Table{"x-queue-type": "quorum"})
	bodies := make([]string, messages)
	for i := range bodies {
		bodies[i] = fmt.Sprintf("message-%d-", i) + strings.Repeat("x", 64<<10)
	}
	s.fill(name, bodies...)
	s.fill(other, "kept")
	id := queueID(t, c, name)
	leader, others := leaderOf(t, c, name)
	victim, third := others[0], others[1]
	s.noError("close", s.conn.Close())
	kill(t, victim)
	flip(t, victim, "message-7-")
	start(t, victim)
	untilLog(t, victim, "a damaged replica begins anew")
	await(t, timeoutStart, "the replica is filled", func() bool {
		var q inspected
		return inspectJSON(t, victim, &q, "queue", strconv.FormatUint(id, 10)) && q.Messages == messages
	})
	at(t, victim).ready(other, 1)
	// It votes when the former one's place is taken; from then on any other may go.
	await(t, timeoutStart, "no change of members is under way", func() bool {
		status, _ := replica(t, leader, http.MethodPost, name, victim.Name)
		return status == http.StatusNoContent
	})
	kill(t, leader)
	s = at(t, third)
	s.ready(name, messages)
	if got := s.drainMany(name); len(got) != messages || got[7] != bodies[7] {
		t.Errorf("%d messages are left", len(got))
	}
	if got := members(t, third, name); !slices.Equal(got, []string{"node1", "node2", "node3"}) {
		t.Errorf("it is on %v", got)
	}
}

// flip changes one byte of the only record with a text in a stopped node's log.
func flip(t *testing.T, n *cluster.Node, text string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(n.DataDir(), "log", "*.seg"))
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range files {
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		at := bytes.Index(data, []byte(text))
		if at < 0 {
			continue
		}
		data[at+len(text)+100] ^= 1
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
		t.Logf("a byte of %s at %d is changed", filepath.Base(path), at)
		return
	}
	t.Fatalf("%q is in none of %q", text, files)
}
