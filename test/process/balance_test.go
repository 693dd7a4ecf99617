package process

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/warrenmq/warren/test/cluster"
)

// figure reads one figure from a node's metrics.
func figure(t *testing.T, n *cluster.Node, name string) int {
	t.Helper()
	page, err := patiently(func() ([]byte, error) { return n.Fetch(t.Context(), "/metrics") })
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(page)) {
		if text, ok := strings.CutPrefix(line, name+" "); ok {
			v, err := strconv.ParseFloat(strings.TrimSpace(text), 64)
			if err != nil {
				t.Fatal(err)
			}
			return int(v)
		}
	}
	t.Fatalf("%s has no %s", n.Name, name)
	return 0
}

// patiently asks a node again that did not answer in time: on a starved machine it needs longer than one request may take.
func patiently[T any](ask func() (T, error)) (T, error) {
	for end := time.Now().Add(timeoutReply); ; {
		v, err := ask()
		if !errors.Is(err, context.DeadlineExceeded) || time.Now().After(end) {
			return v, err
		}
	}
}

// led are the numbers of queues that the nodes lead.
func led(t *testing.T, c *cluster.Cluster) (list []int) {
	t.Helper()
	for _, n := range c.Nodes() {
		list = append(list, figure(t, n, "rabbitmq_queues"))
	}
	return list
}

// manyQueues declares n queues through all nodes in turn and waits until each is led.
func manyQueues(t *testing.T, c *cluster.Cluster, prefix string, n int) {
	t.Helper()
	var sessions []*session
	for _, node := range c.Nodes() {
		sessions = append(sessions, at(t, node))
	}
	for i := range n {
		plainQueue(sessions[i%len(sessions)], fmt.Sprint(prefix, i), nil)
	}
}

// await polls until done is true.
func await(t *testing.T, limit time.Duration, what string, done func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	if err := cluster.Poll(ctx, func() (bool, error) { return done(), nil }); err != nil {
		t.Fatalf("%s: not within %v", what, limit)
	}
}

// resetPauses forgets the longest pauses so far and returns them.
func (l *load) resetPauses() (confirms, deliveries time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	confirms, deliveries = l.confirmPause, l.deliveryPause
	l.confirmPause, l.deliveryPause, l.begun = 0, 0, time.Now()
	return confirms, deliveries
}

// TestLeadersComeBack kills a node, which leads a third of the queues, and starts it again: it
// gets them back, the busy one among them, whose clients notice a short pause at most and
// lose nothing.
func TestLeadersComeBack(t *testing.T) {
	t.Parallel()
	const queues, each = 30, 10
	c := startCluster(t, 3)
	manyQueues(t, c, "home", queues)
	before := []int{each, each, each}
	await(t, timeoutStart, "each node leads a third", func() bool { return fmt.Sprint(led(t, c)) == fmt.Sprint(before) })
	victim, others := leaderOf(t, c, "home0")
	l := startLoad(t, "home0", others[0].URL(), []string{others[0].URL(), others[1].URL()}, 300)
	l.progress(100)
	kill(t, victim)
	l.progress(100)
	if n := figure(t, others[0], "rabbitmq_queues") + figure(t, others[1], "rabbitmq_queues"); n != queues {
		await(t, timeoutReply, "all queues have leaders", func() bool {
			return figure(t, others[0], "rabbitmq_queues")+figure(t, others[1], "rabbitmq_queues") == queues
		})
	}
	start(t, victim)
	l.progress(100)
	failover, _ := l.resetPauses()
	// It is left alone for ten seconds; then each of the others gives back ten in a second.
	await(t, timeoutStart, "leaders are back", func() bool { return fmt.Sprint(led(t, c)) == fmt.Sprint(before) })
	l.progress(200)
	await(t, timeoutStart, "the busy queue's leader is back", func() bool {
		leader, _ := leaderOf(t, c, "home0")
		return leader == victim
	})
	confirms, deliveries := l.finish()
	l.pauses("leaders came back", confirms, deliveries)
	t.Logf("longest pause of confirms: %v at the node's end, %v when the leader came back", failover, confirms)
}

// TestStarvedNodesKeepTheirLeaders lets busy loops take both cores from three nodes: late
// answers are no deaths, and no queue changes its leader.
func TestStarvedNodesKeepTheirLeaders(t *testing.T) {
	const queues = 100
	starvation := 8 * time.Second
	c := startCluster(t, 3)
	manyQueues(t, c, "starved", queues)
	terms := func() (list []int) {
		for _, n := range c.Nodes() {
			list = append(list, figure(t, n, "rabbitmq_raft_term"))
		}
		return list
	}
	last := terms()
	await(t, timeoutReply, "terms are still", func() bool {
		now := terms()
		still := fmt.Sprint(now) == fmt.Sprint(last)
		last = now
		return still
	})
	before, leaders := last, led(t, c)
	l := startLoad(t, "starved0", c.Node(0).URL(), []string{c.Node(1).URL()}, 100)
	l.progress(50)
	ctx, cancel := context.WithTimeout(t.Context(), starvation)
	defer cancel()
	loops := make([]*exec.Cmd, 2*runtime.NumCPU())
	for i := range loops {
		// It ends with this process too, however that ends.
		loops[i] = exec.CommandContext(ctx, "sh", "-c", "while kill -0 $PPID 2>/dev/null; do :; done")
		if err := loops[i].Start(); err != nil {
			t.Fatal(err)
		}
	}
	for _, p := range loops {
		_ = p.Wait() // it is killed
	}
	l.progress(50)
	confirms, deliveries := l.finish()
	if after := terms(); fmt.Sprint(after) != fmt.Sprint(before) {
		t.Errorf("sums of terms went from %v to %v: queues changed their leaders", before, after)
	}
	if after := led(t, c); fmt.Sprint(after) != fmt.Sprint(leaders) {
		t.Errorf("the nodes lead %v queues, before it was %v", after, leaders)
	}
	t.Logf("longest pauses while starved: %v of confirms, %v of deliveries", confirms, deliveries)
}
