package process

import (
	"encoding/json"
	"fmt"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/warrenmq/warren/test/cluster"
)

// clusterStatus is what a node says of its cluster.
type clusterStatus struct {
	DiskNodes    []string `json:"disk_nodes"`
	RunningNodes []string `json:"running_nodes"`
	Versions     map[string]struct {
		Warren string `json:"warren_version"`
	} `json:"versions"`
	Listeners map[string][]struct {
		Interface, Protocol string
		Port                int
	} `json:"listeners"`
	Warren struct {
		Level  int                 `json:"level"`
		Leader string              `json:"catalog_leader"`
		Voters []string            `json:"catalog_voters"`
		Zones  map[string][]string `json:"zones"`
	} `json:"warren"`
}

func statusOf(t *testing.T, n *cluster.Node) (s clusterStatus) {
	t.Helper()
	if err := json.Unmarshal([]byte(mustCtl(t, n, "cluster_status", "--formatter", "json")), &s); err != nil {
		t.Fatal(err)
	}
	return s
}

// TestZonesAndClusterStatus has four nodes in three zones, on all interfaces: a queue has one replica in each zone, and cluster_status tells
// addresses that can be used, versions and zones, and who runs.
func TestZonesAndClusterStatus(t *testing.T) {
	t.Parallel()
	zones := map[string]string{"node1": "east", "node2": "east", "node3": "west", "node4": "south"}
	c := newCluster(t, 4, func(cfg *cluster.Config) {
		cfg.Places = func(node string) (cluster.Place, error) {
			return cluster.Place{Args: func(a cluster.Addrs) ([]string, error) {
				_, port, err := net.SplitHostPort(a.AMQP)
				return []string{"--zone", zones[node], "--advertise-host", "127.0.0.1", "--amqp-addr", "0.0.0.0:" + port}, err
			}}, nil
		}
	})
	startAll(t, c)
	names := []string{"node1", "node2", "node3", "node4"}
	var s clusterStatus
	until := func(what string, ok func() bool) {
		t.Helper()
		for end := time.Now().Add(timeoutStart); !ok(); time.Sleep(50 * time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("not within %v: %s; %+v", timeoutStart, what, s)
			}
		}
	}
	for _, n := range c.Nodes() {
		until("all nodes are described", func() bool {
			s = statusOf(t, n)
			return slices.Equal(s.RunningNodes, names) && len(s.Versions) == 4 && len(s.Listeners) == 4 &&
				fmt.Sprint(s.Warren.Zones) == "map[east:[node1 node2] south:[node4] west:[node3]]" && s.Warren.Level == 2 && len(s.Warren.Voters) == 3 &&
				slices.Contains(names, s.Warren.Leader) && slices.Equal(s.DiskNodes, names)
		})
		for _, node := range c.Nodes() {
			if l := s.Listeners[node.Name]; len(l) == 0 || l[0].Protocol != "amqp" || fmt.Sprintf("%s:%d", l[0].Interface, l[0].Port) != node.AMQPAddr() {
				t.Errorf("%s listens at %+v, want %s", node.Name, l, node.AMQPAddr())
			}
		}
	}
	untilSays(t, c.Node(2), "Running Nodes\n\nnode1\nnode2\nnode3\nnode4\n", "cluster_status")
	for i := range 8 {
		q := at(t, c.Node(i%3)).queue(fmt.Sprintf("zoned%d", i), amqp.Table{"x-queue-type": "quorum"})
		found, err := c.Queue(t.Context(), q)
		if err != nil {
			t.Fatal(err)
		}
		in := map[string]bool{}
		for _, m := range found.Members {
			name, _, _ := strings.Cut(m, "/")
			in[zones[name]] = true
		}
		if len(found.Members) != 3 || len(in) != 3 {
			t.Errorf("%s is on %v, in zones %v", q, found.Members, in)
		}
	}
	if err := c.Node(3).Kill(); err != nil {
		t.Fatal(err)
	}
	until("the dead one does not run", func() bool {
		s = statusOf(t, c.Node(0))
		return slices.Equal(s.RunningNodes, names[:3]) && slices.Equal(s.DiskNodes, names)
	})
}

// voting is a cluster in which the catalog's voters are killed.
type voting struct {
	*cluster.Cluster
	t      *testing.T
	killed map[string]bool
}

func newVoting(t *testing.T, nodes int) *voting {
	t.Helper()
	v := &voting{t: t, killed: map[string]bool{}}
	v.Cluster = newCluster(t, nodes, func(cfg *cluster.Config) { cfg.Args = []string{"--voter-replace-after", "1s"} })
	startAll(t, v.Cluster)
	untilFlags(t, v.Cluster, "enabled enabled")
	return v
}

// living is the first node that was not killed.
func (v *voting) living() *cluster.Node {
	for _, n := range v.Nodes() {
		if !v.killed[n.Name] {
			return n
		}
	}
	return nil
}

// kill ends one of the catalog's voters.
func (v *voting) kill() (victim string) {
	v.t.Helper()
	for _, name := range statusOf(v.t, v.living()).Warren.Voters {
		if !v.killed[name] {
			victim = name
		}
	}
	v.killed[victim] = true
	if err := v.ByName(victim).Kill(); err != nil {
		v.t.Fatal(err)
	}
	return victim
}

func (v *voting) until(what string, ok func(st *clusterStatus) bool) {
	v.t.Helper()
	for end := time.Now().Add(2 * timeoutStart); ; time.Sleep(200 * time.Millisecond) {
		st := statusOf(v.t, v.living())
		if ok(&st) {
			return
		}
		if time.Now().After(end) {
			v.t.Fatalf("not within %v: %s; %+v", 2*timeoutStart, what, st)
		}
	}
}

// declares checks that the catalog takes commands.
func (v *voting) declares(name string) {
	v.t.Helper()
	s := at(v.t, v.living())
	q := s.queue(name, amqp.Table{"x-queue-type": "quorum"})
	s.fill(q, "one")
	// It may have a replica on a node that is dead and not known to be, which could not be forgotten then.
	if _, err := s.ch.QueueDelete(q, false, false, false); err != nil {
		v.t.Fatal(err)
	}
}

// TestVoterIsReplaced kills one of five nodes, which vote in the catalog, and a second one when only three of the others vote:
// queues can still be declared, the nodes that come back do not lack anything, and five vote again.
func TestVoterIsReplaced(t *testing.T) {
	t.Parallel()
	v := newVoting(t, 5)
	v.until("five vote", func(st *clusterStatus) bool { return len(st.Warren.Voters) == 5 })
	first := v.kill()
	v.until("three of the others vote", func(st *clusterStatus) bool {
		return len(st.Warren.Voters) == 3 && !slices.Contains(st.Warren.Voters, first)
	})
	v.kill()
	v.declares("after")
	startAll(t, v.Cluster) // those that do not run
	v.until("all run again", func(st *clusterStatus) bool { return len(st.RunningNodes) == 5 && len(st.Warren.Voters) == 5 })
}

// TestFiveVoters has five voters of seven nodes, and kills two of them at once: they are replaced. When the dead are forgotten all
// five nodes that are left vote, and when one of these has been dead for long, three of the other four.
func TestFiveVoters(t *testing.T) {
	t.Parallel()
	v := newVoting(t, 7)
	v.until("five vote", func(st *clusterStatus) bool { return len(st.Warren.Voters) == 5 })
	dead := []string{v.kill(), v.kill()}
	v.declares("with three of five")
	v.until("others vote in their places", func(st *clusterStatus) bool {
		return len(st.Warren.Voters) == 5 && !slices.ContainsFunc(dead, func(d string) bool { return slices.Contains(st.Warren.Voters, d) })
	})
	for _, d := range dead {
		mustCtl(t, v.living(), "forget_cluster_node", d)
	}
	v.until("five are left", func(st *clusterStatus) bool { return len(st.DiskNodes) == 5 && len(st.Warren.Voters) == 5 })
	v.kill()
	v.until("three vote", func(st *clusterStatus) bool { return len(st.Warren.Voters) == 3 })
	v.kill()
	v.declares("with two of three")
}
