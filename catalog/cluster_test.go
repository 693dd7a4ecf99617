package catalog_test

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/warrenmq/warren/auth"
	"github.com/warrenmq/warren/catalog"
	"github.com/warrenmq/warren/transport"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const testCluster = "00000000-0000-4000-8000-000000000001"

// node is one node of a testCluster: a mesh and a catalog.
type node struct {
	id      transport.NodeID
	dir     string
	mesh    *transport.Mesh
	catalog *catalog.Catalog
	gate    *gate
}

// nodes is a cluster within the test's process, over real sockets.
type nodes struct {
	t     testing.TB
	mu    sync.Mutex
	addrs map[transport.NodeID]string
	all   map[transport.NodeID]*node
	ids   []transport.NodeID // founding members
	away  int                // that many more are not started
	// commit is Config.CommitTimeout.
	commit time.Duration
	// program adapts what the next start is, if not nil.
	program func(*transport.Config, *catalog.Config)
	// early is called, if not nil, when the next start listens for other nodes and has no catalog yet.
	early func()
}

func nodeID(i int) transport.NodeID {
	return transport.NodeID(fmt.Sprintf("n%d/storage-%d", i, i))
}

// newNodes starts n founding members.
func newNodes(t testing.TB, n int) *nodes { return newNodesWith(t, n, 0) }

func newNodesWith(t testing.TB, n int, commit time.Duration) *nodes {
	t.Helper()
	return newNodesOf(t, n, &nodes{commit: commit})
}

// newNodesOf starts n founding members of c.
func newNodesOf(t testing.TB, n int, c *nodes) *nodes {
	t.Helper()
	c.t, c.addrs, c.all = t, make(map[transport.NodeID]string), make(map[transport.NodeID]*node)
	for i := range n + c.away {
		c.ids = append(c.ids, nodeID(i+1))
	}
	for _, id := range c.ids[:n] {
		c.start(id, filepath.Join(t.TempDir(), "catalog"), true)
	}
	t.Cleanup(func() {
		for _, n := range c.all {
			n.stop(t)
		}
	})
	return c
}

func testLogger(id transport.NodeID) *slog.Logger {
	if os.Getenv("WARREN_TEST_LOG") == "" {
		return nil
	}
	return slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelDebug})).With("at", string(id))
}

func (c *nodes) start(id transport.NodeID, dir string, founding bool) *node {
	c.t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		c.t.Fatal(err)
	}
	c.mu.Lock()
	c.addrs[id] = l.Addr().String()
	c.mu.Unlock()
	n := &node{id: id, dir: dir, gate: newGate()}
	mesh := gated(transport.Config{
		Local: id, Listener: l,
		ClusterID: func() string { return testCluster },
		Resolve: func(id transport.NodeID) (string, bool) {
			c.mu.Lock()
			defer c.mu.Unlock()
			a, ok := c.addrs[id]
			return a, ok
		},
		StreamWait: 300 * time.Millisecond,
	}, n.gate)
	cfg := catalog.Config{Local: id, Dir: dir, Logger: testLogger(id), CommitTimeout: c.commit}
	if founding {
		cfg.Founding = &catalog.Founding{
			ClusterID: testCluster, Members: c.ids,
			Admin: func() (auth.User, error) {
				return auth.User{Name: "guest", PasswordHash: auth.HashPassword("guest"), Tags: []string{auth.TagAdministrator}}, nil
			},
		}
	}
	if c.program != nil {
		c.program(&mesh, &cfg)
	}
	if n.mesh, err = transport.New(mesh); err != nil {
		c.t.Fatal(err)
	}
	cfg.Mesh = n.mesh
	if c.early != nil {
		c.early()
	}
	if n.catalog, err = catalog.Open(cfg); err != nil {
		c.t.Fatal(err)
	}
	c.all[id] = n
	c.setPeers()
	return n
}

// setPeers tells every mesh of all nodes.
func (c *nodes) setPeers() {
	var ids []transport.NodeID
	for id := range c.all {
		ids = append(ids, id)
	}
	for _, n := range c.all {
		n.mesh.SetPeers(ids)
	}
}

func (n *node) stop(t testing.TB) {
	t.Helper()
	if err := n.catalog.Close(); err != nil {
		t.Errorf("close catalog of %s: %v", n.id, err)
	}
	if err := n.mesh.Close(); err != nil {
		t.Errorf("close mesh of %s: %v", n.id, err)
	}
}

// kill stops a node and tells the others that it is dead.
func (c *nodes) kill(id transport.NodeID) {
	c.t.Helper()
	c.all[id].stop(c.t)
	delete(c.all, id)
	for _, n := range c.all {
		n.catalog.NodeDead(id)
	}
}

// until waits for a condition.
func until(t testing.TB, what string, f func() bool) {
	t.Helper()
	deadline := time.Now().Add(30 * time.Second)
	for !f() {
		if time.Now().After(deadline) {
			t.Fatalf("gave up waiting until %s", what)
		}
		time.Sleep(2 * time.Millisecond)
	}
}

func (c *nodes) ready() {
	c.t.Helper()
	for id, n := range c.all {
		until(c.t, fmt.Sprintf("%s is ready", id), n.catalog.Ready)
	}
}

func (c *nodes) leader() *node {
	c.t.Helper()
	var leader *node
	until(c.t, "there is a leader", func() bool {
		for _, n := range c.all {
			if n.catalog.Leading() {
				leader = n
				return true
			}
		}
		return false
	})
	return leader
}

func (c *nodes) follower() *node {
	c.t.Helper()
	leader := c.leader()
	for _, n := range c.all {
		if n != leader {
			return n
		}
	}
	c.t.Fatal("no follower")
	return nil
}

func propose(t testing.TB, n *node, cmd catalog.Command) catalog.Result {
	t.Helper()
	r, err := proposed(n, cmd)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// proposed does what propose does, for any goroutine.
func proposed(n *node, cmd catalog.Command) (catalog.Result, error) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	r, err := n.catalog.Propose(ctx, cmd)
	if err != nil {
		return r, fmt.Errorf("propose %T on %s: %w", cmd, n.id, err)
	}
	return r, nil
}

func register(n *node) *catalog.RegisterNode {
	return &catalog.RegisterNode{ID: n.id, ClusterAddr: "127.0.0.1:1", AMQPAddr: "127.0.0.1:2"}
}

func replicated(name string, members ...transport.NodeID) *catalog.DeclareQueue {
	return &catalog.DeclareQueue{Queue: catalog.Queue{Vhost: "/", Name: name, Durable: true, Kind: catalog.Replicated, Members: members, Preferred: members[0]}}
}

func TestSingleNodeFoundsItself(t *testing.T) {
	start := time.Now()
	c := newNodes(t, 1)
	c.ready()
	t.Logf("ready after %v", time.Since(start))
	n := c.all[nodeID(1)]
	v := n.catalog.View()
	if v.ClusterID() != testCluster || v.Vhost("/") == nil || v.Exchange("/", "amq.topic") == nil {
		t.Fatalf("founded view misses something: %+v", v)
	}
	if !v.User("guest").HasTag(auth.TagAdministrator) || !v.Permission("/", "guest").Allows(auth.Write, auth.Queue, "q") {
		t.Fatal("guest is no administrator with permissions")
	}
	r := propose(t, n, register(n))
	if got := n.catalog.View().Node(n.id); got.Number != 1 || got.Incarnation != r.ID {
		t.Fatalf("registered %+v, result %+v", got, r)
	}
}

func TestThreeNodesAgree(t *testing.T) {
	start := time.Now()
	c := newNodes(t, 3)
	c.ready()
	t.Logf("ready after %v", time.Since(start))
	for _, n := range c.all {
		propose(t, n, register(n))
	}
	f := c.follower()
	r := propose(t, f, replicated("q", c.ids...))
	if f.catalog.View().Queue("/", "q") == nil || !r.Changed || r.Queue == nil || r.ID != r.Index {
		t.Fatalf("declared on a follower: %+v", r)
	}
	again := propose(t, c.leader(), replicated("q", c.ids[0]))
	if again.Changed || again.Queue.ID != r.ID || len(again.Queue.Members) != 3 {
		t.Fatalf("declared again: %+v", again)
	}
	if err := f.catalog.WaitEveryone(context.Background(), r.Index); err != nil {
		t.Fatal(err)
	}
	for id, n := range c.all {
		if n.catalog.View().Queue("/", "q") == nil {
			t.Errorf("%s misses the queue after WaitEveryone", id)
		}
		if err := n.catalog.ReadIndex(context.Background()); err != nil {
			t.Errorf("read index on %s: %v", id, err)
		}
	}
}

func TestLeaderDies(t *testing.T) {
	c := newNodes(t, 3)
	c.ready()
	for _, n := range c.all {
		propose(t, n, register(n))
	}
	old := c.leader()
	dir := old.dir
	start := time.Now()
	c.kill(old.id)
	f := c.all[c.remaining()]
	propose(t, f, replicated("q1", c.ids...))
	t.Logf("first proposal under a new leader after %v", time.Since(start))
	c.start(old.id, dir, true)
	c.ready()
	back := c.all[old.id]
	if back.catalog.View().Queue("/", "q1") == nil {
		t.Fatal("the node that came back misses what was declared while it was away")
	}
	propose(t, back, replicated("q2", c.ids...))
}

// TestCommitsSpreadWithoutTheTimer: followers hear of commits although raft's own timer for that never fires:
// while all goes well, when the leader has changed, when they come back, and when a node joins.
func TestCommitsSpreadWithoutTheTimer(t *testing.T) {
	c := newNodesWith(t, 3, time.Hour)
	c.ready()
	queues := 0
	declared := func(by *node) {
		t.Helper()
		queues++
		r := propose(t, by, replicated(fmt.Sprint("q", queues), c.ids...))
		for id, n := range c.all {
			until(t, fmt.Sprintf("%s has applied", id), func() bool { return n.catalog.View().Revision() >= r.Index })
		}
	}
	declared(c.leader())
	declared(c.follower())

	old := c.leader()
	c.kill(old.id)
	declared(c.follower())
	c.start(old.id, old.dir, true)
	c.ready()
	declared(c.all[old.id])

	away := c.follower()
	c.kill(away.id)
	queues++
	r := propose(t, c.leader(), replicated(fmt.Sprint("q", queues), c.ids...))
	c.start(away.id, away.dir, true)
	until(t, "the one that was away has applied", func() bool { return c.all[away.id].catalog.View().Revision() >= r.Index })

	joined := c.start(nodeID(4), filepath.Join(t.TempDir(), "catalog"), false)
	if err := joined.catalog.Join(t.Context(), func() []transport.NodeID { return c.ids }); err != nil {
		t.Fatal(err)
	}
	c.ready()
	declared(joined)
}

func (c *nodes) remaining() transport.NodeID {
	for id := range c.all {
		return id
	}
	return ""
}
