package process

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/warrenmq/warren/test/cluster"
)

// hungPause is how long clients wait at most when the disk under a queue's leader hangs, as when its node is frozen.
const hungPause = 3 * time.Second

// hungRest is what the declarations that follow take together, on a machine with other work; each would wait for seconds if it waited for that disk.
const hungRest = 2 * time.Second

// TestHungDisk has the disk of the node that leads a queue hang for longer than clients are to wait: another node leads it, for the clients of the node with the
// hung disk, too, nothing is lost, and no connection ends. When the disk is well again the node gets its leaderships back, but not at once.
func TestHungDisk(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 3, breakable(t))
	startAll(t, c)
	q := plainQueue(at(t, c.Node(0)), "q", nil)
	leader, others := leaderOf(t, c, q)
	l := startLoad(t, q, leader.URL(), []string{others[0].URL(), leader.URL()}, 300)
	l.progress(300)
	setDisk(t, leader, cluster.Disk{SyncDelay: 6 * time.Second})
	l.progress(600)
	if next, _ := leaderOf(t, c, q); next == leader {
		t.Errorf("%s still leads", leader.Name)
	}
	if said(t, leader, "the log does not get on, other nodes lead its groups") == 0 {
		t.Error("the node does not say that its disk hangs")
	}
	setDisk(t, leader, cluster.Disk{})
	l.progress(300)
	confirms, deliveries := l.finish()
	if confirms > hungPause || deliveries > hungPause {
		t.Errorf("clients waited for %v and %v", confirms, deliveries)
	}
	await(t, timeoutStart, "its leader is home again", func() bool { now, _ := leaderOf(t, c, q); return now == leader })
}

// TestHungDiskOfTheCatalog has the disk of the node that leads the catalog hang: clients of other nodes declare in the time in which they would if the node were frozen,
// and from then on without waiting for it.
func TestHungDiskOfTheCatalog(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 3, breakable(t))
	startAll(t, c)
	old := statusOf(t, c.Node(0)).Warren.Leader
	for i := range 3 {
		plainQueue(at(t, c.Node(i)), fmt.Sprint("before", i), nil)
	}
	setDisk(t, c.ByName(old), cluster.Disk{SyncDelay: 8 * time.Second})
	begun, waited := time.Now(), time.Duration(0)
	for i := range 3 {
		n := c.Node(i)
		if n.Name == old {
			continue
		}
		s := at(t, n)
		if err := s.ch.ExchangeDeclare("x"+n.Name, "fanout", true, false, false, false, nil); err != nil {
			t.Fatal(err)
		}
		t.Logf("%s: exchange after %v", n.Name, time.Since(begun))
		if waited == 0 {
			waited = time.Since(begun)
		}
		q := plainQueue(s, "q"+n.Name, nil)
		if err := s.ch.QueueBind(q, "", "x"+n.Name, false, nil); err != nil {
			t.Fatal(err)
		}
		t.Logf("%s: queue and binding after %v", n.Name, time.Since(begun))
		if next := statusOf(t, n).Warren.Leader; next == old {
			t.Errorf("%s still leads the catalog", old)
		}
	}
	if rest := time.Since(begun) - waited; waited > hungPause || rest > hungRest {
		t.Errorf("clients waited for %v, and %v for all that followed", waited, rest)
	}
	if said(t, c.ByName(old), "the catalog's disk does not answer, another node leads") == 0 {
		t.Error("the node does not say that its disk hangs")
	}
	setDisk(t, c.ByName(old), cluster.Disk{})
	s := at(t, c.ByName(old))
	for i := range 3 {
		if n := c.Node(i); n.Name != old {
			plainQueue(s, "q"+n.Name, nil)
		}
	}
	plainQueue(s, "after", nil)
}

// TestChangeThroughANodeWithAHungDisk has an operator ask a node whose disk hangs for a change. The others make it and the node cannot see that: the operator is told
// that it may have been made, and the node that its disk is the reason why it is not ready.
func TestChangeThroughANodeWithAHungDisk(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 3, breakable(t))
	startAll(t, c)
	leader := c.ByName(statusOf(t, c.Node(0)).Warren.Leader)
	var hung *cluster.Node
	for _, n := range c.Nodes() {
		if n != leader {
			hung = n
		}
	}
	s := at(t, leader)
	q := plainQueue(s, "q", nil)
	setDisk(t, hung, cluster.Disk{SyncDelay: 10 * time.Minute})
	s.fill(q, "for its disk to hang at")
	code, _, failure := ctl(t, hung, "add_user", "late", "secret")
	if code != 75 || !strings.Contains(failure, "may have been made") {
		t.Errorf("exit code %d: %s", code, failure)
	}
	await(t, timeoutReply, "the others have the user", func() bool {
		_, users, _ := ctl(t, leader, "list_users", "--silent")
		return strings.Contains(users, "late")
	})
	_, _, why := ctl(t, hung, "check_if_node_is_ready")
	if !strings.Contains(why, "the disk has not answered") {
		t.Errorf("the node is not ready because %s", why)
	}
}
