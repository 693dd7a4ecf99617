package main

import (
	"iter"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/warrenmq/warren/catalog"
	"github.com/warrenmq/warren/transport"
)

// told is what neighbours have said last.
type told struct{ peers []transport.NodeID }

func (t *told) SetPeers(nodes []transport.NodeID) { t.peers = slices.Clone(nodes) }

func (*told) Gone([]transport.NodeID) {}

// TestNeighboursAreNotForgotten has the catalog learn of the nodes while somebody, who has looked before, is about to tell who there is.
func TestNeighboursAreNotForgotten(t *testing.T) {
	var nodes atomic.Pointer[[]*catalog.Node]
	nodes.Store(&[]*catalog.Node{})
	looking := make(chan chan struct{}) // of each that has read the catalog: closed to let it go on
	links, watch := &told{}, &told{}
	n := &neighbours{
		local: "a/1", left: func(transport.NodeID) bool { return false },
		known: func() iter.Seq[*catalog.Node] { return slices.Values(*nodes.Load()) },
		heard: func() []transport.NodeID {
			goOn := make(chan struct{})
			looking <- goOn
			<-goOn
			return []transport.NodeID{"b/1", "d/1"}
		},
		links: links, watch: watch,
	}
	refresh := func() chan struct{} {
		done := make(chan struct{})
		go func() { defer close(done); n.refresh() }()
		return done
	}
	early := refresh()
	earlyGoesOn := <-looking
	nodes.Store(&[]*catalog.Node{{ID: "a/1"}, {ID: "b/1"}, {ID: "c/1"}, {ID: "c/0", Superseded: true}})
	late := refresh()
	select {
	case goOn := <-looking: // beside the first
		close(goOn)
		<-late
		close(earlyGoesOn)
		<-early
	case <-time.After(50 * time.Millisecond):
		close(earlyGoesOn)
		<-early
		close(<-looking)
		<-late
	}
	if want := []transport.NodeID{"b/1", "c/1"}; !slices.Equal(watch.peers, want) {
		t.Errorf("watched are %v, want %v", watch.peers, want)
	}
	if want := []transport.NodeID{"b/1", "c/1", "d/1"}; !slices.Equal(links.peers, want) {
		t.Errorf("links are kept to %v, want %v", links.peers, want)
	}
}

// TestFormerNodesAreNoNeighbours: links are kept to founders and others that the catalog does not know yet, and not to those that were replaced or have left.
func TestFormerNodesAreNoNeighbours(t *testing.T) {
	nodes := []*catalog.Node{{ID: "a/1"}}
	gone := map[transport.NodeID]bool{}
	links := &told{}
	n := &neighbours{
		local: "a/1", founders: []transport.NodeID{"a/1", "b/1", "c/1"},
		known: func() iter.Seq[*catalog.Node] { return slices.Values(nodes) },
		left:  func(id transport.NodeID) bool { return gone[id] },
		heard: func() []transport.NodeID { return []transport.NodeID{"b/1", "d/1"} },
		links: links, watch: &told{},
	}
	expect := func(what string, want ...transport.NodeID) {
		t.Helper()
		n.refresh()
		if !slices.Equal(links.peers, want) {
			t.Errorf("%s: links are kept to %v, want %v", what, links.peers, want)
		}
	}
	expect("the others have not registered yet", "b/1", "c/1", "d/1")
	nodes = append(nodes, &catalog.Node{ID: "b/1", Superseded: true}, &catalog.Node{ID: "b/2"})
	expect("b has another storage", "b/2", "c/1", "d/1")
	nodes = slices.Delete(nodes, 1, 2)
	gone["b/1"], gone["c/1"] = true, true
	expect("the former one is forgotten, and c has left", "b/2", "d/1")
}
