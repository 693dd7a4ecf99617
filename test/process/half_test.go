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

// TestHalfOfTheNodesDieAtOnce kills two of four nodes at the same moment, and three of five, and leaves two voters of the catalog: nobody is a
// majority of the nodes, but queues that have a majority of their replicas go on. So do declarations where the two are most of the catalog's three voters.
func TestHalfOfTheNodesDieAtOnce(t *testing.T) {
	t.Parallel()
	for nodes, voters := range map[int]int{4: 3, 5: 5} {
		t.Run(fmt.Sprint(nodes), func(t *testing.T) {
			c := startCluster(t, nodes)
			untilVoters(t, c.Node(0), voters)
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
			if voters == 3 {
				s.fill(plainQueue(s, "new", nil), "one")
			}
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

// TestAnyTwoOfFiveNodesDieAtOnce kills each pair of five nodes at the same moment: the other three declare and confirm, whoever led the catalog. What was
// confirmed is there once at the end.
func TestAnyTwoOfFiveNodesDieAtOnce(t *testing.T) {
	t.Parallel()
	c := startCluster(t, 5)
	untilVoters(t, c.Node(0), 5)
	var confirmed []string
	for i, one := range c.Nodes() {
		for _, two := range c.Nodes()[i+1:] {
			pair := []*cluster.Node{one, two}
			rest := slices.DeleteFunc(slices.Clone(c.Nodes()), func(n *cluster.Node) bool { return slices.Contains(pair, n) })
			led := statusOf(t, rest[0]).Warren.Leader
			by := rest[len(confirmed)%len(rest)]
			s := at(t, by)
			dieAtOnce(t, pair)
			died, queue := time.Now(), "without-"+one.Name+"-"+two.Name
			await(t, bound(halfMax, died), "both deaths are seen", func() bool { return len(statusOf(t, by).RunningNodes) == len(rest) })
			s.fill(plainQueue(s, queue, nil), "one")
			confirmed = append(confirmed, queue)
			took := time.Since(died)
			t.Logf("%s and %s died, %s had led the catalog: a new queue confirmed after %v", one.Name, two.Name, led, took.Round(time.Millisecond))
			if took > bound(halfMax, died) {
				t.Errorf("%s and %s died: a new queue confirmed after %v", one.Name, two.Name, took)
			}
			startSome(t, pair...)
		}
	}
	s := at(t, c.Node(4))
	for _, queue := range confirmed {
		s.holds(queue, "one")
	}
}

// untilVoters waits until so many nodes vote in the catalog.
func untilVoters(t *testing.T, n *cluster.Node, voters int) {
	t.Helper()
	await(t, timeoutStart, fmt.Sprint(voters, " vote in the catalog"), func() bool { return len(statusOf(t, n).Warren.Voters) == voters })
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
