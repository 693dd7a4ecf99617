package broker

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/warrenmq/warren/queue"
	"github.com/warrenmq/warren/queue/wire"
)

// What a link has no room for is sent when it has, in its order; the leader is told nothing anew, and what it hands out meanwhile counts.
func TestFullLinkLosesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newStreamRig(t)
		sink := &confirms{}
		r.publish(sink, 1)
		sent[*wire.Batch](r)
		newest := r.resyncs()
		r.down, r.full = true, true
		r.publish(sink, 2)
		ctx, cancel := context.WithCancel(t.Context())
		asked := make(chan error)
		go func() {
			_, err := r.s.ask(ctx, 5, func(after uint64) wire.Message { return &wire.Get{Queue: 7, Req: 5, After: after} })
			asked <- err
		}()
		synctest.Wait()
		for range 20 {
			if !r.s.retry() {
				t.Fatal("nobody looks after what was not sent")
			}
			time.Sleep(retryEvery)
		}
		if r.trouble == 0 || r.resyncs() != newest {
			t.Errorf("trouble %d, resync %d after %d", r.trouble, r.resyncs(), newest)
		}
		r.s.got("leader", &wire.Got{Queue: 7, Req: 4, Resync: newest, Found: true, Item: wire.Item{ID: 9}})
		if r.s.held[9] == nil {
			t.Error("what the leader handed out does not count")
		}
		r.down, r.full = false, false
		time.Sleep(stallPatience)
		r.s.retry()
		r.s.retry()
		if b := sent[*wire.Batch](r); len(b) != 1 || b[0].Stream.First != 2 {
			t.Errorf("batches %v", b)
		}
		if g, s := sent[*wire.Get](r), sent[*wire.Resync](r); len(g) != 1 || len(s) != 1 || s[0].No != newest {
			t.Errorf("requests %v, resyncs %v", g, s)
		}
		cancel()
		<-asked
	})
}

// A Resync that was not sent is none: the leader answers the one before.
func TestResyncThatIsNotSent(t *testing.T) {
	r := newStreamRig(t)
	r.publish(&confirms{}, 1)
	newest := r.resyncs()
	r.down = true
	for range 3 {
		r.s.peerUp("leader")
		r.s.retry()
	}
	if n := r.resyncs(); n != newest {
		t.Errorf("resync %d after %d", n, newest)
	}
}

// A leader has time for a Resync that names many deliveries, the more the more often it has not answered in it.
func TestPatienceGrowsWithWhatIsHeld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newStreamRig(t)
		const held = 500_000
		for id := range queue.MessageID(held) {
			r.s.holdLocked(id+1, &holding{})
		}
		r.publish(&confirms{}, 1)
		sent[*wire.Resync](r)
		var waited []time.Duration
		for begun := time.Now(); len(waited) < 3; time.Sleep(watchEvery) {
			r.s.overdue()
			if len(sent[*wire.Resync](r)) > 0 {
				waited = append(waited, time.Since(begun))
				begun = time.Now()
			}
		}
		if waited[0] < answerPatience+held*holdPatience || waited[1] < 3*waited[0]/2 || waited[2] < 3*waited[1]/2 {
			t.Errorf("said again after %v", waited)
		}
	})
}
