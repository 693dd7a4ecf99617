package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/warrenmq/warren/catalog"
	"github.com/warrenmq/warren/cluster/alarm"
	"github.com/warrenmq/warren/cluster/bootstrap"
	"github.com/warrenmq/warren/cluster/detector"
	"github.com/warrenmq/warren/cluster/level"
	"github.com/warrenmq/warren/cluster/member"
	"github.com/warrenmq/warren/failpoint"
	"github.com/warrenmq/warren/fsm"
	"github.com/warrenmq/warren/transport"
)

func (n *running) openMesh(context.Context) (err error) {
	n.listenForAlarms()
	n.mesh, err = transport.New(transport.Config{
		Local: n.identity.NodeID(), Listener: n.listeners.cluster,
		ClusterID: n.identity.ClusterID, Dial: failpoint.Dialer(),
		Resolve: func(id transport.NodeID) (string, bool) { return n.resolve(id) },
		Logger:  n.log,
		Level:   level.Now,
		LevelMin: func() int {
			if c := n.catalog.Load(); c != nil {
				return c.View().Level()
			}
			return level.First
		},
		Began:   time.Now().Add(clockOffset()),
		Healthy: func() bool { return n.store.SyncOutstanding() < stuckSync },
		CatalogIndex: func() uint64 {
			if c := n.catalog.Load(); c != nil {
				return c.View().Revision()
			}
			return 0
		},
		OpenCall: bootstrap.OpenMethod, Fill: n.fill,
		Handlers: map[uint8]func(transport.NodeID, []byte){alarm.MessageKind: n.alarms.hear},
		Secure:   n.secure(), GuestsMax: sharesOf(openFilesMax(), fileShares{strangers: strangersMax}).strangers,
	})
	if err != nil {
		return err
	}
	n.onClose("cluster link", n.mesh.Close)
	n.renewLinks()
	for method, h := range n.identity.Handlers(n.cfg.BootstrapExpect) {
		n.mesh.HandleCall(method, h)
	}
	n.openSuccessions()
	n.openAlarms()
	return nil
}

// resolve returns where a node is to be looked for: as gossip tells, or as the catalog has it.
func (n *running) resolve(id transport.NodeID) (addr string, ok bool) {
	if n.gossip != nil {
		addr, ok = n.gossip.Resolve(id)
	}
	if c := n.catalog.Load(); c != nil {
		if node := c.View().Node(id); node != nil && node.ClusterAddr != "" {
			if !ok {
				return node.ClusterAddr, true
			}
			return n.detours.choose(id, addr, node.ClusterAddr, n.mesh.Peer(id).Up, time.Now()), true
		}
	}
	return addr, ok
}

func (n *running) openGossip(context.Context) (err error) {
	cfg := member.Config{
		Node: n.identity.NodeID(), Boot: n.identity.Boots(), Bind: n.cfg.GossipAddr, Advertise: n.cfg.AdvertiseHost,
		ClusterAddr: cmp.Or(n.cfg.ClusterAdvertiseAddr, n.listeners.cluster.Addr().String()), Join: n.cfg.Join,
		BookPath: filepath.Join(n.cfg.DataDir, "addresses.json"), Logger: n.log,
		Belongs: n.belongs, ClusterName: n.cfg.ClusterName, Encryption: member.Encryption(n.cfg.GossipEncryption),
	}
	if n.gossipKeys != nil {
		cfg.Keys = n.gossipKeys.Keys()
	}
	if n.gossip, err = member.Open(cfg); err != nil {
		return err
	}
	n.onClose("gossip", n.gossip.Close)
	if n.gossipKeys != nil {
		return n.gossipKeys.OnChange(n.gossip.SetKeys)
	}
	return nil
}

// belongs tells whether the catalog has a node, and no newer storage under its name.
func (n *running) belongs(id transport.NodeID) bool {
	c := n.catalog.Load()
	if c == nil {
		return false
	}
	node := c.View().Node(id)
	return node != nil && !node.Superseded
}

// warnAlone says that a node which founds a cluster of its own now will not join others, though it was told their addresses. That is so for the
// first node of a cluster that is to grow, and a mistake for all that come later.
func (n *running) warnAlone() {
	others := slices.DeleteFunc(slices.Clone(n.cfg.Join), func(addr string) bool { return addr == n.cfg.GossipAddr })
	if n.cfg.BootstrapExpect == 1 && n.identity.ClusterID() == "" && len(others) > 0 {
		n.log.Warn("this node founds a cluster of its own and joins none", "join", others,
			"hint", "--bootstrap-expect is 1: a node that is to join a cluster needs 0 and an empty data folder")
	}
}

// enterCluster founds or finds the cluster and brings the catalog up.
func (n *running) enterCluster(ctx context.Context) error {
	n.warnAlone()
	m, err := bootstrap.Run(ctx, bootstrap.Config{
		Identity: n.identity, Expect: n.cfg.BootstrapExpect, Call: n.mesh.CallAddr, Logger: n.log,
		Peers: func() (peers []bootstrap.Peer) {
			for _, v := range n.gossip.Visitors() {
				peers = append(peers, bootstrap.Peer{Node: v.Node, Addr: v.ClusterAddr})
			}
			return peers
		},
		Waiting: func(why string) {
			why = "waiting for a cluster: " + why
			n.starting.Store(&why)
		},
	})
	if err != nil {
		return err
	}
	if err := n.gossip.SetCluster(m.ClusterID); err != nil {
		return err
	}
	if err := n.identity.Part(partCatalog, catalog.Make); err != nil {
		return n.advised(err)
	}
	c := catalog.Config{
		Local: n.identity.NodeID(), Dir: filepath.Join(n.cfg.DataDir, partCatalog), Mesh: n.mesh, Logger: n.log,
		OnFatal: func(err error) {
			// As for the log store: a vote or an entry that may not be there must not be acted on.
			lastWords(n.log, n.logs, "the catalog's log failed, ending the process", n.advised(err), os.Exit)
		},
		Dead:        func(id catalog.NodeID) bool { return n.detector.State(id) == detector.Dead },
		BeforeWrite: n.beforeCatalogWrite(),
		Stamp:       n.identity.SetLevel, Starting: n.identity.Starting, Settle: n.cfg.UpgradeSettle, VoterReplaceAfter: n.cfg.VoterReplaceAfter, DownAfter: n.downAfter(),
	}
	if s := n.identity.Succession(); s != nil {
		c.Frozen = true
		n.log.Warn("this node has promised itself to a next life of the cluster and waits for it", "by", string(s.By), "next", s.ID)
	}
	if n.newcomer {
		n.founders = m.Founding
	}
	if m.Founding != nil {
		c.Founding = &catalog.Founding{ClusterID: m.ClusterID, Members: m.Founding, Admin: n.defaultUser}
	}
	cat, err := catalog.Open(c)
	if err != nil {
		return n.advised(err)
	}
	n.onClose("catalog", cat.Close)
	n.catalog.Store(cat)
	n.followPeers(m.Founding)
	n.watchBelonging(cat)
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

// followPeers keeps links to the nodes of the cluster and watches them.
func (n *running) followPeers(founders []transport.NodeID) {
	around := &neighbours{
		local: n.identity.NodeID(), founders: founders,
		known: func() iter.Seq[*catalog.Node] { return n.catalog.Load().View().Nodes() },
		left:  func(id transport.NodeID) bool { return n.catalog.Load().View().Forgotten(id) },
		heard: n.gossipNodes, links: n.mesh, watch: n.detector,
	}
	n.gossip.OnChange(around.refresh)
	// Called at once with the present view.
	n.catalog.Load().Subscribe(func(old, now *catalog.View) {
		if old == nil || !sameNodes(old, now) {
			around.refresh()
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
	n.detector, err = detector.New(detector.Config{
		Local: n.identity.NodeID(), Net: n.mesh, Logger: n.log,
		Voters: func() []transport.NodeID {
			if cat := n.catalog.Load(); cat != nil {
				return cat.Voters()
			}
			return nil
		},
	})
	if err != nil {
		return err
	}
	n.onClose("failure detector", func() error {
		// By now this node leads, votes and serves nothing any more.
		ctx, cancel := context.WithTimeout(context.Background(), timeoutGoodbye)
		defer cancel()
		n.detector.Goodbye(ctx)
		return n.detector.Close()
	})
	return nil
}

// register enters this start of the node in the catalog, once it has a leader.
func (n *running) register(ctx context.Context, cat *catalog.Catalog) (fsm.Origin, error) {
	local := n.identity.NodeID()
	reg := &catalog.RegisterNode{
		ID: local, ClusterAddr: n.gossip.Self().ClusterAddr, GossipAddr: n.gossip.Self().GossipAddr,
		AMQPAddr: n.told(n.listeners.amqp), HTTPAddr: n.told(n.listeners.http), GRPCAddr: n.told(n.listeners.grpc),
	}
	defer n.starting.Store(n.starting.Load())
	for said := ""; ; {
		res, err := cat.Register(ctx, reg)
		if err == nil {
			err = awaitFounding(ctx, cat)
			return fsm.Origin{Node: cat.View().Node(local).Number, Incarnation: res.ID}, err
		}
		if errors.Is(err, bootstrap.ErrOlder) {
			return fsm.Origin{}, err
		}
		if err.Error() != said {
			said = err.Error()
			n.log.Info("waiting for the catalog", "err", err)
			why := waitsForCatalog(err, cat.Voters())
			n.starting.Store(&why)
		}
		select {
		case <-ctx.Done():
			return fsm.Origin{}, ctx.Err()
		case <-time.After(registerRetry):
		}
	}
}

// waitsForCatalog says for people what keeps a node from entering itself in the catalog, and which nodes end that.
func waitsForCatalog(err error, voters []catalog.NodeID) string {
	names := make([]string, len(voters))
	for i, v := range voters {
		names[i] = nodeName(v)
	}
	slices.Sort(names)
	return fmt.Sprintf("waiting for the catalog, which needs a majority of its voters running: %s (%v)", strings.Join(names, ", "), err)
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
