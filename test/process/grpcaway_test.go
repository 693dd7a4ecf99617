package process

import (
	"context"
	"errors"
	"fmt"
	"io"
	"syscall"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	warrenv1 "github.com/warrenmq/warren/api/warren/v1"
	"github.com/warrenmq/warren/test/cluster"
)

// TestGRPCNodesGo publishes and consumes by streams while the leader of the queue is killed, and while the node of the streams is drained:
// what was confirmed is there, streams at other nodes go on, those at a node that leaves end with UNAVAILABLE and have the results of all
// that the node has taken.
func TestGRPCNodesGo(t *testing.T) {
	t.Parallel()
	c := startCluster(t, 3)
	rpc := rpcAt(t, c.Node(0), "guest", "guest")
	// What is rejected of it waits for a queue that is not there yet.
	q := rpc.queue("gone", map[string]*warrenv1.Value{
		"x-queue-type": textValue("quorum"), "x-dead-letter-exchange": textValue(""), "x-dead-letter-routing-key": textValue("gone.dead"),
		"x-dead-letter-strategy": textValue("at-least-once"), "x-overflow": textValue("reject-publish"),
	})
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
	await(t, timeoutStart, "the newest level", func() bool { return statusOf(t, edge).Warren.Level >= 2 })
	rpcRejectsFirst(rpc, q)
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
	rpcRejected(rpc, edge, "gone.dead")
	start(t, leader)

	rpcManyWatchers(rpcAt(t, leader, "guest", "guest"))

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

// whyRejected is what a client says of messages that it rejects.
const whyRejected = "no such customer: Żółw"

// rpcRejectsFirst rejects two messages of a queue whose dead letters have nowhere to go, and says why.
func rpcRejectsFirst(rpc *rpcClient, q string) {
	rpc.Helper()
	rpc.fill(q, "dead1", "dead2")
	x := rpc.consumer(&warrenv1.ConsumeOpen{Queue: q}, 2)
	x.next("dead1")
	x.next("dead2")
	x.send(&warrenv1.ConsumeRequest{Settlements: []*warrenv1.Settlement{{First: 1, Last: 2, Kind: warrenv1.SettleKind_SETTLE_KIND_REJECT, Detail: whyRejected}}})
	eventually(rpc.T, func() error {
		got, err := warrenv1.NewMessageServiceClient(rpc.conn).Peek(rpc.ctx, &warrenv1.PeekRequest{Queue: q, State: warrenv1.MessageState_MESSAGE_STATE_PARKED})
		if err != nil {
			return err
		}
		if list := got.GetMessages(); len(list) != 2 || list[0].GetDeadReason() != "rejected" || list[1].GetDeadDetail() != whyRejected {
			return fmt.Errorf("parked: %v", list)
		}
		return nil
	})
	x.stop()
}

// rpcManyWatchers opens as many streams of events as a node has at most, all at a node that has none.
func rpcManyWatchers(rpc *rpcClient) {
	rpc.Helper()
	ctx, cancel := context.WithCancel(rpc.ctx)
	defer cancel()
	open := func() error {
		stream, err := warrenv1.NewStatusServiceClient(rpc.conn).Watch(ctx, &warrenv1.WatchRequest{})
		if err == nil {
			_, err = stream.Recv()
		}
		return err
	}
	for i := range 64 {
		if err := open(); err != nil {
			rpc.Fatalf("stream of events %d: %v", i, err)
		}
	}
	wantCode(rpc.T, open(), codes.ResourceExhausted, "TOO_MANY_STREAMS")
	cancel()
	ctx = rpc.ctx
	eventually(rpc.T, open) // when the node has noticed
}

// rpcRejectionRefused: while some node has a program that does not know them, a rejection that says why is refused, and nothing dies without it.
func rpcRejectionRefused(rpc *rpcClient) {
	rpc.Helper()
	q := rpc.queue("refuses", nil)
	rpc.fill(q, "alive")
	x := rpc.consumer(&warrenv1.ConsumeOpen{Queue: q}, 1)
	x.next("alive")
	x.send(&warrenv1.ConsumeRequest{Settlements: []*warrenv1.Settlement{{First: 1, Kind: warrenv1.SettleKind_SETTLE_KIND_REJECT, Detail: whyRejected}}})
	wantCode(rpc.T, x.ends(), codes.FailedPrecondition, "PRECONDITION_FAILED")
	rpc.counts(q, 1, 0)
}

// rpcRejected declares the queue that dead letters wait for, and reads there why they were rejected, by either protocol.
func rpcRejected(rpc *rpcClient, n *cluster.Node, dead string) {
	rpc.Helper()
	rpc.queue(dead, nil)
	d := at(rpc.T, n).get(dead)
	deaths, _ := d.Headers["x-death"].([]any)
	if len(deaths) != 1 || string(d.Body) != "dead1" {
		rpc.Fatalf("%s: %v", d.Body, d.Headers)
	}
	if death := deaths[0].(amqp.Table); death["detail"] != whyRejected || death["reason"] != "rejected" {
		rpc.Errorf("%v", death)
	}
	x := rpc.consumer(&warrenv1.ConsumeOpen{Queue: dead}, 1)
	if death := x.next("dead2").GetDeaths(); len(death) != 1 || death[0].GetReason() != "rejected" || death[0].GetDetail() != whyRejected {
		rpc.Errorf("%v", death)
	}
	x.settle(warrenv1.SettleKind_SETTLE_KIND_ACK, 1, 0)
	x.stop()
}

// TestGRPCEndOfSettlements: when a consumer's stream has ended as its client wanted, the queue's log has what it settled, although the leader was
// frozen meanwhile, and the death of the stream's node takes nothing back.
func TestGRPCEndOfSettlements(t *testing.T) {
	t.Parallel()
	c := startCluster(t, 3)
	s := at(t, c.Node(0))
	q := plainQueue(s, "settled", nil)
	const messages = 50
	s.fill(q, numbered("m", messages)...)
	leader, others := leaderOf(t, c, q)
	x := rpcAt(t, others[0], "guest", "guest").consumer(&warrenv1.ConsumeOpen{Queue: q}, messages)
	for i := range messages {
		x.next(fmt.Sprint("m", i+1))
	}
	if err := leader.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = leader.Signal(syscall.SIGCONT) }()
	x.settle(warrenv1.SettleKind_SETTLE_KIND_ACK, 1, messages)
	if err := x.stream.CloseSend(); err != nil {
		t.Fatal(err)
	}
	if err := x.ends(); !errors.Is(err, io.EOF) {
		t.Fatalf("the stream ended with %v", err)
	}
	kill(t, others[0])
	if err := leader.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	rpcAt(t, others[1], "guest", "guest").counts(q, 0, 0)
}
