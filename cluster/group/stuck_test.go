package group

import (
	"testing"
	"time"

	"github.com/warrenmq/warren/transport"
)

// TestLeadershipsLeaveAHungDisk has the disk of a leader hang: another node leads although nothing has died, takes new entries while the disk hangs, and keeps
// what was under way. The node that it left takes no leadership as long as that lasts, and for a while after it.
func TestLeadershipsLeaveAHungDisk(t *testing.T) {
	open, disks := heldStorage(t)
	c := newRealCluster(t, open, QueueProfile())
	c.found(1)
	former, others := c.leaderOf(queueA)
	confirmed(t, "before", confirm(former, "before"))
	local := former.host.cfg.Local
	disks[local].mu.Lock()
	underWay := confirm(former, "under way")
	for _, n := range others {
		waitFor(t, time.Minute, "it was not sent", func() bool { return n.has(queueA, "under way") })
	}
	var leader *Group
	waitFor(t, time.Minute, "nobody else leads", func() bool {
		for _, n := range others {
			if g, ok := n.host.Group(queueA); ok && g.IsLeader() {
				leader = g
			}
		}
		return leader != nil
	})
	confirmed(t, "while the disk hangs", confirm(leader, "after"))
	if !former.host.unwilling() || leader.host.unwilling() {
		t.Error("the node whose disk hangs takes leaderships, or the other one does not")
	}
	waitFor(t, time.Minute, "the leadership is not counted as given away", func() bool { return former.host.Stats().Fled == 1 })
	disks[local].mu.Unlock()
	waitFor(t, time.Minute, "the former leader does not follow", func() bool {
		l, _, ok := former.Leader()
		return ok && l == leader.host.cfg.Local && !former.IsLeader()
	})
	<-underWay // nobody can say what comes of it, but once
	if !former.host.unwilling() {
		t.Error("leaderships come back at once")
	}
	for _, n := range c.nodes {
		waitFor(t, time.Minute, "an entry is missing", func() bool { return n.times(queueA, "after") == 1 })
		if once := n.times(queueA, "under way"); once != 1 {
			t.Errorf("%s has what was under way %d times", n.id, once)
		}
	}
}

// times counts how often a node has applied a text.
func (n *realNode) times(id transport.GroupID, text string) (count int) {
	n.mu.Lock()
	m := n.machines[id]
	n.mu.Unlock()
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, it := range m.items {
		if it == text {
			count++
		}
	}
	return count
}

// TestLeadershipsStayWhereNoDiskIsBetter: where the other disks hang as well, as when all are of one machine, nothing moves.
func TestLeadershipsStayWhereNoDiskIsBetter(t *testing.T) {
	open, disks := heldStorage(t)
	c := newRealCluster(t, open, QueueProfile())
	c.found(3)
	var terms []uint64
	for _, id := range c.every(3) {
		leader, _ := c.leaderOf(id)
		terms = append(terms, leader.replica().CurrentTerm())
	}
	for _, id := range c.ids[:2] {
		disks[id].mu.Lock()
	}
	var answers []<-chan error
	for _, id := range c.every(3) {
		leader, _ := c.leaderOf(id)
		answers = append(answers, confirm(leader, "late"))
	}
	time.Sleep(2*time.Second + 3*stuckAgain)
	for _, id := range c.ids[:2] {
		disks[id].mu.Unlock()
	}
	for _, a := range answers {
		confirmed(t, "when the disks are back", a)
	}
	for i, id := range c.every(3) {
		if leader, _ := c.leaderOf(id); leader.replica().CurrentTerm() != terms[i] {
			t.Errorf("group %d has had another leader", id)
		}
	}
}
