package process

import (
	"fmt"
	"slices"
	"syscall"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/warrenmq/warren/test/cluster"
)

// halfMax is how long queues may stand still when half of the nodes die at once: a second or two on an idle machine. Raft's own timers take one to two minutes.
const halfMax = 15 * time.Second

// TestHalfOfTheNodesDieAtOnce kills two of four nodes at the same moment, and three of five, and leaves two of the catalog's three voters: nobody is a
// majority of the nodes, but queues that have a majority of their replicas go on, and so do declarations.
func TestHalfOfTheNodesDieAtOnce(t *testing.T) {
	t.Parallel()
	for _, nodes := range []int{4, 5} {
		t.Run(fmt.Sprint(nodes), func(t *testing.T) {
			c := startCluster(t, nodes)
			left := statusOf(t, c.Node(0)).Warren.Voters[:2]
			stays := func(name string) bool { return slices.Contains(left, name) }
			s := at(t, c.ByName(left[0]))
			var queues []string // that lose their leader and keep their majority
			for i := range 12 * nodes {
				q := plainQueue(at(t, c.Node(i%nodes)), fmt.Sprint("q", i), amqp.Table{"x-queue-type": "quorum"})
				s.fill(q, "before")
				leader, _ := leaderOf(t, c, q)
				on := slices.DeleteFunc(members(t, c.Node(0), q), func(name string) bool { return !stays(name) })
				if !stays(leader.Name) && len(on) == 2 {
					queues = append(queues, q)
				}
			}
			if len(queues) == 0 {
				t.Fatal("no queue has its leader among those that die and its other replicas elsewhere")
			}
			dieAtOnce(t, slices.DeleteFunc(slices.Clone(c.Nodes()), func(n *cluster.Node) bool { return stays(n.Name) }))
			died := time.Now()
			for _, q := range queues {
				s.fill(q, "after")
			}
			s.fill(plainQueue(s, "new", nil), "one")
			if took := time.Since(died); took > bound(halfMax, died) {
				t.Errorf("%d queues go on after %v", len(queues), took)
			} else {
				t.Logf("%d queues go on after %v", len(queues), took)
			}
			for _, q := range queues {
				s.holds(q, "before", "after")
			}
		})
	}
}

// dieAtOnce kills nodes of which none sees another one's end.
func dieAtOnce(t *testing.T, nodes []*cluster.Node) {
	t.Helper()
	for _, n := range nodes {
		if err := n.Signal(syscall.SIGSTOP); err != nil {
			t.Fatal(err)
		}
	}
	for _, n := range nodes {
		kill(t, n)
	}
}
