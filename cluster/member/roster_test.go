package member

import (
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
	r.drop(current)
	if got := r.newest(); got["a/1"].Boot != 1 {
		t.Errorf("members without the newer start: %v", got)
	}
}
