package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/warrenmq/warren/auth"
	"github.com/warrenmq/warren/broker"
	"github.com/warrenmq/warren/catalog"
	"github.com/warrenmq/warren/cluster/bootstrap"
	"github.com/warrenmq/warren/cluster/detector"
	"github.com/warrenmq/warren/cluster/group"
	"github.com/warrenmq/warren/cluster/member"
	"github.com/warrenmq/warren/config"
	"github.com/warrenmq/warren/fsm"
	gateway "github.com/warrenmq/warren/gateway/amqp"
	"github.com/warrenmq/warren/management"
	"github.com/warrenmq/warren/store"
	"github.com/warrenmq/warren/transport"
)

// Bounds of a node's life.
const (
	timeoutShutdown = 10 * time.Second // for clients to be told and connections to end
	timeoutDrain    = 3 * time.Second  // for other nodes to take over the queues led here
	queueTimeout    = 10 * time.Second // for an operation that waits for a queue's leader
	stuckSync       = 5 * time.Second  // a sync this old makes the node unfit to lead
	replicasDefault = 3
	registerRetry   = 200 * time.Millisecond
)

// running is one node, in the order in which it is built.
type running struct {
	cfg config.Config
	log *slog.Logger

	identity  *bootstrap.Identity
	listeners listeners
	store     *store.Store
	mesh      *transport.Mesh
	gossip    *member.Gossip
	catalog   atomic.Pointer[catalog.Catalog]
	detector  *detector.Detector
	host      *group.Host
	broker    *broker.Broker
	amqp      *gateway.Server
	manager   *management.API
	alarms    *alarms
	ready     atomic.Bool

	closers []closer // run last to first
	failed  chan error
}

// closer ends one part of the node.
type closer struct {
	name string
	end  func() error
}

// run builds a node top to bottom, serves until ctx ends, and takes it down
// in reverse.
func run(ctx context.Context, cfg config.Config, log *slog.Logger) error {
	n := &running{cfg: cfg, log: log, failed: make(chan error, 8)}
	defer n.close()
	for _, step := range []struct {
		name string
		do   func(context.Context) error
	}{
		{"data folder", n.openIdentity},
		{"listeners", n.listen},
		{"store", n.openStore},
		{"cluster link", n.openMesh},
		{"gossip", n.openGossip},
		{"health checks", n.serveHTTP},
		{"failure detector", n.openDetector},
		{"cluster", n.enterCluster},
		{"queue logs", n.openHost},
		{"broker", n.startBroker},
		{"clients", n.serveClients},
	} {
		if err := step.do(ctx); err != nil {
			if ctx.Err() != nil {
				return nil // interrupted while starting
			}
			return fmt.Errorf("%s: %w", step.name, err)
		}
	}
	n.ready.Store(true)
	n.log.Info("ready", "amqp", n.listeners.amqp.Addr(), "http", n.listeners.http.Addr(), "grpc", n.listeners.grpc.Addr(),
		"cluster", n.listeners.cluster.Addr(), "data", cfg.DataDir)
	select {
	case <-ctx.Done():
		n.log.Info("stopping")
		return nil
	case err := <-n.failed:
		return err
	}
}

func (n *running) onClose(name string, end func() error) {
	n.closers = append(n.closers, closer{name, end})
}

func (n *running) close() {
	n.ready.Store(false)
	for _, c := range slices.Backward(n.closers) {
		begun := time.Now()
		if err := c.end(); err != nil {
			n.log.Warn("not closed cleanly", "part", c.name, "err", err)
		}
		n.log.Debug("closed", "part", c.name, "after", time.Since(begun))
	}
	n.log.Info("stopped")
}

func (n *running) openIdentity(context.Context) (err error) {
	if n.identity, err = bootstrap.OpenIdentity(n.cfg.DataDir, n.cfg.NodeID); err != nil {
		return err
	}
	n.onClose("data folder", n.identity.Close)
	return nil
}

// listeners are the ports of a node.
type listeners struct{ amqp, http, grpc, cluster net.Listener }

func (n *running) listen(context.Context) error {
	for _, l := range []struct {
		name, addr string
		to         *net.Listener
	}{
		{"amqp", n.cfg.AMQPAddr, &n.listeners.amqp},
		{"http", n.cfg.HTTPAddr, &n.listeners.http},
		{"grpc", n.cfg.GRPCAddr, &n.listeners.grpc},
		{"cluster", n.cfg.ClusterAddr, &n.listeners.cluster},
	} {
		ln, err := net.Listen("tcp", l.addr)
		if err != nil {
			return fmt.Errorf("%s address: %w", l.name, err)
		}
		*l.to = ln
		n.onClose(l.name+" listener", func() error { return ignoreClosed(ln.Close()) })
	}
	return nil
}

func ignoreClosed(err error) error {
	if errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}

func (n *running) openStore(context.Context) (err error) {
	n.store, err = store.Open(store.Options{
		Dir: filepath.Join(n.cfg.DataDir, "log"), LingerMax: 300 * time.Microsecond, Logger: n.log,
		DiskReserveBytes: diskReserve(n.cfg.DataDir),
		OnFatal: func(err error) {
			// What the disk holds is unknown now: no answer may be given that
			// depends on it. A restart recovers what was synced.
			n.log.Error("log store failed, ending the process", "err", err)
			os.Exit(exitFailed)
		},
	})
	if err != nil {
		return err
	}
	n.onClose("store", n.store.Close)
	return nil
}

// Bounds of the free disk space below which publishers are blocked.
const (
	diskReserveMax   = 128 << 20 // bytes: two segments of the log
	diskReserveShare = 16        // of the file system, for small ones
)

// diskReserve is the free space to keep on the data folder's file system.
func diskReserve(dir string) int64 {
	var fs syscall.Statfs_t
	if err := syscall.Statfs(dir, &fs); err != nil {
		return diskReserveMax
	}
	return min(diskReserveMax, int64(fs.Blocks)*fs.Bsize/diskReserveShare)
}

func (n *running) openMesh(context.Context) (err error) {
	n.mesh, err = transport.New(transport.Config{
		Local: n.identity.NodeID(), Listener: n.listeners.cluster,
		ClusterID: n.identity.ClusterID,
		Resolve:   func(id transport.NodeID) (string, bool) { return n.resolve(id) },
		Logger:    n.log,
		Healthy:   func() bool { return n.store.SyncOutstanding() < stuckSync },
		CatalogIndex: func() uint64 {
			if c := n.catalog.Load(); c != nil {
				return c.View().Revision()
			}
			return 0
		},
		OpenCall: bootstrap.OpenMethod,
	})
	if err != nil {
		return err
	}
	n.onClose("cluster link", n.mesh.Close)
	for method, h := range n.identity.Handlers(n.cfg.BootstrapExpect) {
		n.mesh.HandleCall(method, h)
	}
	return nil
}

// resolve finds a node's address: from gossip, or as the catalog has it.
func (n *running) resolve(id transport.NodeID) (string, bool) {
	if n.gossip != nil {
		if addr, ok := n.gossip.Resolve(id); ok {
			return addr, true
		}
	}
	if c := n.catalog.Load(); c != nil {
		if node := c.View().Node(id); node != nil && node.ClusterAddr != "" {
			return node.ClusterAddr, true
		}
	}
	return "", false
}

func (n *running) openGossip(context.Context) (err error) {
	n.gossip, err = member.Open(member.Config{
		Node: n.identity.NodeID(), Boot: n.identity.Boots(), Bind: n.cfg.GossipAddr,
		ClusterAddr: n.listeners.cluster.Addr().String(), Join: n.cfg.Join,
		BookPath: filepath.Join(n.cfg.DataDir, "addresses.json"), Logger: n.log,
	})
	if err != nil {
		return err
	}
	n.onClose("gossip", n.gossip.Close)
	return nil
}

// enterCluster founds or finds the cluster and brings the catalog up.
func (n *running) enterCluster(ctx context.Context) error {
	m, err := bootstrap.Run(ctx, bootstrap.Config{
		Identity: n.identity, Expect: n.cfg.BootstrapExpect, Call: n.mesh.CallAddr, Logger: n.log,
		Peers: func() (peers []bootstrap.Peer) {
			for _, v := range n.gossip.Visitors() {
				peers = append(peers, bootstrap.Peer{Node: v.Node, Addr: v.ClusterAddr})
			}
			return peers
		},
	})
	if err != nil {
		return err
	}
	if err := n.gossip.SetCluster(m.ClusterID); err != nil {
		return err
	}
	c := catalog.Config{
		Local: n.identity.NodeID(), Dir: filepath.Join(n.cfg.DataDir, "catalog"), Mesh: n.mesh, Logger: n.log,
	}
	if m.Founding != nil {
		c.Founding = &catalog.Founding{ClusterID: m.ClusterID, Members: m.Founding, Admin: auth.User{
			Name: auth.GuestName, PasswordHash: auth.HashPassword(auth.GuestName), Tags: []string{"administrator"},
		}}
	}
	cat, err := catalog.Open(c)
	if err != nil {
		return err
	}
	n.onClose("catalog", cat.Close)
	n.catalog.Store(cat)
	n.followPeers(m.Founding)
	if m.Founding == nil {
		return cat.Join(ctx, n.gossipNodes)
	}
	return nil
}

// gossipNodes are the nodes of this cluster that gossip has heard of.
func (n *running) gossipNodes() (nodes []transport.NodeID) {
	for _, m := range n.gossip.Members() {
		nodes = append(nodes, m.Node)
	}
	return nodes
}

// followPeers keeps links to the nodes of the catalog, to the founders while
// the catalog does not know them yet, and to whom gossip hears of.
func (n *running) followPeers(founders []transport.NodeID) {
	update := func() {
		known := map[transport.NodeID]bool{}
		var peers, watched []transport.NodeID
		add := func(id transport.NodeID) {
			if id != n.identity.NodeID() && !known[id] {
				known[id] = true
				peers = append(peers, id)
			}
		}
		for node := range n.catalog.Load().View().Nodes() {
			if !node.Superseded {
				add(node.ID)
			}
		}
		watched = append(watched, peers...)
		for _, id := range founders {
			add(id)
		}
		for _, id := range n.gossipNodes() {
			add(id)
		}
		n.mesh.SetPeers(peers)
		n.detector.SetPeers(watched)
	}
	n.gossip.OnChange(update)
	// Called at once with the present view.
	n.catalog.Load().Subscribe(func(old, now *catalog.View) {
		if old == nil || !sameNodes(old, now) {
			update()
		}
	})
}

func sameNodes(a, b *catalog.View) bool {
	names := func(v *catalog.View) string {
		var s strings.Builder
		for node := range v.Nodes() {
			fmt.Fprintf(&s, "%s %t;", node.ID, node.Superseded)
		}
		return s.String()
	}
	return names(a) == names(b)
}

func (n *running) openDetector(context.Context) (err error) {
	n.detector, err = detector.New(detector.Config{Local: n.identity.NodeID(), Net: n.mesh, Logger: n.log})
	if err != nil {
		return err
	}
	n.onClose("failure detector", n.detector.Close)
	return nil
}

func (n *running) openHost(context.Context) error {
	n.host = group.NewHost(group.HostConfig{
		Local: n.identity.NodeID(), Store: group.OverStore(n.store), Mesh: group.OverMesh(n.mesh), Detector: n.detector,
		Logger: n.log,
		OnUnknown: func(_ transport.GroupID, _ transport.NodeID, catalogIndex uint64) {
			ctx, cancel := context.WithTimeout(context.Background(), time.Second)
			defer cancel()
			// The broker follows the catalog and starts what belongs here.
			_ = n.catalog.Load().WaitApplied(ctx, catalogIndex)
		},
	})
	n.onClose("queue logs", n.host.Close)
	return nil
}

func (n *running) startBroker(ctx context.Context) error {
	cat := n.catalog.Load()
	local := n.identity.NodeID()
	n.broker = broker.New(broker.Config{
		Node: string(local),
		Send: func(node string, payload []byte) error {
			return n.mesh.Send(transport.NodeID(node), broker.MessageKind, payload)
		},
		Replies:      replyLink{n.mesh},
		Now:          n.mesh.Clock,
		ClockOffsets: func() []time.Duration { return n.clockOffsets(cat.View()) },
		Groups:       raftGroups{host: n.host},
		Alive:        func(node string) bool { return n.detector.State(transport.NodeID(node)) != detector.Dead },
		Replicas:     replicasDefault, QueueTimeout: queueTimeout, Logger: n.log,

		ConsumerTimeout: n.cfg.ConsumerTimeout,
	}, cat)
	n.openAlarms()
	n.onClose("broker", func() error {
		n.broker.Close()
		return nil
	})
	n.mesh.Handle(broker.MessageKind, func(from transport.NodeID, payload []byte) { n.broker.Receive(string(from), payload) })
	n.mesh.Handle(broker.ReplyKind, func(from transport.NodeID, payload []byte) {
		_, _ = n.broker.ReceiveReply(string(from), payload) // it has logged the error; nobody waits
	})
	n.mesh.HandleCall(broker.MethodReply, func(_ context.Context, from transport.NodeID, payload []byte) ([]byte, error) {
		return n.broker.ReceiveReply(string(from), payload)
	})
	self, err := n.register(ctx, cat)
	if err != nil {
		return err
	}
	n.wipeDeleted(cat.View())
	n.broker.Start(self)
	n.mesh.OnPeerChange(func(s transport.PeerStatus) {
		if s.Up {
			n.broker.PeerUp(string(s.Node))
		}
	})
	cancel := n.detector.Subscribe(func(e detector.Event) {
		if e.State == detector.Dead {
			cat.NodeDead(e.Node)
			n.broker.NodeDead(string(e.Node), e.Restarted, e.Refused)
			n.alarms.nodeDead(string(e.Node))
		}
	})
	n.onClose("verdicts", func() error {
		cancel()
		return nil
	})
	n.onClose("leadership", func() error {
		ctx, cancel := context.WithTimeout(context.Background(), timeoutDrain)
		defer cancel()
		moved, stayed := n.host.Drain(ctx)
		n.log.Info("handed over queues", "moved", moved, "stayed", stayed)
		return nil
	})
	return nil
}

// register enters this start of the node in the catalog, once it has a leader.
func (n *running) register(ctx context.Context, cat *catalog.Catalog) (fsm.Origin, error) {
	local := n.identity.NodeID()
	reg := &catalog.RegisterNode{
		ID: local, ClusterAddr: n.gossip.Self().ClusterAddr, GossipAddr: n.gossip.Self().GossipAddr,
		AMQPAddr: n.listeners.amqp.Addr().String(), HTTPAddr: n.listeners.http.Addr().String(), GRPCAddr: n.listeners.grpc.Addr().String(),
	}
	for {
		res, err := cat.Register(ctx, reg)
		if err == nil {
			err = awaitFounding(ctx, cat)
			return fsm.Origin{Node: cat.View().Node(local).Number, Incarnation: res.ID}, err
		}
		n.log.Info("waiting for the catalog", "err", err)
		select {
		case <-ctx.Done():
			return fsm.Origin{}, ctx.Err()
		case <-time.After(registerRetry):
		}
	}
}

// awaitFounding waits for the catalog's first command, which may come behind a
// registration.
func awaitFounding(ctx context.Context, cat *catalog.Catalog) error {
	founded := make(chan struct{})
	var once sync.Once
	cat.Subscribe(func(_, now *catalog.View) {
		if now.ClusterID() != "" {
			once.Do(func() { close(founded) })
		}
	})
	select {
	case <-founded:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// serveClients opens the protocols.
func (n *running) serveClients(context.Context) error {
	c := gateway.Default()
	c.Logger = n.log
	c.Product, c.Version = n.cfg.Product()
	server, err := gateway.New(c, amqpBroker{n.broker})
	if err != nil {
		return err
	}
	n.amqp = server
	n.openManagement()
	n.serveGRPC()
	go func() {
		if err := server.Serve(n.listeners.amqp); !errors.Is(err, gateway.ErrServerClosed) {
			n.failed <- fmt.Errorf("amqp server: %w", err)
		}
	}()
	n.watchResources()
	n.onClose("amqp clients", func() error {
		ctx, cancel := context.WithTimeout(context.Background(), timeoutShutdown)
		defer cancel()
		return server.Shutdown(ctx)
	})
	return nil
}

// readiness says why the node is not ready, nil if it is: listeners are up,
// the catalog has a leader, local logs are open.
func (n *running) readiness() error {
	switch {
	case !n.ready.Load():
		return errNotReady
	case n.catalog.Load().LeaderID() == "":
		return errors.New("the catalog has no leader")
	case !n.broker.Hosting():
		return errors.New("local logs are being opened")
	}
	return nil
}
