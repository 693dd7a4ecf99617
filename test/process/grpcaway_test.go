package process

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	warrenv1 "github.com/warrenmq/warren/api/warren/v1"
)

// TestGRPCNodesGo publishes and consumes by streams while the leader of the queue is killed, and while the node of the streams is drained:
// what was confirmed is there, streams at other nodes go on, those at a node that leaves end with UNAVAILABLE and have the results of all
// that the node has taken.
func TestGRPCNodesGo(t *testing.T) {
	t.Parallel()
	c := startCluster(t, 3)
	rpc := rpcAt(t, c.Node(0), "guest", "guest")
	q := rpc.queue("gone", nil)
	ctx, cancel := context.WithTimeout(t.Context(), timeoutStart)
	defer cancel()
	leader, err := c.Leader(ctx, q)
	if err != nil {
		t.Fatal(err)
	}
	edge := c.Node(0)
	if edge == leader {
		edge = c.Node(1)
	}
	rpc = rpcAt(t, edge, "guest", "guest")
	events := rpc.watcher(&warrenv1.WatchRequest{})
	const messages = 2000
	stream := rpc.publisher()
	confirmed := make(chan uint64, 1)
	killed := make(chan struct{})
	go func() { // ends with the stream
		n := uint64(0)
		for n < messages {
			resp, err := stream.Recv()
			if err != nil {
				t.Errorf("after %d results: %v", n, err)
				break
			}
			for _, r := range resp.GetResults() {
				if r.GetOutcome() != warrenv1.PublishOutcome_PUBLISH_OUTCOME_CONFIRMED {
					t.Errorf("%v", r)
				}
				n += r.GetLast() - r.GetFirst() + 1
			}
		}
		confirmed <- n
	}()
	for i := range messages {
		if i == messages/2 {
			if err := leader.Kill(); err != nil {
				t.Fatal(err)
			}
			close(killed)
		}
		if err := stream.Send(&warrenv1.PublishStreamRequest{Publications: []*warrenv1.Publication{forQueue(q, fmt.Sprint(i))}}); err != nil {
			t.Fatal(err)
		}
	}
	if n := <-confirmed; n != messages {
		t.Fatalf("%d of %d messages were confirmed", n, messages)
	}
	events.until("the node to go", func(e *warrenv1.Event) bool {
		return e.GetName() == leader.Name && e.GetNode() != nil && !e.GetNode().GetRunning()
	})
	events.until("another leader", func(e *warrenv1.Event) bool {
		return e.GetName() == q && e.GetLeader() != nil && e.GetLeader().GetTo() != ""
	})
	x := rpc.consumer(&warrenv1.ConsumeOpen{Queue: q}, messages/2)
	for i := range messages / 2 {
		x.next(fmt.Sprint(i)) // in order, none twice
	}
	x.settle(warrenv1.SettleKind_SETTLE_KIND_ACK, 1, messages/2)
	rpc.counts(q, messages/2, 0)
	start(t, leader)

	// The node of the streams is drained.
	busy := rpc.publisher()
	if err := busy.Send(&warrenv1.PublishStreamRequest{Publications: []*warrenv1.Publication{forQueue(q, "last")}}); err != nil {
		t.Fatal(err)
	}
	time.Sleep(10 * time.Millisecond) // it is read, or it is not; both are right
	if out, err := localCtl(t, edge, "drain", "--timeout", "20"); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	results := 0
	for {
		resp, err := busy.Recv()
		if err != nil {
			wantCode(t, err, codes.Unavailable, "")
			break
		}
		results += len(resp.GetResults())
	}
	wantCode(t, x.ends(), codes.Unavailable, "")
	for {
		if _, err := events.stream.Recv(); err != nil {
			wantCode(t, err, codes.Unavailable, "NODE_LEAVES")
			break
		}
	}
	_, err = rpc.publish.Publish(rpc.ctx, &warrenv1.PublishRequest{Publication: forQueue(q, "refused")})
	if status.Code(err) != codes.Unavailable {
		t.Errorf("a drained node takes messages: %v", err)
	}
	away := rpcAt(t, leader, "guest", "guest")
	away.counts(q, uint64(messages/2+results), 0)
	if out, err := localCtl(t, edge, "revive"); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	eventually(t, func() error {
		_, err := rpc.publish.Publish(rpc.ctx, &warrenv1.PublishRequest{Publication: forQueue(q, "revived")})
		return err
	})
	// A node that is stopped ends its streams, too, and does not wait for clients that stay.
	y := rpc.consumer(&warrenv1.ConsumeOpen{Queue: q}, 1)
	begun := time.Now()
	stop, cancelStop := context.WithTimeout(t.Context(), timeoutStop)
	defer cancelStop()
	if err := edge.Stop(stop); err != nil {
		t.Fatal(err)
	}
	if err := y.ends(); err == nil || errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("end of a stream of a stopped node: %v", err)
	}
	t.Logf("stopped in %v", time.Since(begun))
}
