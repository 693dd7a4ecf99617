package netns

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/warrenmq/warren/jepsen/network"
	"github.com/warrenmq/warren/test/cluster"
)

// elections is how many elections nodes have begun.
func (r *rig) elections(names []string) (n int) {
	r.Helper()
	for _, name := range names {
		n += r.figure(r.ByName(name), "warren_leader_elections_total")
	}
	return n
}

// leads tells whether a node says that it leads any queue.
func leads(n *cluster.Node, queues []string) bool {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	qs, err := n.Queues(ctx)
	if err != nil {
		return false
	}
	return slices.ContainsFunc(qs, func(q cluster.Queue) bool { return slices.Contains(queues, q.Name) && q.Leader == n.Name })
}

// TestMinorityNeverElects cuts a minority off, in both directions or in one, again and again, with leaders of queues in it. It leads no queue after its lease but those of which it has most replicas, confirms nothing,
// is not ready, and tells clients that ask for something: an operation ends with an error within its time. The majority goes on. What
// the minority's clients had published without a confirm is there once, or was not taken, when all is well again.
func TestMinorityNeverElects(t *testing.T) {
	for _, tc := range []struct {
		nodes, minority int
		ways            []string
	}{
		{3, 1, []string{"both", "deaf", "mute"}},
		{5, 2, []string{"both", "deaf"}},
	} {
		t.Run(fmt.Sprint(tc.nodes), func(t *testing.T) {
			t.Parallel()
			r := founded(t, options{nodes: tc.nodes})
			r.until("all nodes vote in the catalog", timeoutStart, func() bool { return len(r.status(r.Node(0)).Warren.Voters) == tc.nodes })
			var queues []string
			for i := range 2 * tc.nodes {
				q := fmt.Sprint("q", i)
				r.declare(r.dial(r.Node(i%tc.nodes)), q, nil)
				queues = append(queues, q)
			}
			want := map[string][]string{} // confirmed, by queue
			for _, way := range tc.ways {
				r.minority(tc.minority, way, queues, want)
			}
			ch := r.dial(r.Node(0))
			for q, bodies := range want {
				got := r.take(ch, q, len(bodies))
				slices.Sort(got)
				slices.Sort(bodies)
				if !slices.Equal(got, bodies) {
					t.Errorf("%s held %q, want %q", q, got, bodies)
				}
			}
		})
	}
}

// sides chooses a queue and a minority with its leader and no other replica of it. All nodes vote in the catalog: it goes on where most of them are, and so
// does the queue.
func (r *rig) sides(size int, queues []string) (queue string, leader *cluster.Node, minority, majority []string) {
	r.Helper()
	ctx, cancel := context.WithTimeout(r.Context(), timeoutReply)
	defer cancel()
	for _, queue = range queues {
		leader, err := r.Leader(ctx, queue)
		r.must("leader", err)
		members := r.members(queue)
		minority, majority = []string{leader.Name}, nil
		for _, n := range r.Nodes() {
			switch {
			case n == leader:
			case len(minority) < size && !slices.Contains(members, n.Name):
				minority = append(minority, n.Name)
			default:
				majority = append(majority, n.Name)
			}
		}
		if len(minority) == size {
			return queue, leader, minority, majority
		}
	}
	r.Fatalf("no minority of %d has a leader and no majority of anything", size)
	return "", nil, nil, nil
}

// members are the names of the nodes that have replicas of a queue.
func (r *rig) members(queue string) (names []string) {
	r.Helper()
	q, err := r.Queue(r.Context(), queue)
	r.must("queue", err)
	for _, m := range q.Members {
		name, _, _ := strings.Cut(m, "/")
		names = append(names, name)
	}
	return names
}

// withoutMajority are the queues that have fewer than two replicas on the nodes.
func (r *rig) withoutMajority(queues, nodes []string) (list []string) {
	r.Helper()
	for _, name := range queues {
		in := 0
		for _, m := range r.members(name) {
			if slices.Contains(nodes, m) {
				in++
			}
		}
		if in < 2 {
			list = append(list, name)
		}
	}
	return list
}

// minority cuts a minority off for a while, with the leader of a queue. want gets what was confirmed.
func (r *rig) minority(size int, way string, queues []string, want map[string][]string) {
	r.Helper()
	queue, leader, minority, majority := r.sides(size, queues)
	cutOff := r.withoutMajority(queues, minority)
	far := r.ByName(majority[0])
	inside, outside := r.dial(leader), r.dial(far)
	r.send(outside, queue, "before "+way)
	want[queue] = append(want[queue], "before "+way)
	before := r.elections(minority)

	switch way {
	case "both":
		r.part(minority, majority)
	case "deaf":
		r.cut(majority, minority, network.Link{Cut: true})
	case "mute":
		r.cut(minority, majority, network.Link{Cut: true})
	}
	cut := time.Now()
	held, err := inside.PublishWithDeferredConfirm("", queue, false, false, amqp.Publishing{Body: []byte("within " + way), DeliveryMode: amqp.Persistent})
	r.must("publish within", err)
	// The majority has leaders again and confirms.
	r.send(outside, queue, "during "+way)
	elected := time.Since(cut)
	asking := r.dial(leader)
	asked := make(chan error, 1)
	go func() { // ends with the connection
		var err error
		if way == "both" {
			_, err = asking.QueueDeclare("new", true, false, false, false, nil)
		}
		asked <- err
	}()
	var unready time.Duration
	for _, name := range minority {
		r.until(name+" is not ready", timeoutReply, func() bool { return !ready(r.ByName(name)) })
		unready = time.Since(cut)
	}
	for end := time.Now().Add(4 * time.Second); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
		for _, name := range minority {
			if leads(r.ByName(name), cutOff) {
				r.Fatalf("%s: %s leads, %v after it was cut off", way, name, time.Since(cut))
			}
		}
	}
	select {
	case err := <-asked:
		if way != "both" {
			break
		}
		r.Logf("a declaration in the minority ended with %v within %v", err, time.Since(cut).Round(time.Millisecond))
		// The connection ends: the client's library looks for another node. No 404, by which programs know that a queue does not exist.
		if told, ok := errors.AsType[*amqp.Error](err); !ok || told.Code != amqp.InternalError {
			r.Errorf("a declaration in the minority ended with %v", err)
		}
	case <-time.After(timeoutReply):
		r.Errorf("%s: nobody tells the client that nothing can be declared", way)
	}
	select {
	case <-held.Done():
		r.Errorf("%s: the minority confirmed, or refused, a message: %t", way, held.Acked())
	default:
	}
	// Queues with most of their replicas in the minority go on there; an election may be begun twice.
	if n := r.elections(minority) - before; n > 2*(len(queues)-len(cutOff)) && way == "both" {
		r.Errorf("%s: the minority began %d elections, and has most of the replicas of %d queues", way, n, len(queues)-len(cutOff))
	}

	r.lan.Heal()
	healed := time.Now()
	r.readyAll()
	select {
	case <-held.Done():
	case <-time.After(timeoutReply):
		r.Errorf("%s: no confirm after the network was whole", way)
	}
	want[queue] = append(want[queue], "during "+way)
	if held.Acked() {
		want[queue] = append(want[queue], "within "+way)
	}
	r.Logf("%s, %v of %d: the majority confirmed after %v; not ready after %v; healed, the confirm (%t) came after %v", way, minority, len(r.Nodes()),
		elected.Round(time.Millisecond), unready.Round(time.Millisecond), held.Acked(), time.Since(healed).Round(time.Millisecond))
	for _, ch := range []*amqp.Channel{inside, outside} {
		_ = ch.Close() // the minority's may be gone
	}
}
