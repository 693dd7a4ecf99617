package process

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/warrenmq/warren/test/cluster"
)

// soon are the settings of a cluster that repairs after three seconds.
func soon(cfg *cluster.Config) {
	cfg.Args = []string{"--repair-after", "3s", "--voter-replace-after", "2s"}
}

// underLoad makes a source that dead-letters, with its books and some idle queues beside it, and publishes and consumes through the first two
// nodes until end is called, which checks the books.
func underLoad(t *testing.T, c *cluster.Cluster, idle int) (queues []string, end func()) {
	t.Helper()
	untilFlags(t, c, "enabled enabled")
	s := at(t, c.Node(0))
	plainQueue(s, "dead", amqp.Table{"x-queue-type": "quorum"})
	plainQueue(s, "source", amqp.Table{"x-queue-type": "quorum", "x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead",
		"x-dead-letter-strategy": "at-least-once", "x-overflow": "reject-publish", "x-delivery-limit": int32(-1)})
	queues = []string{"dead", "source"}
	for i := range idle {
		name := plainQueue(at(t, c.Node(i%len(c.Nodes()))), fmt.Sprint("idle", i), amqp.Table{"x-queue-type": "quorum"})
		s.fill(name, name)
		queues = append(queues, name)
	}
	b := &books{t: t, source: "source", dead: "dead", confirmed: map[int]bool{}, rejected: map[int]bool{}, acked: map[int]bool{}}
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	wait := b.work(ctx, c.Node(0), c.Node(1))
	return queues, func() {
		t.Helper()
		cancel()
		wait()
		b.check(c.Node(0))
		for i := range idle {
			name := fmt.Sprint("idle", i)
			at(t, c.Node(0)).holds(name, name)
		}
	}
}

// untilOn waits until each queue has three replicas, on some of the given nodes and no others.
func untilOn(t *testing.T, n *cluster.Node, limit time.Duration, queues, nodes []string) (took time.Duration) {
	t.Helper()
	begun := time.Now()
	was := ""
	await(t, limit, fmt.Sprintf("all queues have three replicas on %v", nodes), func() bool {
		list, err := n.Queues(t.Context())
		if err != nil {
			return false
		}
		on := map[string]string{}
		well := 0
		for i := range list {
			q := &list[i]
			if !slices.Contains(queues, q.Name) {
				continue
			}
			on[q.Name] = strings.Join(q.Members, " ")
			if len(q.Members) == 3 && !slices.ContainsFunc(q.Members, func(m string) bool { return !slices.Contains(nodes, m) }) {
				well++
			}
		}
		if now := fmt.Sprint(on); now != was && os.Getenv("WARREN_TEST_LOG") != "" {
			t.Log(now)
			was = now
		}
		return well == len(queues)
	})
	return time.Since(begun)
}

// TestLostReplicasAreRebuilt kills one of five nodes for good, under load: three seconds later its replicas are made anew on the others, and when that is
// done another node can go, and then another one, without harm to any queue.
func TestLostReplicasAreRebuilt(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 5, soon)
	startAll(t, c)
	queues, end := underLoad(t, c, 12)
	names := []string{"node1", "node2", "node3", "node4", "node5"}
	for _, victim := range []int{4, 3} {
		begun := time.Now()
		kill(t, c.Node(victim))
		names = names[:victim]
		took := untilOn(t, c.Node(0), time.Minute, queues, names)
		if time.Since(begun) < 3*time.Second {
			t.Errorf("replicas were made anew after %v", time.Since(begun))
		}
		t.Logf("%s: its replicas are on %v after %v", c.Node(victim).Name, names, took)
	}
	// There is nobody any more who could take these; they are back when it is.
	kill(t, c.Node(2))
	s := at(t, c.Node(0))
	s.fill(plainQueue(s, "during", nil), "one")
	time.Sleep(4 * time.Second)
	start(t, c.Node(2))
	untilOn(t, c.Node(0), timeoutReply, queues, names)
	end()
	// Those who come back after all have nothing left.
	start(t, c.Node(4))
	for _, q := range queues {
		id := queueID(t, c, q)
		await(t, 20*time.Second, "nothing is left of "+q, func() bool { return !hasReplica(t, c.Node(4), id) })
	}
}

// TestEmptyDiskJoinsAsNewReplica takes the data folder of one of three nodes away, under load: it comes back under its name as a new storage, gets
// all replicas at once, and its vote in the catalog; then any other node can go. The former storage is forgotten.
func TestEmptyDiskJoinsAsNewReplica(t *testing.T) {
	t.Parallel()
	c := startCluster(t, 3)
	queues, end := underLoad(t, c, 6)
	victim := c.Node(2)
	ids := map[string]uint64{}
	for _, q := range queues {
		ids[q] = queueID(t, c, q)
	}
	kill(t, victim)
	former := victim.DataDir() + "-former"
	if err := os.Rename(victim.DataDir(), former); err != nil {
		t.Fatal(err)
	}
	start(t, victim)
	begun := time.Now()
	untilFilled(t, c, queues)
	t.Logf("all replicas are there %v after the node", time.Since(begun))
	for _, q := range queues {
		if !hasReplica(t, victim, ids[q]) {
			t.Errorf("there is no replica of %s", q)
		}
	}
	await(t, 20*time.Second, "it votes in the catalog", func() bool { return len(statusOf(t, c.Node(0)).Warren.Voters) == 3 })
	end()
	kill(t, c.Node(1))
	s := at(t, c.Node(0))
	s.fill(plainQueue(s, "after", nil), "one")
	for _, q := range queues[2:] {
		s.fill(q, "again")
	}
	// The former storage does not come back.
	kill(t, victim)
	start(t, c.Node(1))
	if err := os.Rename(victim.DataDir(), victim.DataDir()+"-new"); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(former, victim.DataDir()); err != nil {
		t.Fatal(err)
	}
	ends(t, victim, "this storage does not belong to the cluster any more")
}

// untilFilled waits until as many replicas as there are queues were planned anew for a lost disk, and no plan is under way.
func untilFilled(t *testing.T, c *cluster.Cluster, queues []string) {
	t.Helper()
	await(t, time.Minute, "all replicas are filled", func() bool {
		planned, underway := 0, 0
		for _, n := range c.Nodes() {
			planned += figure(t, n, `warren_repair_plans_total{reason="gone"}`)
			underway += figure(t, n, `warren_repair_queues{state="underway"}`) + figure(t, n, `warren_repair_queues{state="waiting"}`)
		}
		return planned == len(queues) && underway == 0
	})
}

// ends starts a node that ends by itself, and tells why.
func ends(t *testing.T, n *cluster.Node, why string) {
	t.Helper()
	if err := n.Launch(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), timeoutStart)
	defer cancel()
	code, err := n.Wait(ctx)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(n.LogTail()), "\n")
	if last := lines[len(lines)-1]; code != 1 || !strings.Contains(last, why) {
		t.Errorf("it ends with %d and %q", code, last)
	}
}
