package catalog_test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/warrenmq/warren/amqp"
	"github.com/warrenmq/warren/catalog"
	"github.com/warrenmq/warren/exchange"
	"github.com/warrenmq/warren/transport"
)

// TestProposalsSurviveLeaderChanges declares queues from every node while leaders are killed
// and come back: each proposal takes effect once and returns what it did.
func TestProposalsSurviveLeaderChanges(t *testing.T) {
	c := newNodes(t, 3)
	c.ready()
	var work sync.WaitGroup
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	stop := make(chan struct{})
	ids := make(map[uint64]string)
	var mu sync.Mutex
	declared := 0
	// The proposers run on the node that is never killed.
	calm := c.follower()
	for p := range 4 {
		work.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-stop:
					return
				default:
				}
				name := fmt.Sprintf("q-%d-%d", p, i)
				r, err := calm.catalog.Propose(ctx, replicated(name, c.ids...))
				if err != nil || !r.Changed || r.ID != r.Index {
					t.Errorf("%s: %+v, %v", name, r, err)
					return
				}
				mu.Lock()
				if other, ok := ids[r.ID]; ok {
					t.Errorf("%s and %s have id %d", name, other, r.ID)
				}
				ids[r.ID] = name
				declared++
				mu.Unlock()
			}
		})
	}
	count := func() int {
		mu.Lock()
		defer mu.Unlock()
		return declared
	}
	for range 3 {
		before := count()
		until(t, "proposals go on", func() bool { return count() >= before+20 })
		victim := c.leader()
		if victim == calm {
			// Kill the other follower instead: the calm node leads.
			for _, n := range c.all {
				if n != calm {
					victim = n
				}
			}
		}
		c.kill(victim.id)
		before = count()
		until(t, "proposals go on after a kill", func() bool { return count() >= before+20 })
		c.start(victim.id, victim.dir, true)
	}
	close(stop)
	work.Wait()
	c.ready()
	for id, n := range c.all {
		if err := n.catalog.ReadIndex(ctx); err != nil {
			t.Fatal(err)
		}
		v := n.catalog.View()
		if v.QueueCount() != len(ids) {
			t.Errorf("%s has %d queues, %d were declared", id, v.QueueCount(), len(ids))
		}
		for qid, name := range ids {
			if q := v.QueueByID(qid); q == nil || q.Name != name {
				t.Fatalf("%s: queue %d is %+v, want %s", id, qid, q, name)
			}
		}
	}
	t.Logf("%d queues declared through 3 kills", len(ids))
}

func TestAllNodesRestart(t *testing.T) {
	c := newNodes(t, 3)
	c.ready()
	propose(t, c.follower(), replicated("q", c.ids...))
	dirs := make(map[transport.NodeID]string)
	for id, n := range c.all {
		dirs[id] = n.dir
		n.stop(t)
		delete(c.all, id)
	}
	start := time.Now()
	for id, dir := range dirs {
		c.start(id, dir, true)
	}
	c.ready()
	t.Logf("ready after %v", time.Since(start))
	for id, n := range c.all {
		if n.catalog.View().Queue("/", "q") == nil {
			t.Errorf("%s lost the queue", id)
		}
	}
	propose(t, c.follower(), replicated("q2", c.ids...))
}

func TestRefusalsCrossTheNetwork(t *testing.T) {
	c := newNodes(t, 3)
	c.ready()
	_, err := c.follower().catalog.Propose(context.Background(), &catalog.Bind{Binding: catalog.Binding{Vhost: "/", Source: "nox", Destination: "q"}})
	e, ok := errors.AsType[*amqp.Error](err)
	if !ok || e.ReplyText() != "NOT_FOUND - no exchange 'nox' in vhost '/'" {
		t.Fatal(err)
	}
}

// TestJoinAndReplace lets a fourth node join, then the storage of a founding member be lost and
// replaced: the group is back at three voters without the lost one.
func TestJoinAndReplace(t *testing.T) {
	c := newNodes(t, 3)
	c.ready()
	for _, n := range c.all {
		propose(t, n, register(n))
	}
	join := func(id transport.NodeID) *node {
		n := c.start(id, filepath.Join(t.TempDir(), "catalog"), false)
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if err := n.catalog.Join(ctx, func() []transport.NodeID { return c.ids[1:] }); err != nil {
			t.Fatal(err)
		}
		until(t, "the joined node is ready", n.catalog.Ready)
		propose(t, n, register(n))
		return n
	}
	fourth := join(nodeID(4))
	if s := configuration(c.leader()); strings.Count(s, "Voter") != 3 || !strings.Contains(s, "Nonvoter ID:"+string(fourth.id)) {
		t.Errorf("configuration after a join: %s", s)
	}
	c.kill(c.ids[0])
	c.mu.Lock()
	delete(c.addrs, c.ids[0])
	c.mu.Unlock()
	propose(t, c.leader(), replicated("meanwhile", c.ids...))
	replaced := join("n1/storage-new")
	until(t, "the lost storage is replaced", func() bool {
		s := configuration(c.leader())
		return !strings.Contains(s, string(c.ids[0])) && strings.Count(s, "Suffrage:Voter") == 3
	})
	if replaced.catalog.View().Queue("/", "meanwhile") == nil || !replaced.catalog.View().Node(c.ids[0]).Superseded {
		t.Error("the replacement misses something")
	}
	// The lost one comes back by surprise: it is kept out.
	_, err := c.all[c.ids[1]].catalog.Propose(context.Background(), &catalog.RegisterNode{ID: c.ids[0]})
	if err == nil || !strings.Contains(err.Error(), "replaced by a newer storage") {
		t.Errorf("a replaced storage registered: %v", err)
	}
}

func configuration(n *node) string { return n.catalog.Stats()["latest_configuration"] }

// TestSnapshotReachesALaggingNode compacts the log while a node is away.
func TestSnapshotReachesALaggingNode(t *testing.T) {
	c := newNodes(t, 3)
	c.ready()
	var away *node
	for _, n := range c.all {
		if !n.catalog.Leading() {
			away = n
			break
		}
	}
	c.kill(away.id)
	c.declareAndCompact(t, 120)
	c.start(away.id, away.dir, true)
	c.ready()
	back := c.all[away.id]
	if got := back.catalog.View().QueueCount(); got != 120 {
		t.Fatalf("%d queues after the snapshot", got)
	}
	// Raft notes it a moment after the machine has restored it.
	until(t, "the node has the snapshot", func() bool { return back.catalog.Stats()["last_snapshot_index"] != "0" })
	propose(t, back, replicated("after", c.ids...))
}

// TestFolderOpensAfterALongRefusal restarts a node all of whose snapshots hold a refusal of what a client sent by the ten thousand bytes.
func TestFolderOpensAfterALongRefusal(t *testing.T) {
	c := newNodes(t, 1)
	c.ready()
	n := c.all[nodeID(1)]
	propose(t, n, &catalog.DeclareExchange{Exchange: catalog.Exchange{Vhost: "/", Name: "h", Type: exchange.Headers}})
	if _, err := n.catalog.Propose(t.Context(), &catalog.Bind{Binding: catalog.Binding{
		Vhost: "/", Source: "h", Destination: "h", ToExchange: true, Arguments: amqp.Table{{Name: "x-match", Value: strings.Repeat("x", 70_000)}},
	}}); err == nil {
		t.Fatal("any x-match is taken")
	}
	for i := range 3 {
		propose(t, n, replicated(fmt.Sprint("q", i), n.id))
		if err := n.catalog.Compact(0); err != nil {
			t.Fatal(err)
		}
	}
	n.stop(t)
	delete(c.all, n.id)
	c.start(n.id, n.dir, true)
	c.ready()
	if got := c.all[n.id].catalog.View().QueueCount(); got != 3 {
		t.Errorf("%d queues after the restart", got)
	}
}

// TestUnreadableCommand: what no replica could read does not enter the log, at the leader either.
func TestUnreadableCommand(t *testing.T) {
	c := newNodes(t, 1)
	c.ready()
	n := c.all[nodeID(1)]
	q := replicated("q", n.id)
	q.Queue.Owner.Node = catalog.NodeID(strings.Repeat("x", 70_000))
	if _, err := n.catalog.Propose(t.Context(), q); !errors.Is(err, catalog.ErrMalformed) {
		t.Errorf("proposed: %v", err)
	}
	propose(t, n, replicated("q", n.id))
}

func TestSubscribersSeeEveryChange(t *testing.T) {
	c := newNodes(t, 1)
	c.ready()
	n := c.all[nodeID(1)]
	var mu sync.Mutex
	seen := make(map[uint64]bool)
	n.catalog.Subscribe(func(old, now *catalog.View) {
		mu.Lock()
		defer mu.Unlock()
		if old != nil {
			for id := range now.QueuesChangedSince(old) {
				seen[id] = true
			}
		}
	})
	var ids []uint64
	for i := range 50 {
		ids = append(ids, propose(t, n, replicated(fmt.Sprint("q", i), n.id)).ID)
	}
	until(t, "all queues were told", func() bool {
		mu.Lock()
		defer mu.Unlock()
		for _, id := range ids {
			if !seen[id] {
				return false
			}
		}
		return true
	})
}

func TestWithoutQuorumNothingIsPromised(t *testing.T) {
	c := newNodes(t, 3)
	c.ready()
	last := c.leader()
	for id := range c.all {
		if id != last.id {
			c.kill(id)
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), 300*time.Millisecond)
	defer cancel()
	if _, err := last.catalog.Propose(ctx, replicated("q", last.id)); !errors.Is(err, catalog.ErrUnknownOutcome) {
		t.Errorf("proposed without a quorum: %v", err)
	}
	ctx, cancel = context.WithTimeout(context.Background(), 300*time.Millisecond)
	defer cancel()
	if err := last.catalog.ReadIndex(ctx); err == nil {
		t.Error("read index without a quorum")
	}
}

func TestBadConfigs(t *testing.T) {
	_, err := catalog.Open(catalog.Config{Local: "x", LeaderLease: time.Hour, Founding: &catalog.Founding{}})
	for _, want := range []string{"Local", "Dir", "Mesh", "LeaderLease", "ClusterID", "Members", "Admin"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v does not name %s", err, want)
		}
	}
}

// BenchmarkPropose measures proposals one by one and 32 at a time, on the leader and on a
// follower, which sees the commit later.
func BenchmarkPropose(b *testing.B) {
	for _, on := range []string{"leader", "follower"} {
		for _, parallel := range []int{1, 32} {
			b.Run(fmt.Sprintf("%s-%d", on, parallel), func(b *testing.B) {
				c := newNodes(b, 3)
				c.ready()
				n := c.leader()
				if on == "follower" {
					n = c.follower()
				}
				var work sync.WaitGroup
				turns := make(chan struct{})
				for range parallel {
					work.Go(func() {
						for range turns {
							if _, err := n.catalog.Propose(context.Background(), &catalog.PutVhost{Vhost: catalog.Vhost{Name: "v"}}); err != nil {
								b.Error(err)
							}
						}
					})
				}
				for b.Loop() {
					turns <- struct{}{}
				}
				close(turns)
				work.Wait()
			})
		}
	}
}

// declareAndCompact has queues declared, and a snapshot taken by each node that runs, behind which its log begins.
func (c *nodes) declareAndCompact(t *testing.T, queues int) {
	t.Helper()
	leader := c.leader()
	var work sync.WaitGroup
	for p := range 8 {
		work.Go(func() {
			for i := p; i < queues; i += 8 {
				if _, err := proposed(leader, replicated(fmt.Sprint("q-", i), c.ids...)); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	work.Wait()
	for _, n := range c.all {
		if err := n.catalog.Compact(0); err != nil {
			t.Fatal(err)
		}
	}
}
