package netns

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/warrenmq/warren/test/cluster"
	"github.com/warrenmq/warren/test/dns"
)

// confirmMax bounds the longest confirm while nodes are restarted one by one, since then.
func confirmMax(begun time.Time) time.Duration {
	most := 2 * time.Second
	if os.Getenv(cluster.RaceEnv) != "" {
		most = 5 * time.Second
	}
	return most + 2*cluster.Stalled(begun)
}

// founded is a rig whose nodes are ready, with the user app.
func founded(t *testing.T, o options) *rig {
	t.Helper()
	r := newRig(t, o)
	r.publishAll()
	r.readyAll()
	r.user(r.Cluster)
	return r
}

// numbered are n bodies.
func numbered(prefix string, n int) (list []string) {
	for i := range n {
		list = append(list, fmt.Sprint(prefix, i))
	}
	return list
}

// TestAddressesChange gives the nodes other addresses, as pods have that are made anew: one after the other, all at once to addresses that nobody had, and
// all at once to each other's. The name's records are stale for a while. All is there afterwards, and nobody is a new node.
func TestAddressesChange(t *testing.T) {
	t.Parallel()
	r := founded(t, options{nodes: 3})
	before := r.status(r.Node(0))
	ch := r.dial(r.Node(0))
	r.declare(ch, "kept", nil)
	r.send(ch, "kept", numbered("first-", 20)...)
	want := numbered("first-", 20)

	for i, n := range r.Nodes() {
		r.must("kill", n.Kill())
		r.move(n)
		// The records are late: the node is there before its address is, and the former one stays.
		r.must("launch", n.Launch())
		after := r.publishAllAfter(500 * time.Millisecond)
		d := r.until(n.Name+" is ready at another address", timeoutStart, func() bool { return ready(n) })
		after.Stop()
		r.publishAll()
		t.Logf("%s was ready %v after its start at %s", n.Name, d.Round(time.Millisecond), n.AMQPAddr())
		ch := r.dial(n)
		body := fmt.Sprint("moved-", i)
		r.send(ch, "kept", body)
		want = append(want, body)
	}

	stale := r.ips()
	for _, how := range []string{"to new addresses", "to each other's addresses"} {
		r.must("kill all", r.KillAll())
		if how == "to new addresses" {
			r.move(r.Nodes()...)
			r.publish(dns.Answer{Addrs: stale, TTL: 5})
			both := append(slices.Clone(stale), r.ips()...)
			time.AfterFunc(time.Second, func() { r.publish(dns.Answer{Addrs: both, TTL: 5}) })
		} else {
			numbers := map[string]int{"node1": r.fresh - 1, "node2": r.fresh, "node3": r.fresh - 2}
			r.renumber(numbers)
			r.publishAll()
		}
		d := r.readyAll()
		ch := r.dial(r.Node(1))
		confirmed := r.send(ch, "kept", how)
		want = append(want, how)
		t.Logf("all went %s: ready after %v, the first confirm took %v", how, d.Round(time.Millisecond), confirmed.Round(time.Millisecond))
		r.publishAll()
	}
	r.holds(r.dial(r.Node(2)), "kept", want...)
	r.work(r.Cluster)
	for _, n := range r.Nodes() {
		s := r.status(n)
		if s.ID != before.ID || !slices.Equal(s.RunningNodes, before.RunningNodes) || len(s.DiskNodes) != 3 {
			t.Errorf("%s says %+v, before %+v", n.Name, s, before)
		}
		if out := r.ctl(n, "cluster_status"); !strings.Contains(out, r.ip("node1").String()) {
			t.Errorf("%s does not know the address of node1, %s:\n%s", n.Name, r.ip("node1"), out)
		}
	}
}

// TestEmptyDiskAtAnotherAddress loses a node's disk: what comes back under its name at another address is another server. The
// others' queues go on, and the cluster has as many nodes as before.
func TestEmptyDiskAtAnotherAddress(t *testing.T) {
	t.Parallel()
	r := founded(t, options{nodes: 3})
	ch := r.dial(r.Node(0))
	r.declare(ch, "kept", nil)
	r.send(ch, "kept", numbered("m", 50)...)
	lost := r.Node(2)
	r.must("kill", lost.Kill())
	r.must("wipe", os.RemoveAll(lost.DataDir()))
	r.move(lost)
	r.publishAll()
	d := r.readyAll()
	t.Logf("ready with an empty disk after %v", d.Round(time.Millisecond))
	r.send(ch, "kept", "later")
	r.work(r.Cluster)
	if ids := r.clusters(r.Nodes()...); len(ids) != 1 {
		t.Errorf("clusters %v", ids)
	}
	if s := r.status(lost); len(s.DiskNodes) != 3 || len(s.RunningNodes) != 3 {
		t.Errorf("it says %+v", s)
	}
	r.holds(r.dial(lost), "kept", append(numbered("m", 50), "later")...)
}

// TestRollingRestartAtNewAddresses restarts each node in turn, as a StatefulSet does: stopped in order, back at an address that nobody had, and the next one when it is
// ready. The name's records are 500 ms late. Publishers publish all the while, to queues whose messages expire into others.
func TestRollingRestartAtNewAddresses(t *testing.T) {
	t.Parallel()
	r := founded(t, options{nodes: 3})
	travelled := time.Now()
	arrive := r.travel(journey{sources: 12, dead: 3, publishers: 4})
	for _, n := range r.Nodes() {
		time.Sleep(time.Second)
		begun := time.Now()
		stopping, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		r.must("stop", n.Stop(stopping))
		cancel()
		stopped := time.Since(begun)
		r.move(n)
		late := r.publishAllAfter(500 * time.Millisecond)
		r.readyAll()
		late.Stop()
		r.publishAll()
		t.Logf("%s: stopped in %v, away for %v", n.Name, stopped.Round(time.Millisecond), time.Since(begun).Round(time.Millisecond))
	}
	time.Sleep(time.Second)
	v := arrive(timeoutReply)
	for _, why := range v.Moves {
		if !strings.Contains(why, "320") && why != "<nil>" {
			t.Errorf("a publisher was sent away with %s", why)
		}
	}
	if v.Longest > confirmMax(travelled) {
		t.Errorf("longest confirm %v", v.Longest)
	}
}

// TestIPv6Only has nodes that have addresses of IPv6 and no others. They listen on all interfaces or at their address, and find each other by AAAA records or by addresses
// in brackets.
func TestIPv6Only(t *testing.T) {
	any := func(string) []string {
		return []string{"--amqp-addr", "[::]:5672", "--http-addr", "[::]:15672", "--grpc-addr", "[::]:5680", "--cluster-addr", "[::]:5681", "--gossip-addr", "[::]:5682"}
	}
	for _, tc := range []struct {
		name string
		join string
		args func(string) []string
	}{
		{"records, at their addresses", "", nil},
		{"records, on all interfaces", "", any},
		{"in brackets, on all ports", "[fd77:0:0:LAN:0::1]:5682,[fd77:0:0:LAN::2]:5682", func(string) []string {
			return []string{"--amqp-addr", ":5672", "--http-addr", ":15672", "--grpc-addr", ":5680", "--cluster-addr", ":5681", "--gossip-addr", ":5682"}
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, options{nodes: 3, v6: true, join: tc.join, args: tc.args})
			r.publishAll()
			r.readyAll()
			r.user(r.Cluster)
			r.work(r.Cluster)
			victim := r.Node(0)
			ch := r.dial(r.Node(1))
			r.declare(ch, "kept", nil)
			r.send(ch, "kept", "one")
			if out := r.ctl(r.Node(1), "cluster_status"); !strings.Contains(out, r.ip(victim.Name).String()) {
				t.Errorf("it does not know %s:\n%s", r.ip(victim.Name), out)
			}
			r.must("kill", victim.Kill())
			r.send(ch, "kept", "two")
			r.move(victim)
			r.publishAll()
			r.readyAll()
			r.holds(r.dial(victim), "kept", "one", "two")
			if ids := r.clusters(r.Nodes()...); len(ids) != 1 {
				t.Errorf("clusters %v", ids)
			}
		})
	}
}
