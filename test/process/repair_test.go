package process

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
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
	return underLoadAt(t, c.Nodes()[:3], idle)
}

// underLoadAt is underLoad through the given nodes, one at least.
func underLoadAt(t *testing.T, nodes []*cluster.Node, idle int) (queues []string, end func()) {
	t.Helper()
	await(t, timeoutStart, "the newest level", func() bool { return statusOf(t, nodes[0]).Warren.Level >= 2 })
	s := at(t, nodes[0])
	plainQueue(s, "dead", amqp.Table{"x-queue-type": "quorum"})
	plainQueue(s, "source", amqp.Table{
		"x-queue-type": "quorum", "x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead",
		"x-dead-letter-strategy": "at-least-once", "x-overflow": "reject-publish", "x-delivery-limit": int32(-1),
	})
	queues = []string{"dead", "source"}
	for i := range idle {
		name := plainQueue(at(t, nodes[i%len(nodes)]), fmt.Sprint("idle", i), amqp.Table{"x-queue-type": "quorum"})
		s.fill(name, name)
		queues = append(queues, name)
	}
	b := &books{t: t, source: "source", dead: "dead", confirmed: map[int]bool{}, rejected: map[int]bool{}, acked: map[int]bool{}}
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	wait := b.work(ctx, nodes[0], nodes[1%len(nodes)])
	return queues, func() {
		t.Helper()
		cancel()
		wait()
		b.check(nodes[0])
		for i := range idle {
			name := fmt.Sprint("idle", i)
			at(t, nodes[0]).holds(name, name)
		}
	}
}

// inZones puts nodes into the given zones, the first node into the first.
func inZones(zones ...string) func(*cluster.Config) {
	return func(cfg *cluster.Config) {
		cfg.Places = func(node string) (cluster.Place, error) {
			return cluster.Place{Args: func(cluster.Addrs) ([]string, error) {
				n, err := strconv.Atoi(strings.TrimPrefix(node, "node"))
				if err != nil {
					return nil, err
				}
				return []string{"--zone", zones[n-1]}, nil
			}}, nil
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

// TestLostReplicasAreRebuilt kills one of five nodes in three zones for good, under load: three seconds later its replicas are made anew on the others, one in each zone,
// and when that is done another node can go, and then another one, without harm to any queue.
func TestLostReplicasAreRebuilt(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 5, soon, inZones("a", "b", "c", "b", "c"))
	startAll(t, c)
	await(t, timeoutStart, "all zones are known", func() bool { return len(statusOf(t, c.Node(0)).Warren.Zones) == 3 })
	queues, end := underLoad(t, c, 12)
	names := []string{"node1", "node2", "node3", "node4", "node5"}
	for _, victim := range []int{4, 3} {
		begun := time.Now()
		kill(t, c.Node(victim))
		names = names[:victim]
		took := untilOn(t, c.Node(0), timeoutStart, queues, names)
		if time.Since(begun) < 3*time.Second {
			t.Errorf("replicas were made anew after %v", time.Since(begun))
		}
		t.Logf("%s: its replicas are on %v after %v", c.Node(victim).Name, names, took)
		for _, q := range queues { // there is one place in zone a, and from the first death on one in c
			if on := members(t, c.Node(0), q); !slices.Contains(on, "node1") || !slices.Contains(on, "node3") {
				t.Errorf("%s is on %v, not in each zone", q, on)
			}
		}
	}
	// There is nobody any more who could take these; they are back when it is. The two that are left find the death, so that what it led is led by others.
	kill(t, c.Node(2))
	await(t, timeoutReply, "node3 is found dead", func() bool {
		return regexp.MustCompile(`node verdict".*peer=node3/\S+ state=dead`).Match(logOf(t, c.Node(0)))
	})
	s := at(t, c.Node(0))
	s.fill(plainQueue(s, "during", nil), "one")
	time.Sleep(4 * time.Second)
	start(t, c.Node(2))
	untilOn(t, c.Node(0), timeoutStart, queues, names)
	end()
	// Those who come back after all have nothing left.
	start(t, c.Node(4))
	for _, q := range queues {
		id := queueID(t, c, q)
		await(t, timeoutStart, "nothing is left of "+q, func() bool { return !hasReplica(t, c.Node(4), id) })
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
	untilVoters(t, c.Node(0), 3)
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

// TestQueueWithoutReplicasIsDeleted takes the disk of the only node away that has a queue. The queue can be deleted and declared anew, dead letters for it
// go to the new one, backups work, and the lost storage is forgotten.
func TestQueueWithoutReplicasIsDeleted(t *testing.T) {
	t.Parallel()
	c := startCluster(t, 3)
	await(t, timeoutStart, "the newest level", func() bool { return statusOf(t, c.Node(0)).Warren.Level >= 2 })
	s, victim := at(t, c.Node(0)), c.Node(2)
	one := amqp.Table{"x-quorum-initial-group-size": int32(1), "x-queue-leader-locator": "client-local"}
	dead := plainQueue(at(t, victim), "dead", one)
	plainQueue(s, "work", amqp.Table{"x-dead-letter-exchange": "", "x-dead-letter-routing-key": dead})
	if on := members(t, c.Node(0), dead); !slices.Equal(on, []string{victim.Name}) {
		t.Fatalf("it is on %v", on)
	}
	s.fill("work", numbered("m", 6)...)
	s.rejectSome("work", 2)
	s.ready(dead, 2)
	kill(t, victim)
	if err := os.RemoveAll(victim.DataDir()); err != nil {
		t.Fatal(err)
	}
	start(t, victim)
	s.rejectSome("work", 2) // for a target that nobody has
	begun := time.Now()
	if _, err := s.ch.QueueDelete(dead, false, false, false); err != nil {
		t.Fatal(err)
	}
	t.Logf("deleted after %v", time.Since(begun))
	plainQueue(s, dead, nil)
	s.holdsAll(dead, numbered("m", 4)[2:]...)
	t.Logf("dead letters arrived after %v", time.Since(begun))
	file := filepath.Join(t.TempDir(), "backup")
	eventually(t, func() error {
		if code, _, why := ctl(t, c.Node(0), "backup", "--output", file, "--silent"); code != 0 {
			return fmt.Errorf("backup: %s", why)
		}
		return nil
	})
	await(t, timeoutStart, "the lost storage is forgotten", func() bool {
		return slices.ContainsFunc(c.Nodes(), func(n *cluster.Node) bool {
			return strings.Contains(n.LogTail(), "a replaced storage has nothing any more and is forgotten")
		})
	})
}

// untilFilled waits until as many replicas as there are queues were planned anew for a lost disk, and no plan is under way.
func untilFilled(t *testing.T, c *cluster.Cluster, queues []string) {
	t.Helper()
	await(t, timeoutStart, "all replicas are filled", func() bool {
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

// TestClusterGrowsAndShrinks starts a cluster of three nodes, lets two more join, and takes two out again, a founder among them, under load: nothing is lost or
// twice, the catalog has five voters while there are five nodes, else three, and who was taken out ends, and does not come back.
func TestClusterGrowsAndShrinks(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 5, func(cfg *cluster.Config) { cfg.Args = []string{"--bootstrap-expect", "3"} })
	startSome(t, c.Nodes()[:3]...)
	queues, end := underLoad(t, c, 6)
	startSome(t, c.Nodes()[3:]...)
	untilVoters(t, c.Node(0), 5)
	// What there is stays where it is, until somebody asks for more.
	mustCtl(t, c.Node(0), "grow", "node4", "all")
	mustCtl(t, c.Node(0), "shrink", "node2")
	untilOn(t, c.Node(0), timeoutStart, queues, []string{"node1", "node3", "node4"})
	if out := mustCtl(t, c.Node(1), "rebalance", "all", "--queue-pattern", "^idle"); !strings.Contains(out, "node1\t2\n") || !strings.Contains(out, "node4\t2\n") {
		t.Errorf("rebalance says\n%s", out)
	}
	begun := time.Now()
	out := mustCtl(t, c.Node(0), "decommission_node", "node3")
	t.Logf("node3 was out after %v:\n%s", time.Since(begun), out)
	untilEnded(t, c.Node(2))
	mustCtl(t, c.Node(1), "decommission_node", "node4")
	untilEnded(t, c.Node(3))
	await(t, timeoutStart, "three nodes are left", func() bool {
		return slices.Equal(statusOf(t, c.Node(0)).DiskNodes, []string{"node1", "node2", "node5"})
	})
	untilVoters(t, c.Node(0), 3)
	end()
	for _, q := range queues {
		for _, m := range members(t, c.Node(0), q) {
			if m == "node3" || m == "node4" {
				t.Errorf("%s is on %s", q, m)
			}
		}
	}
	ends(t, c.Node(2), "this storage does not belong to the cluster any more")
	// With an empty folder it may.
	if err := os.RemoveAll(c.Node(2).DataDir()); err != nil {
		t.Fatal(err)
	}
	start(t, c.Node(2))
	await(t, timeoutStart, "it runs", func() bool { return slices.Contains(statusOf(t, c.Node(2)).RunningNodes, "node3") })
}

// TestOneNodeBecomesThree has a cluster of one grow to three and shrink to one again, while it works. Queues get the replicas that they miss by themselves; those that are
// declared while a node leaves get none there.
func TestOneNodeBecomesThree(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 3, func(cfg *cluster.Config) { cfg.Args = []string{"--bootstrap-expect", "0"} })
	first := c.Node(0)
	if err := first.Launch("--bootstrap-expect", "1"); err != nil {
		t.Fatal(err)
	}
	if err := first.WaitReady(t.Context()); err != nil {
		t.Fatal(err)
	}
	untilLog(t, first, "this node founds a cluster of its own and joins none")
	queues, end := underLoadAt(t, c.Nodes()[:1], 4)
	startSome(t, c.Nodes()[1:]...)
	untilOn(t, first, timeoutStart, queues, []string{"node1", "node2", "node3"})
	if out := mustCtl(t, c.Node(2), "rebalance", "all", "-q"); strings.Count(out, "\t2\n") != 3 {
		t.Errorf("rebalance says\n%s", out)
	}
	left := []string{"node1", "node2", "node3"}
	for _, node := range []*cluster.Node{c.Node(2), c.Node(1)} {
		if code, _, failure := ctl(t, first, "decommission_node", node.Name, "-t", "1"); code != 75 || !strings.Contains(failure, "can go nowhere") {
			t.Errorf("decommission_node %s: exit code %d, %s", node.Name, code, failure)
		}
		left = slices.DeleteFunc(left, func(name string) bool { return name == node.Name })
		queue := plainQueue(at(t, node), "while-"+node.Name+"-leaves", amqp.Table{"x-queue-type": "quorum"})
		if in := members(t, first, queue); !slices.Equal(in, left) {
			t.Errorf("%s is on %v, want %v", queue, in, left)
		}
		mustCtl(t, first, "shrink", node.Name)
		mustCtl(t, first, "decommission_node", node.Name)
		untilEnded(t, node)
	}
	await(t, timeoutStart, "one node is left, and votes", func() bool {
		st := statusOf(t, first)
		return slices.Equal(st.DiskNodes, left) && len(st.Warren.Voters) == 1
	})
	for _, queue := range queues {
		if in := members(t, first, queue); !slices.Equal(in, left) {
			t.Errorf("%s is on %v", queue, in)
		}
	}
	end()
}

func startSome(t *testing.T, nodes ...*cluster.Node) {
	t.Helper()
	for _, n := range nodes {
		if err := n.Launch(); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), timeoutStart)
	defer cancel()
	for _, n := range nodes {
		if err := n.WaitReady(ctx); err != nil {
			t.Fatal(err)
		}
	}
}

// untilEnded waits until a node has ended by itself, because it was taken out of the cluster.
func untilEnded(t *testing.T, n *cluster.Node) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), timeoutStop)
	defer cancel()
	if code, err := n.Wait(ctx); err != nil || code != 1 || !strings.Contains(n.LogTail(), "does not belong to the cluster any more") {
		t.Errorf("%s: exit code %d, %v\n%s", n.Name, code, err, n.LogTail())
	}
}

// losePower has all nodes lose their power for longer than --repair-after, and checks that nothing is repaired when they are back, the last one
// later than the others.
func losePower(t *testing.T, c *cluster.Cluster, queues []string) {
	t.Helper()
	where := func() (all []string) {
		for _, q := range queues {
			all = append(all, fmt.Sprint(members(t, c.Node(0), q)))
		}
		return all
	}
	before := where()
	for _, n := range c.Nodes() {
		kill(t, n)
	}
	time.Sleep(4 * time.Second)
	last := len(c.Nodes()) - 1
	startSome(t, c.Nodes()[:last]...)
	start(t, c.Node(last))
	time.Sleep(time.Second) // a look of the steward
	for _, n := range c.Nodes() {
		for _, reason := range []string{"gone", "down", "leaving", "missing"} {
			if plans := figure(t, n, fmt.Sprintf("warren_repair_plans_total{reason=%q}", reason)); plans != 0 {
				t.Errorf("%s planned %d repairs after a restart of all nodes: %s", n.Name, plans, reason)
			}
		}
	}
	if after := where(); !slices.Equal(after, before) {
		t.Errorf("queues were on %v and are on %v", before, after)
	}
}

// TestRepairIsBounded has three queues of 6 MiB made anew at 2 MiB a second, one at a time, after a restart of all nodes by which nothing is.
func TestRepairIsBounded(t *testing.T) {
	t.Parallel()
	const queues, entries, size, bound = 3, 200, 32 << 10, 2 << 20
	c := newCluster(t, 4, func(cfg *cluster.Config) {
		soon(cfg)
		cfg.Args = append(cfg.Args, "--repair-rate", "2MiB", "--repair-groups", "1")
	})
	startAll(t, c)
	untilFlags(t, c, "enabled enabled")
	s := at(t, c.Node(0))
	var names []string
	victim := "" // has a replica of each
	for i := 0; len(names) < queues; i++ {
		name := plainQueue(s, fmt.Sprint("large", i), amqp.Table{"x-queue-type": "quorum"})
		in := members(t, c.Node(0), name)
		if victim == "" {
			victim = in[len(in)-1]
		}
		if !slices.Contains(in, victim) || victim == "node1" {
			continue
		}
		for range entries {
			s.fill(name, strings.Repeat("x", size))
		}
		names = append(names, name)
	}
	losePower(t, c, names)
	kill(t, c.ByName(victim))
	rest := slices.DeleteFunc([]string{"node1", "node2", "node3", "node4"}, func(n string) bool { return n == victim })
	sum := func(name string) (n int) {
		for _, node := range rest {
			n += figure(t, c.ByName(node), name)
		}
		return n
	}
	await(t, timeoutStart, "it begins", func() bool { return sum(`warren_repair_queues{state="underway"}`) > 0 })
	begun, most := time.Now(), 0
	await(t, 2*timeoutStart, "it ends", func() bool {
		now := sum(`warren_repair_queues{state="underway"}`)
		most = max(most, now)
		return now+sum(`warren_repair_queues{state="waiting"}`) == 0
	})
	took, sent := time.Since(begun), sum("warren_replica_fill_bytes_total")
	t.Logf("%d bytes in %v, %d queues at a time, waited %d s", sent, took, most, sum("warren_replica_fill_wait_seconds_total"))
	// What was sent before it was seen to begin, and a burst.
	if least := time.Duration(sent-2<<20) * time.Second / bound; took < least || sent < queues*entries*size*9/10 {
		t.Errorf("%d bytes took %v, want %v at least", sent, took, least)
	}
	if most > 1 {
		t.Errorf("%d queues at a time", most)
	}
	untilOn(t, c.Node(0), timeoutStart, names, rest)
}
