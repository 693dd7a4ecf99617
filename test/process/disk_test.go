package process

import (
	"context"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
	"golang.org/x/sys/unix"

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
	conn, err := connect(n.URL())
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

// TestUnreadableDisk has the disk under a queue's leader give back nothing of what is not in memory: another leads, and consumers get all messages.
func TestUnreadableDisk(t *testing.T) {
	t.Parallel()
	const messages = 60
	c := newCluster(t, 3, breakable(t))
	startAll(t, c)
	s := at(t, c.Node(0))
	q := plainQueue(s, "q", amqp.Table{"x-queue-type": "quorum"})
	bodies := make([]string, messages)
	for i := range bodies {
		bodies[i] = strconv.Itoa(i) + strings.Repeat(" ", 400<<10) // more than is kept in memory
	}
	s.fill(q, bodies...)
	leader, others := leaderOf(t, c, q)
	setDisk(t, leader, cluster.Disk{Unreadable: true})
	consumer := at(t, others[0])
	_, deliveries := consumer.consume(q, 5)
	seen := map[string]bool{}
	for len(seen) < messages {
		d := consumer.next(deliveries)
		seen[strings.TrimSpace(string(d.Body))] = true
		consumer.noError("ack", d.Ack(false))
	}
	if said(t, leader, "cannot be read: input/output error") == 0 {
		t.Error("the node does not say why it has left the queue to others")
	}
	setDisk(t, leader, cluster.Disk{})
	await(t, timeoutStart, "the replica is filled again", func() bool { return said(t, leader, "a damaged replica begins anew") > 0 })
}

// TestCatalogDiskFails cuts the file of the catalog's log under a running node, and in another cluster keeps a node from writing it: it ends with
// one clear line and exit code 1, clients of the other nodes go on, and once its disk is well, or it has an empty folder, it comes back.
func TestCatalogDiskFails(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name  string
		fails func(t *testing.T, n *cluster.Node)
		says  string
		mend  func(t *testing.T, n *cluster.Node)
	}{
		{"cut", func(t *testing.T, n *cluster.Node) {
			if err := os.Truncate(filepath.Join(n.DataDir(), "catalog", "log.db"), 0); err != nil {
				t.Fatal(err)
			}
		}, "a page of log.db cannot be read", func(t *testing.T, n *cluster.Node) {
			if err := os.Rename(n.DataDir(), n.DataDir()+"-aside"); err != nil {
				t.Fatal(err)
			}
		}},
		{"not to be written", func(t *testing.T, n *cluster.Node) {
			if err := unix.Prlimit(n.PID(), unix.RLIMIT_FSIZE, &unix.Rlimit{Cur: 1, Max: 1}, nil); err != nil {
				t.Fatal(err)
			}
		}, "", func(*testing.T, *cluster.Node) {}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := startCluster(t, 3)
			q := plainQueue(at(t, c.Node(0)), "q", nil)
			leader, others := leaderOf(t, c, q)
			l := startLoad(t, q, others[0].URL(), []string{others[0].URL(), others[1].URL()}, 300)
			l.progress(200)
			tc.fails(t, leader)
			plainQueue(at(t, others[1]), "another", nil)
			ctx, cancel := context.WithTimeout(t.Context(), timeoutStop)
			defer cancel()
			if code, err := leader.Wait(ctx); err != nil || code != 1 {
				t.Errorf("the node ended with %d, %v", code, err)
			}
			if tc.says != "" && said(t, leader, tc.says) == 0 {
				t.Errorf("it does not say %q", tc.says)
			}
			l.progress(300)
			tc.mend(t, leader)
			start(t, leader)
			l.progress(300)
			confirms, _ := l.finish()
			l.pauses("no confirm", confirms, 0)
		})
	}
}
