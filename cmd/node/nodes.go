package main

import (
	"net"
	"os"
	"runtime"
	"runtime/metrics"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/warrenmq/warren/catalog"
	"github.com/warrenmq/warren/cluster/alarm"
	"github.com/warrenmq/warren/cluster/detector"
	"github.com/warrenmq/warren/management"
	"github.com/warrenmq/warren/stats"
)

// ClusterID names the cluster.
// ProductVersion is the version that clients are told.
func (n *running) ProductVersion() string {
	_, version := n.cfg.Product()
	return version
}

// ClusterName is the name that an operator gave the cluster, in the catalog or by the node's settings, else its id.
func (n *running) ClusterName() string {
	view := n.catalog.Load().View()
	if name := view.ClusterName(); name != view.ClusterID() || n.cfg.ClusterName == "" {
		return name
	}
	return n.cfg.ClusterName
}

// ClusterID is what the cluster is.
func (n *running) ClusterID() string { return n.catalog.Load().View().ClusterID() }

// CatalogLeader is the node that leads the catalog as this one knows, "" if none, or if that one has not been heard for so long that this node is not ready.
func (n *running) CatalogLeader() string {
	cat := n.catalog.Load()
	if cat.Unheard() > catalogSilence {
		return ""
	}
	return nodeName(cat.LeaderID())
}

// Local is this node's id.
func (n *running) Local() string { return string(n.identity.NodeID()) }

// Nodes describes the nodes of the catalog, by name.
func (n *running) Nodes() []management.Node {
	cat := n.catalog.Load()
	voters := cat.Voters()
	var list []management.Node
	view := cat.View()
	for node := range view.Nodes() {
		if node.Superseded {
			continue
		}
		m := management.Node{
			ID: string(node.ID), Name: node.Name, Type: "disc", Partitions: []string{}, Running: n.runs(node.ID),
			BeingDrained: node.State == catalog.NodeDraining, State: node.State.String(), Zone: node.Zone, Version: node.Version,
			Level: node.Level, Replicas: view.Replicas(node.ID), CatalogVoter: slices.Contains(voters, node.ID),
			ClusterAddr: node.ClusterAddr, Listeners: listenersOf(node), DownSince: node.Down,
		}
		list = append(list, m)
	}
	return list
}

func nodeName(id catalog.NodeID) string {
	name, _, _ := strings.Cut(string(id), "/")
	return name
}

// runs tells of this node, or of one that it has a link to and that nobody has found dead.
func (n *running) runs(id catalog.NodeID) bool {
	return id == n.identity.NodeID() || n.mesh.Peer(id).Up && n.detector.State(id) != detector.Dead
}

// purposes are what rabbitmqctl calls the uses of listeners.
var purposes = map[string]string{
	"amqp": "AMQP 0-9-1", "amqp/ssl": "AMQP 0-9-1 over TLS", "http": "HTTP API", "https": "HTTP API over TLS", "grpc": "gRPC",
	"http/prometheus": "metrics", "clustering": "nodes", "health": "health checks", "debug": "profiles",
}

// listenersOf are a node's listeners: those it told of, or, before the cluster's level has room for them, those of its registration.
func listenersOf(node *catalog.Node) []management.Listener {
	told := node.Listeners
	if told == nil {
		told = []string{"amqp " + node.AMQPAddr, "http " + node.HTTPAddr, "grpc " + node.GRPCAddr}
	}
	list := []management.Listener{}
	for _, l := range append(slices.Clip(told), "clustering "+node.ClusterAddr) {
		protocol, addr, _ := strings.Cut(l, " ")
		i := strings.LastIndexByte(addr, ':')
		port, err := strconv.Atoi(addr[i+1:])
		if i < 0 || err != nil {
			continue
		}
		list = append(list, management.Listener{Node: node.Name, Protocol: protocol, Address: addr[:i], Port: port, Purpose: purposes[protocol]})
	}
	return list
}

// Stats are what this process has and uses, and how fast that changes.
func (n *running) Stats() management.NodeStats {
	s := n.use()
	r := n.sampler.Rates(stats.Key{Kind: stats.Process})
	s.SetRates(&r)
	return s
}

// Alarms are what another node last said that it is short of.
func (n *running) Alarms(id string) (memory, disk bool) {
	s := n.alarms.board.Of(id)
	return s&alarm.MemoryLow != 0, s&alarm.DiskLow != 0
}

// use is what this process has and uses.
func (n *running) use() management.NodeStats {
	r := n.resources()
	s := management.NodeStats{
		PID: strconv.Itoa(os.Getpid()), Uptime: time.Since(begun).Milliseconds(), Processors: int(n.crew.all.Load()),
		MemUsed: r.MemoryBytes, MemLimit: n.alarms.gauge.Watermark, MemAlarm: r.MemoryAlarm,
		DiskLimit: uint64(n.diskReserve), DiskAlarm: r.DiskAlarm, FilesUsed: r.OpenFiles, FilesTotal: r.OpenFilesMax, ClusterLinks: []management.ClusterLink{},
	}
	gateway := n.amqp.Stats()
	s.SocketsUsed, s.SocketsTotal, s.ProcUsed = gateway.Connections, gateway.ConnectionsMax, runtime.NumGoroutine()
	ready := []metrics.Sample{{Name: "/sched/goroutines/runnable:goroutines"}}
	if metrics.Read(ready); ready[0].Value.Kind() == metrics.KindUint64 {
		s.RunQueue = ready[0].Value.Uint64()
	}
	for node := range n.catalog.Load().View().Nodes() {
		if node.ID == n.identity.NodeID() || node.Superseded || !n.mesh.Peer(node.ID).Up {
			continue
		}
		host, port, _ := net.SplitHostPort(node.ClusterAddr)
		number, _ := strconv.Atoi(port)
		s.ClusterLinks = append(s.ClusterLinks, management.ClusterLink{Name: node.Name, PeerAddr: host, PeerPort: number})
	}
	var fs syscall.Statfs_t
	if syscall.Statfs(n.cfg.DataDir, &fs) == nil {
		s.DiskFree = fs.Bavail * uint64(fs.Bsize)
	}
	return s
}

// begun is when the process started.
var begun = time.Now()
