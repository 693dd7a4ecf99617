package bootstrap_test

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/warrenmq/warren/auth"
	"github.com/warrenmq/warren/catalog"
	"github.com/warrenmq/warren/cluster/bootstrap"
	"github.com/warrenmq/warren/cluster/member"
	"github.com/warrenmq/warren/test/cluster"
	"github.com/warrenmq/warren/transport"
)

// server is a node put together as the program does it, without queues.
type server struct {
	t        testing.TB
	name     string
	dir      string
	gossip   string // address to bind
	expect   int
	join     []string
	identity *bootstrap.Identity
	mesh     *transport.Mesh
	member   *member.Gossip
	catalog  *catalog.Catalog
	founded  bool
}

func freeAddr(t testing.TB) string {
	t.Helper()
	ports, err := cluster.FreePorts(1)
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("127.0.0.1:%d", ports[0])
}

// up runs the start of a node until its catalog is ready and it has registered.
func (s *server) up(ctx context.Context) (err error) {
	log := slog.New(slog.DiscardHandler)
	if os.Getenv("WARREN_TEST_LOG") != "" {
		log = slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelInfo})).With("at", s.name)
	}
	if s.identity, err = bootstrap.OpenIdentity(s.dir, s.name); err != nil {
		return err
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	clusterAddr := l.Addr().String()
	if s.mesh, err = transport.New(transport.Config{
		Local: s.identity.NodeID(), Listener: l, Logger: log,
		ClusterID: s.identity.ClusterID, OpenCall: bootstrap.OpenMethod,
		Resolve:    func(id transport.NodeID) (string, bool) { return s.member.Resolve(id) },
		StreamWait: 300 * time.Millisecond,
	}); err != nil {
		return err
	}
	for method, h := range s.identity.Handlers(s.expect) {
		s.mesh.HandleCall(method, h)
	}
	if s.member, err = member.Open(member.Config{
		Node: s.identity.NodeID(), Boot: s.identity.Boots(), Bind: s.gossip, ClusterAddr: clusterAddr,
		Join: s.join, BookPath: filepath.Join(s.dir, "addresses.json"), Logger: log,
	}); err != nil {
		return err
	}
	m, err := bootstrap.Run(ctx, bootstrap.Config{
		Identity: s.identity, Expect: s.expect, Call: s.mesh.CallAddr, Logger: log,
		Peers: func() (peers []bootstrap.Peer) {
			for _, i := range s.member.Visitors() {
				peers = append(peers, bootstrap.Peer{Node: i.Node, Addr: i.ClusterAddr})
			}
			return peers
		},
	})
	if err != nil {
		return err
	}
	if err := s.member.SetCluster(m.ClusterID); err != nil {
		return err
	}
	cfg := catalog.Config{Local: s.identity.NodeID(), Dir: filepath.Join(s.dir, "catalog"), Mesh: s.mesh, Logger: log, CommitTimeout: 5 * time.Millisecond}
	if s.founded = m.Founding != nil; s.founded {
		cfg.Founding = &catalog.Founding{ClusterID: m.ClusterID, Members: m.Founding, Admin: func() (auth.User, error) {
			return auth.User{Name: "guest", PasswordHash: auth.HashPassword("guest")}, nil
		}}
	}
	if s.catalog, err = catalog.Open(cfg); err != nil {
		return err
	}
	s.member.OnChange(func() { s.mesh.SetPeers(s.peers(m.Founding)) })
	if !s.founded {
		if err := s.catalog.Join(ctx, func() []transport.NodeID { return s.peers(nil) }); err != nil {
			return err
		}
	}
	_, err = s.catalog.Propose(ctx, &catalog.RegisterNode{ID: s.identity.NodeID(), ClusterAddr: clusterAddr, GossipAddr: s.member.Self().GossipAddr})
	if err != nil {
		return err
	}
	for !s.catalog.Ready() {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(2 * time.Millisecond):
		}
	}
	return nil
}

// peers are all nodes of the cluster this one knows.
func (s *server) peers(founding []transport.NodeID) []transport.NodeID {
	ids := slices.Clone(founding)
	for _, i := range s.member.Members() {
		ids = append(ids, i.Node)
	}
	for n := range s.catalog.View().Nodes() {
		ids = append(ids, n.ID)
	}
	slices.Sort(ids)
	return slices.Compact(ids)
}

// down stops what has started.
func (s *server) down() {
	s.t.Helper()
	check := func(err error) {
		if err != nil {
			s.t.Errorf("stop %s: %v", s.name, err)
		}
	}
	if s.catalog != nil {
		check(s.catalog.Close())
	}
	if s.mesh != nil {
		check(s.mesh.Close())
	}
	if s.member != nil {
		check(s.member.Close())
	}
	if s.identity != nil {
		check(s.identity.Close())
	}
	s.catalog, s.mesh, s.member, s.identity = nil, nil, nil, nil
}

// farm makes n nodes that expect each other and know the addresses given by join: every node's,
// or only the first one's.
func farm(t testing.TB, n int, onlyFirst bool) []*server {
	t.Helper()
	var servers []*server
	var addrs []string
	base := t.TempDir()
	for i := range n {
		s := &server{t: t, name: fmt.Sprintf("n%d", i+1), expect: n, gossip: freeAddr(t)}
		s.dir = filepath.Join(base, s.name)
		servers = append(servers, s)
		addrs = append(addrs, s.gossip)
	}
	for _, s := range servers {
		s.join = addrs
		if onlyFirst {
			s.join = addrs[:1]
		}
	}
	t.Cleanup(func() { downAll(servers) })
	return servers
}

func downAll(servers []*server) {
	var work sync.WaitGroup
	for _, s := range servers {
		work.Go(s.down)
	}
	work.Wait()
}

// upAll starts nodes at about the same time, in the given order.
func upAll(t testing.TB, servers []*server, pause func() time.Duration) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	defer cancel()
	var work sync.WaitGroup
	for _, s := range servers {
		work.Go(func() {
			if err := s.up(ctx); err != nil {
				t.Errorf("start of %s: %v", s.name, err)
			}
		})
		time.Sleep(pause())
	}
	work.Wait()
	if t.Failed() {
		t.FailNow()
	}
}

func oneCluster(t testing.TB, servers []*server) string {
	t.Helper()
	id := servers[0].identity.ClusterID()
	for _, s := range servers {
		if got := s.catalog.View().ClusterID(); s.identity.ClusterID() != id || got != id {
			t.Fatalf("%s is in %s, its catalog in %s, want %s", s.name, s.identity.ClusterID(), got, id)
		}
	}
	return id
}

// TestSimultaneousStart starts three nodes in random order and pace, twenty times: there is
// always one cluster of all three.
func TestSimultaneousStart(t *testing.T) {
	const streams, runs = 4, 5
	for stream := range streams {
		t.Run(fmt.Sprint(stream), func(t *testing.T) {
			t.Parallel()
			for i := range runs {
				servers := farm(t, 3, i%2 == 0)
				shuffled := slices.Clone(servers)
				rand.Shuffle(3, func(a, b int) { shuffled[a], shuffled[b] = shuffled[b], shuffled[a] })
				start := time.Now()
				upAll(t, shuffled, func() time.Duration { return rand.N(20 * time.Millisecond) })
				t.Logf("ready after %v", time.Since(start))
				oneCluster(t, servers)
				for _, s := range servers {
					if !s.founded {
						t.Errorf("run %d: %s did not found", i, s.name)
					}
				}
				downAll(servers)
			}
		})
	}
}

// TestAddressChange restarts a node, and then all nodes, at other addresses.
func TestAddressChange(t *testing.T) {
	servers := farm(t, 3, true)
	none := func() time.Duration { return 0 }
	upAll(t, servers, none)
	id := oneCluster(t, servers)
	moved := servers[2]
	moved.down()
	moved.gossip = freeAddr(t)
	upAll(t, []*server{moved}, none)
	for _, s := range servers[:2] {
		until(t, "the new address is used", func() bool {
			a, _ := s.member.Resolve(moved.identity.NodeID())
			b, _ := moved.member.Resolve(moved.identity.NodeID())
			return s.mesh.Peer(moved.identity.NodeID()).Up && (b == "" || a == b)
		})
	}
	downAll(servers)
	for _, s := range servers {
		if s != servers[0] {
			s.gossip = freeAddr(t) // the first one's is configured everywhere
		}
	}
	upAll(t, servers, none)
	if got := oneCluster(t, servers); got != id {
		t.Fatalf("cluster %s became %s", id, got)
	}
}

// TestLostDiskJoinsAsANewServer wipes a node: it comes back under a new identity, never as the
// founder of another cluster.
func TestLostDiskJoinsAsANewServer(t *testing.T) {
	servers := farm(t, 3, false)
	none := func() time.Duration { return 0 }
	upAll(t, servers, none)
	id := oneCluster(t, servers)
	lost := servers[0]
	old := lost.identity.NodeID()
	lost.down()
	for _, s := range servers[1:] {
		s.catalog.NodeDead(old)
	}
	if err := os.RemoveAll(lost.dir); err != nil {
		t.Fatal(err)
	}
	upAll(t, []*server{lost}, none)
	if got := oneCluster(t, servers); got != id || lost.founded || lost.identity.NodeID() == old {
		t.Fatalf("the wiped node is %s in %s, founded %v", lost.identity.NodeID(), got, lost.founded)
	}
	until(t, "the lost storage has left the group", func() bool {
		s := lost.catalog.Stats()["latest_configuration"]
		return !strings.Contains(s, string(old)) && strings.Count(s, "Suffrage:Voter") == 3
	})
}

// TestTwoClustersNeverMerge joins two clusters' addresses and finds them apart.
func TestTwoClustersNeverMerge(t *testing.T) {
	a, b := farm(t, 1, false), farm(t, 1, false)
	b[0].name, b[0].dir = "m1", filepath.Join(t.TempDir(), "m1")
	none := func() time.Duration { return 0 }
	upAll(t, a, none)
	b[0].join = append(b[0].join, a[0].gossip)
	upAll(t, b, none)
	if a[0].identity.ClusterID() == b[0].identity.ClusterID() {
		t.Fatal("one cluster")
	}
	// A virgin node that hears of both founds nothing and joins neither. One that hears of the second too late belongs to the first, which is
	// no harm to either: the next one tries again.
	refused := false
	for try := 0; try < 5 && !refused; try++ {
		name := fmt.Sprint("n", 5+try)
		lost := &server{t: t, name: name, dir: filepath.Join(t.TempDir(), name), gossip: freeAddr(t), expect: 3, join: []string{a[0].gossip, b[0].gossip}}
		ctx, cancel := context.WithTimeout(context.Background(), 1500*time.Millisecond)
		err := lost.up(ctx)
		cancel()
		chosen := lost.identity.ClusterID()
		refused = err != nil && chosen == ""
		if chosen != "" && chosen != a[0].identity.ClusterID() && chosen != b[0].identity.ClusterID() {
			t.Errorf("between two clusters it founded %s: %v", chosen, err)
		}
		if n := len(a[0].member.Members()); refused && try == 0 && n != 1 {
			t.Errorf("%d members in the first cluster", n)
		}
		lost.down()
	}
	if !refused {
		t.Error("nodes between two clusters chose one, five times")
	}
	if up := a[0].mesh.Peer(b[0].identity.NodeID()).Up; up {
		t.Error("the clusters are linked")
	}
}

func TestLateNodeJoinsARunningCluster(t *testing.T) {
	servers := farm(t, 1, false)
	none := func() time.Duration { return 0 }
	upAll(t, servers, none)
	for i := range 2 {
		late := &server{t: t, name: fmt.Sprintf("late%d", i), dir: filepath.Join(t.TempDir(), "late"), gossip: freeAddr(t), join: servers[0].join}
		defer late.down()
		servers = append(servers, late)
		upAll(t, []*server{late}, none)
	}
	oneCluster(t, servers)
	until(t, "all three vote", func() bool {
		return strings.Count(servers[0].catalog.Stats()["latest_configuration"], "Suffrage:Voter") == 3
	})
}

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
