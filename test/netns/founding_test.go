package netns

import (
	"math/rand/v2"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/warrenmq/warren/jepsen/network"
	"github.com/warrenmq/warren/test/cluster"
	"github.com/warrenmq/warren/test/dns"
)

// stayUnfounded watches that no node belongs to a cluster for some time.
func (r *rig) stayUnfounded(d time.Duration, while string) {
	r.Helper()
	for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		if ids := r.clusters(r.Nodes()...); len(ids) > 0 {
			r.Fatalf("%s there is a cluster: %v", while, ids)
		}
	}
	for _, n := range r.Nodes() {
		if ready(n) {
			r.Fatalf("%s %s is ready", while, n.Name)
		}
	}
}

// oneCluster waits until all nodes are ready and checks that they are in one cluster.
func (r *rig) oneCluster() string {
	r.Helper()
	r.readyAll()
	ids := r.clusters(r.Nodes()...)
	if len(ids) != 1 {
		r.Fatalf("there are %d clusters: %v", len(ids), ids)
	}
	return ids[0]
}

// TestFoundingByDNS founds a cluster of nodes that know a name and nothing else. There is no such name at first, then it has one address, then
// all, in answers that are late and so long that they come over TCP only.
func TestFoundingByDNS(t *testing.T) {
	t.Parallel()
	r := newRig(t, options{nodes: 3})
	r.launchAll()
	r.until("two questions of each node", timeoutReply, func() bool { return r.dns.Asked(nodesName).UDP >= 6 })
	asked, asking := r.dns.Asked(nodesName).UDP, time.Now()
	r.stayUnfounded(1500*time.Millisecond, "without the name")
	if n := r.dns.Asked(nodesName).UDP - asked; n > 30*int(1+time.Since(asking).Seconds()) {
		t.Errorf("three nodes asked %d times in %v", n, time.Since(asking))
	}
	r.publish(dns.Answer{Fail: true})
	r.stayUnfounded(500*time.Millisecond, "with a server that fails")
	// Nobody is there, and nobody ever was.
	r.publish(dns.Answer{Addrs: []netip.Addr{netip.MustParseAddr("10.77.250.1")}, TTL: 5})
	r.stayUnfounded(500*time.Millisecond, "with a stale record")
	r.publish(dns.Answer{Addrs: r.ips(), TTL: 0, Delay: 1500 * time.Millisecond, Truncate: true})
	begun := time.Now()
	r.oneCluster()
	t.Logf("all were ready %v after the name had addresses", time.Since(begun).Round(time.Millisecond))
	if asked := r.dns.Asked(nodesName); asked.TCP == 0 {
		t.Error("nobody asked over TCP")
	}
	log, err := os.ReadFile(r.Node(0).LogFile())
	r.must("read the log", err)
	for _, line := range []string{"a join address was not resolved", "a join address was resolved", "waiting for a cluster"} {
		if !strings.Contains(string(log), line) {
			t.Errorf("the log does not say %q", line)
		}
	}
	r.user(r.Cluster)
	r.work(r.Cluster)
	// While all are there nobody asks often.
	before, calm := r.dns.Asked(nodesName), time.Now()
	time.Sleep(3 * time.Second)
	if n := r.dns.Asked(nodesName).UDP - before.UDP; n > 4*int(1+time.Since(calm).Seconds()) {
		t.Errorf("three nodes that have each other asked %d times in %v", n, time.Since(calm))
	}
}

// TestFirstStartsInPartition starts nodes that shall found a cluster of all, while their network is cut in two, or in one direction: there is no
// cluster before it is whole again, and then one.
func TestFirstStartsInPartition(t *testing.T) {
	for _, tc := range []struct {
		name string
		a, b []string
		way  string // both, ab, ba: what is cut
	}{
		{"three, one alone", []string{"node1"}, []string{"node2", "node3"}, "both"},
		{"three, one mute", []string{"node1"}, []string{"node2", "node3"}, "ab"},
		{"three, one deaf", []string{"node1"}, []string{"node2", "node3"}, "ba"},
		{"five, two and three", []string{"node1", "node2"}, []string{"node3", "node4", "node5"}, "both"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, options{nodes: len(tc.a) + len(tc.b)})
			r.publishAll()
			if tc.way != "ba" {
				r.cut(tc.a, tc.b, network.Link{Cut: true})
			}
			if tc.way != "ab" {
				r.cut(tc.b, tc.a, network.Link{Cut: true})
			}
			r.launchAll()
			r.stayUnfounded(3*time.Second, "in parts")
			r.lan.Heal()
			begun := time.Now()
			r.oneCluster()
			t.Logf("ready %v after the network was whole", time.Since(begun).Round(time.Millisecond))
			r.user(r.Cluster)
			r.work(r.Cluster)
		})
	}
}

// TestFirstStartsWhileLinksFlap founds clusters while links are cut and healed by chance and nodes are killed: there is never a second one.
func TestFirstStartsWhileLinksFlap(t *testing.T) {
	t.Parallel()
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rnd := rand.New(rand.NewPCG(seed, 0))
	r := newRig(t, options{nodes: 3})
	r.publishAll()
	names := []string{"node1", "node2", "node3"}
	for round := range 4 {
		for _, n := range r.Nodes() {
			r.must("kill", n.Kill())
			r.must("wipe", os.RemoveAll(n.DataDir()))
		}
		r.launchAll()
		for end := time.Now().Add(2500 * time.Millisecond); time.Now().Before(end); time.Sleep(time.Duration(rnd.IntN(150)) * time.Millisecond) {
			a, b := names[rnd.IntN(3)], names[rnd.IntN(3)]
			if a == b {
				n := r.ByName(a)
				r.must("kill", n.Kill())
				r.must("launch", n.Launch())
				continue
			}
			r.must("cut", r.lan.Harm([]network.Pair{{From: a, To: b}}, network.Link{Cut: rnd.IntN(2) == 0}))
			if ids := r.clusters(r.Nodes()...); len(ids) > 1 {
				t.Fatalf("round %d: clusters %v", round, ids)
			}
		}
		early := len(r.clusters(r.Nodes()...))
		r.lan.Heal()
		r.oneCluster()
		t.Logf("round %d: %d clusters were founded while links flapped", round, early)
	}
}

// TestForeignAddress has two clusters in one network, whose nodes have the same names, as in two namespaces of Kubernetes. The name of one cluster's nodes
// shows an address of the other's, because an address was given away.
func TestForeignAddress(t *testing.T) {
	t.Parallel()
	r := newRig(t, options{nodes: 3, others: []string{"other1"}, args: func(string) []string { return []string{"--cluster-name", "shop/warren"} }})
	other := r.cluster(cluster.Config{Nodes: 1, Join: "other-nodes:5682", Args: []string{"--cluster-name", "bank/warren"}}, func(string) string { return "other1" }, nil)
	ctx := t.Context()
	r.must("start the other cluster", other.StartAll(ctx))
	r.user(other)
	theirs := r.clusters(other.Nodes()...)[0]
	// Virgin nodes that find the other cluster first do not enter it.
	r.publish(dns.Answer{Addrs: []netip.Addr{r.ip("other1")}, TTL: 5})
	r.launchAll()
	r.stayUnfounded(2*time.Second, "with the address of another cluster's node")
	r.publish(dns.Answer{Addrs: append(r.ips(), r.ip("other1")), TTL: 5})
	ours := r.oneCluster()
	if ours == theirs {
		t.Fatalf("both are cluster %s", ours)
	}
	r.user(r.Cluster)
	r.work(r.Cluster)
	log, err := os.ReadFile(r.Node(0).LogFile())
	r.must("read the log", err)
	if !strings.Contains(string(log), "a node of another cluster was not heard") {
		t.Error("the log says nothing of the other cluster")
	}

	// A node of ours ends, and the other's comes back at its address: neither takes the other for what it was.
	old := r.Node(2)
	r.must("kill", old.Kill())
	r.must("kill", other.Node(0).Kill())
	r.renumber(map[string]int{"node3": r.fresh + 1, "other1": 4})
	r.fresh++
	r.must("move", other.Node(0).Move())
	r.must("start the other cluster", other.Node(0).Start(ctx))
	r.until("a link of ours to the other cluster is refused", timeoutReply, func() bool {
		for _, n := range r.Nodes()[:2] {
			log, err := os.ReadFile(n.LogFile())
			r.must("read the log", err)
			if strings.Contains(string(log), `belongs to cluster \"`+theirs) {
				return true
			}
		}
		return false
	})
	r.work(other)
	for _, n := range r.Nodes()[:2] {
		if s := r.status(n); s.ID != ours || len(s.DiskNodes) != 3 || len(s.RunningNodes) != 2 {
			t.Errorf("%s says %+v", n.Name, s)
		}
	}
	if s := r.status(other.Node(0)); s.ID != theirs || len(s.DiskNodes) != 1 {
		t.Errorf("the other cluster says %+v", s)
	}
	r.readyAll()
	r.work(r.Cluster)
	if ids := r.clusters(append(r.Nodes(), other.Nodes()...)...); len(ids) != 2 {
		t.Errorf("clusters %v", ids)
	}
}
