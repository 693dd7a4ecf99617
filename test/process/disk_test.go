package process

import (
	"context"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/warrenmq/warren/test/cluster"
)

// breakable makes the nodes of a cluster ones whose disk a test can break.
func breakable(t *testing.T) func(*cluster.Config) {
	t.Helper()
	binary, err := shared.stoppable()
	if err != nil {
		t.Fatal(err)
	}
	return func(cfg *cluster.Config) { cfg.Binary = binary }
}

// TestPowerLoss ends all three nodes at once while messages are published and acked, again and
// again, with disks that forget what was not synced: everything that was confirmed is there.
func TestPowerLoss(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 3, breakable(t), func(cfg *cluster.Config) {
		cfg.Env = append(cfg.Env, cluster.ForgetEnv+"=30")
	})
	startAll(t, c)
	q := plainQueue(at(t, c.Node(0)), "q", nil)
	kept := map[int]bool{} // confirmed and not taken
	next := 0
	for round := range 4 {
		ended := make(chan []int, 1)
		var confirmed atomic.Int64
		go func() { ended <- publishUntilCut(t, c.Node(round%3), q, next, &confirmed) }()
		for deadline := time.Now().Add(timeoutReply); confirmed.Load() < 500; time.Sleep(time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatalf("%d confirms", confirmed.Load())
			}
		}
		if err := c.KillAll(); err != nil {
			t.Fatal(err)
		}
		for _, n := range <-ended {
			kept[n] = true
			next = max(next, n+1)
		}
		next += 10_000 // those without a confirm may be there
		startAll(t, c)
		s := at(t, c.Node((round+1)%3))
		for _, body := range s.drain(q) {
			n, err := strconv.Atoi(body)
			if err != nil {
				t.Fatal(err)
			}
			delete(kept, n)
		}
		if len(kept) > 0 {
			t.Fatalf("round %d: %d confirmed messages are lost", round+1, len(kept))
		}
		t.Logf("round %d: %d confirmed", round+1, confirmed.Load())
	}
}

// publishUntilCut publishes numbers from first on until the connection ends, and returns
// those that were confirmed.
func publishUntilCut(t *testing.T, n *cluster.Node, queue string, first int, count *atomic.Int64) (confirmed []int) {
	conn, err := amqp.Dial(n.URL())
	if err != nil {
		t.Error(err)
		return nil
	}
	defer conn.Close()
	ch, err := conn.Channel()
	if err == nil {
		err = ch.Confirm(false)
	}
	if err != nil {
		t.Error(err)
		return nil
	}
	acks := ch.NotifyPublish(make(chan amqp.Confirmation, 1<<14))
	for sent := 0; ; {
		for sent-len(confirmed) < 200 {
			if ch.PublishWithContext(context.Background(), "", queue, false, false, message(strconv.Itoa(first+sent))) != nil {
				break
			}
			sent++
		}
		a, ok := <-acks
		if !ok {
			return confirmed
		}
		if a.Ack {
			confirmed = append(confirmed, first+int(a.DeliveryTag)-1)
			count.Add(1)
		}
	}
}

// TestBrokenDisk shows what clients meet while the disk under a queue's leader is slow, and
// when it fails: that node ends, since what its disk holds is unknown, and another leads.
func TestBrokenDisk(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 3, breakable(t))
	startAll(t, c)
	q := plainQueue(at(t, c.Node(0)), "q", nil)
	leader, others := leaderOf(t, c, q)
	l := startLoad(t, q, others[0].URL(), []string{others[0].URL(), others[1].URL()}, 300)
	l.progress(200)
	disk := func(n *cluster.Node, d cluster.Disk) {
		t.Helper()
		if err := n.SetDisk(t.Context(), d); err != nil {
			t.Fatal(err)
		}
	}
	disk(leader, cluster.Disk{SyncDelay: 50 * time.Millisecond})
	l.progress(200)
	disk(leader, cluster.Disk{Failing: true})
	l.progress(300)
	ctx, cancel := context.WithTimeout(t.Context(), timeoutStart)
	defer cancel()
	if code, err := leader.Wait(ctx); err != nil || code != 1 {
		t.Errorf("the node with the failing disk ended with %d, %v", code, err)
	}
	start(t, leader)
	l.progress(300)
	confirms, _ := l.finish()
	l.pauses("no confirm", confirms, 0)
}
