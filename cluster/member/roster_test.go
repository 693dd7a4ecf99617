package member

import (
	"fmt"
	"net"
	"testing"

	"github.com/hashicorp/memberlist"
)

// TestRoster: of two starts of a node the newer one counts, and a member whose info cannot be
// read is known by its address only. What memberlist changes later does not matter.
func TestRoster(t *testing.T) {
	var r roster
	node := func(name string, boot uint64, port uint16) *memberlist.Node {
		meta, err := encodeMeta(Info{Node: "a/1", Boot: boot, ClusterAddr: "127.0.0.1:1", GossipAddr: "127.0.0.1:2", ClusterID: "c"})
		if err != nil {
			t.Fatal(err)
		}
		return &memberlist.Node{Name: name, Addr: net.IPv4(127, 0, 0, 1), Port: port, Meta: meta}
	}
	old, current, strange := node("a#1", 1, 7001), node("a#2", 2, 7002), &memberlist.Node{Name: "x", Addr: net.IPv4(127, 0, 0, 1), Port: 7003, Meta: []byte("?")}
	for _, n := range []*memberlist.Node{current, old, strange} {
		r.put(n)
	}
	current.Addr, current.Port, current.Meta = nil, 0, nil
	if got := r.newest(); len(got) != 1 || got["a/1"].Boot != 2 {
		t.Errorf("members %v", got)
	}
	if got := r.addrs(); len(got) != 3 || !got["127.0.0.1:7002"] || !got["127.0.0.1:7003"] {
		t.Errorf("addresses %v", got)
	}
	if !r.has("a/1") || r.has("b/1") {
		t.Error("wrong word of who is live")
	}
	r.drop(current)
	if got := r.newest(); got["a/1"].Boot != 1 {
		t.Errorf("members without the newer start: %v", got)
	}
	r.put(node("a#1", 1, 7004)) // an update
	if !r.has("a/1") {
		t.Error("a node with one start less is gone")
	}
	r.drop(old)
	r.drop(old)
	if r.has("a/1") {
		t.Error("a node without a start is live")
	}
}

// TestMembersAreBounded: of members that packets make up there is no room for any number; those that are known stay.
func TestMembersAreBounded(t *testing.T) {
	g := open(t, "a", Config{})
	if err := g.SetCluster(clusterA); err != nil {
		t.Fatal(err)
	}
	d, err := newDelegate(g, g.Self())
	if err != nil {
		t.Fatal(err)
	}
	made := func(i int) *memberlist.Node {
		node := NodeID(fmt.Sprintf("made-up%d/disk", i))
		meta, err := encodeMeta(Info{Node: node, Boot: 1, ClusterAddr: "127.0.0.1:1", GossipAddr: "127.0.0.1:1", ClusterID: clusterA})
		if err != nil {
			t.Fatal(err)
		}
		return &memberlist.Node{Name: string(node) + "#1", Addr: net.IPv4(127, 0, 0, 1), Port: 1, Meta: meta}
	}
	for i := range stateNodesMax + 100 {
		if n := made(i); d.NotifyAlive(n) == nil { // as memberlist does
			d.NotifyJoin(n)
		}
	}
	if n := len(g.Members()); n > stateNodesMax {
		t.Errorf("%d members", n)
	}
	if err := d.NotifyAlive(made(0)); err != nil {
		t.Errorf("a known member: %v", err)
	}
}
