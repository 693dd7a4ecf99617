package group

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"github.com/warrenmq/warren/transport"
)

// heir is a ledger that notes that it began another life.
type heir struct{ ledger }

func (h *heir) Succeed() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.items = append(h.items, "another life")
}

// TestGroupGoesOnFromOneReplica takes two of three nodes away for good: another group begins from the third one's replica, also from what is
// not known to be committed, goes on after a restart, and gets another replica.
func TestGroupGoesOnFromOneReplica(t *testing.T) {
	const next, generation = queueA + 900, 77
	c := newRealCluster(t, diskStorage(t), eager())
	c.found(1)
	last := c.nodes["a/1"]
	former, _ := last.host.Group(queueA)
	waitFor(t, 30*time.Second, "the replica does not have it", func() bool { return len(last.machines[queueA].all()) > 0 })
	c.kill("b/1").close(t)
	lost := c.kill("c/1")
	positions, err := last.host.Positions(t.Context(), "a/1", []transport.GroupID{queueA, next})
	if err != nil || !positions[0].Known || !positions[0].Voter || positions[0].LastIndex == 0 || positions[1].Known {
		t.Fatalf("positions %+v, %v", positions, err)
	}
	if err := last.host.Stop(queueA); err != nil {
		t.Fatal(err)
	}
	if err := former.log.StoreLog(&raft.Log{Index: positions[0].LastIndex + 1, Term: positions[0].LastTerm + 5, Data: []byte("not committed")}); err != nil {
		t.Fatal(err)
	}
	spec := Spec{ID: next, Generation: generation, Members: []transport.NodeID{"a/1"}, Preferred: "a/1", Bootstrap: true, From: queueA}
	begin := func(n *realNode) *heir {
		t.Helper()
		if err := n.host.Stop(queueA); err != nil {
			t.Fatal(err)
		}
		h := &heir{}
		if _, err := n.host.Start(spec, h, nil); err != nil {
			t.Fatal(err)
		}
		return h
	}
	h := begin(last)
	c.commitAll([]transport.GroupID{next}, "new", time.Minute)
	if got := slices.Compact(h.all()); fmt.Sprint(got) != "[first not committed another life new]" {
		t.Errorf("the new group has %q", got)
	}
	g, _ := last.host.Group(next)
	if members := g.Members(); len(members) != 1 || members[0].Replica != transport.Replica("a/1", generation) {
		t.Errorf("its members are %v", members)
	}
	if index, term := g.Beginning(); index <= positions[0].LastIndex || term < positions[0].LastTerm {
		t.Errorf("it began at %d of term %d, the former one ended at %+v", index, term, positions[0])
	}
	// Else a replica that is added and has only what the former life left would seem newer than one with the new life's entries.
	if _, term := g.Beginning(); g.replica().CurrentTerm() <= term {
		t.Errorf("its term is %d, the former one's entries are of up to %d", g.replica().CurrentTerm(), term)
	}
	// A start that was not told the outcome goes on, and does not begin once more.
	last.close(t)
	last = c.boot("a/1")
	h = begin(last)
	c.commitAll([]transport.GroupID{next}, "after a restart", time.Minute)
	if got := slices.Compact(h.all()); fmt.Sprint(got) != "[first not committed another life new after a restart]" {
		t.Errorf("after a restart it has %q", got)
	}
	// It grows like any other.
	lost.close(t)
	other := c.boot("c/1")
	added := &ledger{}
	if _, err := other.host.Start(Spec{ID: next, Generation: 80, Members: []transport.NodeID{"a/1"}}, added, nil); err != nil {
		t.Fatal(err)
	}
	g, _ = last.host.Group(next)
	waitFor(t, time.Minute, "no other replica", func() bool {
		err := g.AddVoter(t.Context(), transport.Replica("c/1", 80), 0)
		return err == nil
	})
	waitFor(t, time.Minute, "the other replica lacks something", func() bool {
		return fmt.Sprint(slices.Compact(added.all())) == "[first not committed another life new after a restart]"
	})
}

// TestNothingToInherit begins a group whose former one left no trace here, and refuses a machine that cannot go on in another group.
func TestNothingToInherit(t *testing.T) {
	c := newRealCluster(t, diskStorage(t), eager())
	n := c.nodes["a/1"]
	spec := Spec{ID: queueA, Generation: 5, Members: []transport.NodeID{"a/1"}, Preferred: "a/1", From: 3}
	if _, err := n.host.Start(spec, &ledger{}, nil); err == nil {
		t.Error("a ledger is no heir")
	}
	h := &heir{}
	if _, err := n.host.Start(spec, h, nil); err != nil {
		t.Fatal(err)
	}
	c.commitAll([]transport.GroupID{queueA}, "new", time.Minute)
	if got := slices.Compact(h.all()); fmt.Sprint(got) != "[another life new]" {
		t.Errorf("it has %q", got)
	}
}
