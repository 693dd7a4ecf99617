package main

import (
	"context"
	"math"
	"net/http"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/warrenmq/warren/catalog"
	"github.com/warrenmq/warren/cluster/alarm"
	"github.com/warrenmq/warren/config"
	"github.com/warrenmq/warren/metrics"
)

// serveMetrics adds /metrics and what is below it.
func (n *running) serveMetrics(mux *http.ServeMux) {
	h := inTime(n.metricsHandler(), openAnswers)
	mux.Handle("/metrics", h)
	mux.Handle("/metrics/", h)
}

// metricsHandler answers /metrics and below once the node is ready.
func (n *running) metricsHandler() http.Handler {
	handler := sync.OnceValue(func() http.Handler {
		h := metrics.Handler(n.metricsConfig(), n.log)
		if n.cfg.MetricsLogin == config.MetricsLoginOn {
			h = n.manager.ForMonitors(h)
		}
		return h
	})
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !n.ready.Load() {
			http.Error(w, errNotReady.Error(), http.StatusServiceUnavailable)
			return
		}
		handler().ServeHTTP(w, r)
	})
}

func (n *running) metricsConfig() metrics.Config {
	return metrics.Config{
		Node: func() metrics.Node {
			id := n.catalog.Load().View().ClusterID()
			product, version := n.cfg.Product()
			return metrics.Node{
				Name: n.cfg.NodeID, Cluster: n.ClusterName(), ClusterID: id, Product: product, Version: version,
				DiskLimit: uint64(n.diskReserve), MemoryLimit: n.alarms.gauge.Watermark,
			}
		},
		Resources: n.resources, Gateway: n.amqp.Stats, Store: n.store.Stats, Raft: n.replicas, Leaders: n.leaderships, Life: n.life, Cluster: n.clusterFigures, Repair: n.repairs, Broker: n.broker,
		GRPC: func() metrics.GRPC {
			f := n.grpc.Figures()
			return metrics.GRPC{Connections: f.Connections, Streams: f.Sessions, Accepted: f.Accepted}
		},
		Panics: n.guard.Contained, Logins: n.loginFigures, Shovels: n.shovelFigures, Passwords: n.passwordFigures, Remote: n.remoteFigures, Certificates: n.certificates, Gossip: n.gossipFigures, Spans: n.spans.figures,
		QueueName: func(id uint64) (vhost, name string, ok bool) {
			q := n.catalog.Load().View().QueueByID(id)
			if q == nil || q.State == catalog.Closing {
				return "", "", false
			}
			return q.Vhost, metrics.ObjectName(q.Name, q.DelayOf), true
		},
		Connections: n.amqp.Connections, Channels: n.amqp.Channels, Vhosts: n.vhostNames, Exchanges: n.exchangesOf,
	}
}

// resources are what the process uses now.
func (n *running) resources() metrics.Resources {
	local := n.alarms.board.Local()
	r := metrics.Resources{
		MemoryBytes: n.alarms.memory.Used(), MemoryAlarm: local&alarm.MemoryLow != 0, DiskAlarm: local&alarm.DiskLow != 0,
	}
	if files, err := os.ReadDir("/proc/self/fd"); err == nil {
		r.OpenFiles = uint64(len(files))
	}
	if most := openFilesMax(); most != math.MaxUint64 {
		r.OpenFilesMax = most
	}
	return r
}

func (n *running) vhostNames() (names []string) {
	for v := range n.catalog.Load().View().Vhosts() {
		names = append(names, v.Name)
	}
	return names
}

// exchangesOf are a virtual host's exchanges but the default one.
func (n *running) exchangesOf(vhost string) (list []metrics.Exchange) {
	view := n.catalog.Load().View()
	for x := range view.Exchanges(vhost) {
		if x.Name == "" {
			continue
		}
		e := metrics.Exchange{Name: x.Name, Type: x.Type.String()}
		for range view.BindingsFrom(vhost, x.Name) {
			e.Bindings++
		}
		list = append(list, e)
	}
	return list
}

// clusterFigures are the nodes of the cluster as this one sees them.
func (n *running) clusterFigures() (c metrics.Cluster) {
	cat := n.catalog.Load()
	for node := range cat.View().Nodes() {
		switch {
		case node.Superseded:
		case node.State == catalog.NodeLeaving:
			c.Leaving++
		case n.runs(node.ID):
			c.Running++
		default:
			c.Down++
		}
	}
	c.Voters = len(cat.Voters())
	return c
}

// Of the figure of replicas that lag: how old it may be when it is read, and how long other nodes have to answer.
const (
	lagAge  = 2 * time.Second
	lagWait = time.Second
)

// lagFigure is how many replicas here lag, which only other nodes can tell: no request for figures waits for them. They are asked after it, and what
// they said before is shown.
type lagFigure struct {
	wanted chan struct{}
	behind atomic.Int64 // -1: not known yet
}

func newLagFigure() *lagFigure {
	f := &lagFigure{wanted: make(chan struct{}, 1)}
	f.behind.Store(-1)
	return f
}

// read returns what is known, and sees to it that more will be.
func (f *lagFigure) read() int {
	select {
	case f.wanted <- struct{}{}:
	default:
	}
	return int(f.behind.Load())
}

// watchLag asks the other nodes, when somebody wants to know, every lagAge at most. It ends with ctx.
func (n *running) watchLag(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-n.lagShown.wanted:
		}
		// Every other node is asked once about all its groups.
		ask, cancel := context.WithTimeout(ctx, lagWait)
		n.lagShown.behind.Store(int64(n.host.Behind(ask, behindEntries).Behind))
		cancel()
		select {
		case <-ctx.Done():
			return
		case <-time.After(lagAge):
		}
	}
}

// leaderships are those of the queues' groups on this node.
func (n *running) leaderships() metrics.Leaders {
	s := n.host.Stats()
	return metrics.Leaders{
		Critical: n.host.Critical(), Missing: n.host.Missing(), Behind: n.lagShown.read(),
		Searching: s.Searching, WithoutMajority: n.broker.WithoutMajority(), Closing: n.broker.Closing(), Away: s.Away, Asleep: s.Asleep, Elections: s.ElectionsInjected, Returned: s.MovedHome, NotGiven: s.MovesHomeFailed, Fled: s.Fled,
		Searches: s.Searches.Classes[:], SearchesMS: float64(s.Searches.Sum.Milliseconds()),
	}
}

// replicas are the queues' Raft groups on this node.
func (n *running) replicas() []metrics.Raft {
	groups := n.host.Groups()
	list := make([]metrics.Raft, len(groups))
	for i, g := range groups {
		s := g.Positions()
		list[i] = metrics.Raft{Queue: uint64(g.ID()), Term: s.Term, Commit: s.Commit, Applied: s.Applied, Last: s.Last}
	}
	return list
}
