package process

import (
	"context"
	"time"

	"github.com/warrenmq/warren/test/cluster"
)

// fill takes snapshots of both queues while the move stands at the step, and starts the node
// that was down: it must be filled by them. Then the others fall behind it: the clients' node
// is killed, the move goes on, and the leader dies at the same step. What the two that are
// left know, only the late node knows, so that it leads.
func (k *crash) fill(ctx context.Context) {
	k.Helper()
	queues := []uint64{k.ids.source, k.ids.target}
	var newest []uint64
	for _, q := range queues {
		l, err := k.at.source.Snapshot(ctx, q)
		if err != nil {
			k.Fatal(err)
		}
		newest = append(newest, l.Applied)
	}
	start(k.T, k.late)
	var received uint64
	k.poll(ctx, "the late node to be filled", func() bool {
		for i, q := range queues {
			l, err := k.late.GroupLog(ctx, q)
			if err != nil || l.Last < newest[i] {
				return false
			}
			received = l.Received
		}
		return true
	})
	if received < uint64(len(queues)) {
		k.Fatalf("the late node has got %d snapshots", received)
	}
	k.kill(k.at.clients)
	k.outrun(ctx, queues)
	k.kill(k.at.source)
	start(k.T, k.at.clients)
	k.poll(ctx, "the late node to lead both", func() bool {
		list, err := k.late.Queues(ctx)
		led := 0
		for _, q := range list {
			if (q.ID == k.ids.source || q.ID == k.ids.target) && q.Leader == k.late.Name {
				led++
			}
		}
		return err == nil && led == 2
	})
	time.Sleep(downTime)
}

// outrun lets the move go on until both logs have grown, and stand at the step again.
func (k *crash) outrun(ctx context.Context, queues []uint64) {
	k.Helper()
	before := k.logs(ctx, queues)
	grown := func() bool {
		now := k.logs(ctx, queues)
		return now[0] > before[0] && now[1] > before[1]
	}
	for !grown() {
		k.noError("disarm", k.at.source.Disarm(ctx))
		f := cluster.Failpoint{Point: string(k.row.point), Action: "hold", At: 2, Queue: k.ids.source}
		if k.row.atTarget() {
			f.Queue = k.ids.target
		}
		k.noError("arm", k.at.source.Arm(ctx, f))
		k.awaitHeld(ctx, k.at.source)
		time.Sleep(100 * time.Millisecond) // what does not stand goes on
	}
}

// logs tells how far the late node's copies of the logs reach.
func (k *crash) logs(ctx context.Context, queues []uint64) (last []uint64) {
	k.Helper()
	for _, q := range queues {
		l, err := k.late.GroupLog(ctx, q)
		k.noError("look at a log", err)
		last = append(last, l.Last)
	}
	return last
}

// poll waits until done.
func (k *crash) poll(ctx context.Context, what string, done func() bool) {
	k.Helper()
	if err := cluster.Poll(ctx, func() (bool, error) { return done(), nil }); err != nil {
		k.Fatalf("waited in vain for %s", what)
	}
}

func (k *crash) noError(what string, err error) {
	k.Helper()
	if err != nil {
		k.Fatalf("%s: %v", what, err)
	}
}
