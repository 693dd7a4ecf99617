package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/warrenmq/warren/auth"
	"github.com/warrenmq/warren/auth/attempts"
	"github.com/warrenmq/warren/auth/passwords"
	"github.com/warrenmq/warren/auth/remote"
	"github.com/warrenmq/warren/auth/scopes"
	"github.com/warrenmq/warren/auth/tokens"
	"github.com/warrenmq/warren/broker"
	"github.com/warrenmq/warren/catalog"
	"github.com/warrenmq/warren/certs"
	"github.com/warrenmq/warren/cluster/bootstrap"
	"github.com/warrenmq/warren/cluster/detector"
	"github.com/warrenmq/warren/cluster/group"
	"github.com/warrenmq/warren/cluster/member"
	"github.com/warrenmq/warren/config"
	"github.com/warrenmq/warren/contain"
	"github.com/warrenmq/warren/definitions"
	"github.com/warrenmq/warren/dlx/mover"
	gateway "github.com/warrenmq/warren/gateway/amqp"
	rpc "github.com/warrenmq/warren/gateway/grpc"
	"github.com/warrenmq/warren/gateway/unread"
	"github.com/warrenmq/warren/management"
	"github.com/warrenmq/warren/shovel"
	"github.com/warrenmq/warren/stats"
	"github.com/warrenmq/warren/steward"
	"github.com/warrenmq/warren/store"
	"github.com/warrenmq/warren/transport"
)

// Bounds of a node's life.
const (
	queueTimeout    = 10 * time.Second // for an operation that waits for a queue's leader
	stuckSync       = 5 * time.Second  // a sync this old makes the node unfit to lead
	replicasDefault = 3
	registerRetry   = 200 * time.Millisecond
)

// running is one node, in the order in which it is built.
type running struct {
	cfg config.Config
	log *slog.Logger
	// logLevel is what log keeps to.
	logs *logs

	identity        *bootstrap.Identity
	listeners       listeners
	clientTLS       *certs.Source   // nil without a certificate for clients
	diskReserve     int64           // bytes below which the disk alarm is set, as it was at the start
	tokens          *tokens.Checker // nil: nobody logs in with one
	scopes          *scopes.Config  // nil: the scopes of tokens count for nothing
	remote          *remote.Server  // nil: no server is asked about logins
	nodeTLS         *certs.Source   // nil without TLS between nodes
	gossipKeys      *member.KeyFile // nil without encryption of gossip
	detours         detours
	store           *store.Store
	mesh            *transport.Mesh
	gossip          *member.Gossip
	catalog         atomic.Pointer[catalog.Catalog]
	detector        *detector.Detector
	fill            *transport.Pace // of what is sent to fill replicas
	gate            mover.Gate      // of what queues here tell other queues
	host            *group.Host
	steward         *steward.Steward
	broker          *broker.Broker
	amqp            *gateway.Server
	grpc            *rpc.Server
	sampler         *stats.Sampler
	manager         *management.API
	shovels         *shovel.Crew
	shovelsWake     chan struct{}  // capacity 1
	inner           *innerListener // for shovels
	logins          *attempts.Table
	passwords       *passwords.Keeper
	definitions     *definitions.Service
	definitionsFile []byte             // to be loaded, nil: nothing
	founders        []transport.NodeID // of the cluster that this process founds, with others or alone; nil: it joins one, or has been in one
	newcomer        bool               // the node belonged to no cluster when it was started
	alarms          *alarms
	crew            crew
	ready           atomic.Bool            // what answers management requests is there
	phase           atomic.Int32           // a phase
	starting        atomic.Pointer[string] // the step of the start that is under way
	caughtUp        atomic.Bool            // awaitLogs has ended
	lag             atomic.Pointer[group.Lag]
	lagShown        *lagFigure
	spans           *spans
	since           atomic.Uint64 // catalog revision of this process's registration

	lifecycle   lifecycle
	standing    *standing
	guard       *contain.Guard
	successions successions

	// expel ends the node because the cluster says that it does not belong to it, or that it is to begin anew.
	expel context.CancelCauseFunc

	closers []closer // run last to first
	failed  chan error
}

// closer ends one part of the node.
type closer struct {
	name string
	end  func() error
}

// serve runs a node, and again from its folder as often as that begins a new life.
func serve(ctx context.Context, cfg config.Config, log *slog.Logger, kept *logs) error {
	if slack, err := lengthenNaps(); err != nil {
		log.Info("the timer slack stays", "slack", slack, "err", err)
	}
	for {
		if err := run(ctx, cfg, log, kept); !errors.Is(err, errRenewed) || ctx.Err() != nil {
			return err
		}
	}
}

// run builds a node top to bottom, serves until ctx ends, and takes it down
// in reverse.
func run(ctx context.Context, cfg config.Config, log *slog.Logger, kept *logs) (err error) {
	n := &running{cfg: cfg, log: log, logs: kept, failed: make(chan error, 8), lifecycle: newLifecycle(), lagShown: newLagFigure(), spans: newSpans(), fill: transport.NewPace(cfg.RepairRate)}
	n.lag.Store(&group.Lag{})
	defer func() {
		if e := n.close(); e != nil && errors.Is(err, errRenewed) {
			err = e // what did not end is in the way of what would begin
		} else {
			err = errors.Join(err, e)
		}
	}()
	n.openGuard()
	ctx, n.expel = context.WithCancelCause(ctx)
	defer n.expel(nil)
	for _, step := range []struct {
		name string
		do   func(context.Context) error
	}{
		{"data folder", n.openIdentity},
		{"default user", n.checkDefaultUser},
		{"definitions", n.checkDefinitions},
		{"certificates", n.openCertificates},
		{"listeners", n.listen},
		{"store", n.openStore},
		{"cluster link", n.openMesh},
		{"gossip", n.openGossip},
		{"health checks", n.serveHTTP},
		{"failure detector", n.openDetector},
		{"cluster", n.enterCluster},
		{"queue logs", n.openHost},
		{"traces", n.openTraces},
		{"broker", n.startBroker},
		{"founding members", n.awaitFounders},
		{"steward", n.openSteward},
		{"loading definitions", n.openDefinitions},
		{"alarms of the other nodes", n.awaitAlarms},
		{"clients", n.serveClients},
	} {
		n.starting.Store(&step.name)
		if err := step.do(ctx); err != nil {
			if ctx.Err() != nil {
				return expelled(ctx) // interrupted while starting
			}
			return fmt.Errorf("%s: %w", step.name, err)
		}
	}
	n.ready.Store(true)
	n.log.Info("ready", "amqp", n.listeners.amqp.Addr(), "http", n.listeners.http.Addr(), "grpc", n.listeners.grpc.Addr(),
		"cluster", n.listeners.cluster.Addr(), "data", cfg.DataDir)
	return errors.Join(n.live(ctx), expelled(ctx))
}

func (n *running) onClose(name string, end func() error) {
	n.closers = append(n.closers, closer{name, end})
}

func (n *running) openIdentity(context.Context) (err error) {
	if n.identity, err = bootstrap.OpenIdentity(n.cfg.DataDir, n.cfg.NodeID, dataParts...); err != nil {
		return err
	}
	n.onClose("data folder", n.identity.Close)
	n.newcomer = n.identity.ClusterID() == ""
	return nil
}

// listeners are the ports of a node. Those for clients of AMQP and gRPC are there for their addresses: they are closed, and the gateways have others.
type listeners struct{ amqp, http, grpc, cluster, amqps, https, health, metrics, debug net.Listener } // the last five are nil if not wanted

// listen takes all ports at once, so that a start with one that is taken ends soon. A client that came before it can be served would wait in
// the kernel for as long as the node waits for others: acceptClients listens for them, and until then they are refused and try the next node.
func (n *running) listen(context.Context) error {
	for _, l := range []struct {
		name, addr string
		to         *net.Listener
		later      bool
	}{
		{"amqp", n.cfg.AMQPAddr, &n.listeners.amqp, true},
		{"http", n.cfg.HTTPAddr, &n.listeners.http, false},
		{"grpc", n.cfg.GRPCAddr, &n.listeners.grpc, true},
		{"cluster", n.cfg.ClusterAddr, &n.listeners.cluster, false},
		{"amqps", n.cfg.AMQPSAddr, &n.listeners.amqps, true},
		{"https", n.cfg.HTTPSAddr, &n.listeners.https, false},
		{"health", n.cfg.HealthAddr, &n.listeners.health, false},
		{"metrics", n.cfg.MetricsAddr, &n.listeners.metrics, false},
		{"debug", n.cfg.DebugAddr, &n.listeners.debug, false},
	} {
		if l.addr == "" {
			continue
		}
		ln, err := net.Listen("tcp", l.addr)
		if err != nil {
			return fmt.Errorf("%s-addr: %w", l.name, err)
		}
		*l.to = ln
		if l.later {
			defer ln.Close() // when all are taken: two settings may name the same port
			continue
		}
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

// Parts of the data folder that must not be lost one without the others.
const (
	partLog     = "log"
	partCatalog = "catalog"
)

var dataParts = []bootstrap.Part{
	{Name: partLog, Whole: func(dir string) error { return store.Whole(store.OSFS{}, dir) }},
	{Name: partCatalog, Whole: catalog.Whole},
}

func (n *running) openStore(context.Context) error { return n.identity.Part(partLog, n.openLog) }

func (n *running) openLog(dir string) (err error) {
	n.diskReserve = diskReserve(n.cfg)
	n.store, err = store.Open(store.Options{
		Dir: dir, FS: n.disk(), LingerMax: 300 * time.Microsecond, Logger: n.log,
		DiskReserveBytes: n.diskReserve,
		OnFatal: func(err error) {
			// What the disk holds is unknown now: no answer may be given that
			// depends on it. A restart recovers what was synced.
			lastWords(n.log, n.logs, "log store failed, ending the process", err, os.Exit)
		},
	})
	if err != nil {
		return n.advised(err)
	}
	n.onClose("store", n.store.Close)
	return nil
}

// advised adds what to do if a folder has lost what the node has promised to keep.
func (n *running) advised(err error) error {
	if _, corrupt := errors.AsType[*store.CorruptError](err); !corrupt && !errors.Is(err, catalog.ErrDamaged) {
		return err
	}
	return fmt.Errorf("%w: check the disk, move %s aside, and start the node with an empty folder: it is filled from the other nodes", err, n.cfg.DataDir)
}

// Bounds of the free disk space below which publishers are blocked.
const (
	diskReserveMax   = 128 << 20 // bytes: two segments of the log; more if it is configured
	diskReserveShare = 16        // of the file system, for small ones
)

// diskReserve is the free space to keep on the data folder's file system: what is configured, but never less than the log needs.
func diskReserve(cfg config.Config) int64 {
	var fs syscall.Statfs_t
	if err := syscall.Statfs(cfg.DataDir, &fs); err != nil {
		return diskReserveMax
	}
	size := fs.Blocks * uint64(fs.Bsize)
	return int64(max(min(diskReserveMax, size/diskReserveShare), cfg.DiskFreeLimit.Of(size)))
}

func (n *running) openHost(context.Context) error {
	n.host = group.NewHost(group.HostConfig{
		Local: n.identity.NodeID(), Store: group.OverStore(n.store), Mesh: group.OverMesh(n.mesh), Detector: n.detector,
		Logger: n.log, TrailingBytes: logKept, MovesPerSecond: n.cfg.LeaderMoves, Fill: n.fill,
		SleepAfter: n.cfg.SleepAfter, SyncOutstanding: n.store.SyncOutstanding,
		OnUnknown: func(_ transport.GroupID, _ transport.NodeID, catalogIndex uint64) {
			ctx, cancel := context.WithTimeout(context.Background(), time.Second)
			defer cancel()
			// The broker follows the catalog and starts what belongs here.
			_ = n.catalog.Load().WaitApplied(ctx, catalogIndex)
		},
		OnReached: n.reached,
		Current:   n.planned,
		OnDamaged: func(id transport.GroupID) { n.broker.ReplicaDamaged(uint64(id)) },
	})
	n.onClose("queue logs", n.host.Close)
	return nil
}

func (n *running) startBroker(ctx context.Context) error {
	cat := n.catalog.Load()
	local := n.identity.NodeID()
	n.openLogins()
	total, _ := n.alarms.memory.Total()
	n.broker = broker.New(broker.Config{
		Node: string(local),
		Send: func(node string, payload []byte) error {
			return n.mesh.Send(transport.NodeID(node), broker.MessageKind, payload)
		},
		Room:    func(node string) bool { return n.mesh.HasRoom(transport.NodeID(node)) },
		Replies: replyLink{n.mesh},
		Call: func(ctx context.Context, node string, method uint8, req []byte) ([]byte, error) {
			return n.mesh.Call(ctx, transport.NodeID(node), method, req)
		},
		Now:          n.mesh.Clock,
		ClockOffsets: func() []time.Duration { return n.clockOffsets(cat.View()) },
		Groups:       raftGroups{host: n.host, store: n.store, since: &n.since, born: n.alarms.born},
		Alive:        func(node string) bool { return n.detector.State(transport.NodeID(node)) != detector.Dead },
		Online:       func(node string) bool { return n.runs(transport.NodeID(node)) },
		Passwords:    n.passwords,
		Backends:     n.backends(),
		TxBytesMax:   int64(n.cfg.MemoryHighWatermark.Of(total) / 4),
		Replicas:     replicasDefault, QueueTimeout: queueTimeout, Logger: n.log,

		ConsumerTimeout: n.cfg.ConsumerTimeout, Gate: &n.gate, Trace: n.spans.tracer,
	}, cat)
	n.onClose("broker", func() error {
		n.broker.Close()
		return nil
	})
	n.openBackups()
	n.mesh.Handle(broker.MessageKind, func(from transport.NodeID, payload []byte) { n.broker.Receive(string(from), payload) })
	n.mesh.Handle(broker.ReplyKind, func(from transport.NodeID, payload []byte) {
		_, _ = n.broker.ReceiveReply(string(from), payload) // it has logged the error; nobody waits
	})
	n.mesh.HandleCall(broker.MethodOutboxes, func(ctx context.Context, _ transport.NodeID, payload []byte) ([]byte, error) {
		return n.broker.AnswerOutboxes(ctx, payload)
	})
	n.mesh.HandleCall(broker.MethodCount, func(_ context.Context, _ transport.NodeID, question []byte) ([]byte, error) {
		return n.broker.ReceiveCount(question)
	})
	n.mesh.HandleCall(broker.MethodReply, func(_ context.Context, from transport.NodeID, payload []byte) ([]byte, error) {
		return n.broker.ReceiveReply(string(from), payload)
	})
	n.mesh.HandleCall(broker.MethodInquire, func(ctx context.Context, _ transport.NodeID, payload []byte) ([]byte, error) {
		return n.broker.AnswerInquiry(ctx, payload)
	})
	self, err := n.register(ctx, cat)
	if err != nil {
		return err
	}
	n.wipeDeleted(cat.View())
	n.since.Store(self.Incarnation)
	n.broker.Start(self)
	n.standing = newStanding(local, func() catalog.NodeState { return cat.View().NodeState(local) }, func(ctx context.Context, cmd catalog.Command) error {
		_, err := cat.Propose(ctx, cmd)
		return err
	}, n.log)
	n.tellAbout(cat)
	n.mesh.OnPeerChange(func(s transport.PeerStatus) {
		if s.Up {
			n.broker.PeerUp(string(s.Node))
		}
	})
	cancel := n.detector.Subscribe(func(e detector.Event) {
		switch e.State {
		case detector.Dead:
			cat.NodeDead(e.Node)
			n.broker.NodeDead(string(e.Node), e.Restarted, e.Refused)
			n.alarms.nodeDead(string(e.Node))
		case detector.Alive:
			n.broker.NodeAlive(string(e.Node))
		}
	})
	n.onClose("verdicts", func() error {
		cancel()
		return nil
	})
	return nil
}

// serveClients opens the protocols.
func (n *running) serveClients(context.Context) error {
	c := gateway.Default()
	c.Logger, c.Guard = n.log, n.guard
	c.Product, c.Version = n.cfg.Product()
	total, _ := n.alarms.memory.Total()
	c.OpenMax, c.ChannelMax, c.Heartbeat, c.MessageBytesMax = n.cfg.ConnectionMax, uint16(n.cfg.ChannelMax), uint16(n.cfg.Heartbeat/time.Second), int(n.cfg.MaxMessageSize)
	c.LimitAssembly(n.cfg.MemoryHighWatermark.Of(total))
	c.LimitConnections(n.cfg.MemoryHighWatermark.Of(total))
	c.Unread = unread.New(int64(max(1, n.cfg.UnreadMax.Of(total))), n.broker.Narrow)
	if n.cfg.TLSClientAuth != config.ClientAuthNone {
		c.Mechanisms = append(c.Mechanisms, auth.MechanismExternal)
	}
	c.PeerName = n.peerName()
	grpcConnections := n.shareFiles(&c)
	server, err := gateway.New(c, amqpBroker{n.broker, n})
	if err != nil {
		return err
	}
	n.amqp = server
	n.keepCrew()
	n.openGRPC(c, grpcConnections)
	n.openShovels()
	n.openManagement()
	n.alarms.look() // before the first publisher
	n.alarms.apply()
	if err := n.acceptClients(); err != nil {
		return err
	}
	n.watchResources()
	n.onClose("amqp clients", func() error {
		ctx, cancel := context.WithCancel(context.Background())
		cancel() // those that are still there have been told, or are not waited for
		_, _ = server.Shutdown(ctx, gateway.ShutdownOptions{})
		return nil
	})
	return nil
}
