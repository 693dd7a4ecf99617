package main

import (
	"context"
	"net/http"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/warrenmq/warren/catalog"
	"github.com/warrenmq/warren/cluster/alarm"
	"github.com/warrenmq/warren/metrics"
)

// metricsHandler answers /metrics and below once the node is ready.
func (n *running) metricsHandler() http.Handler {
	handler := sync.OnceValue(func() http.Handler { return metrics.Handler(n.metricsConfig(), n.log) })
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
				Name: n.cfg.NodeID, Cluster: id, ClusterID: id, Product: product, Version: version,
				DiskLimit: uint64(diskReserve(n.cfg.DataDir)), MemoryLimit: n.alarms.gauge.Watermark,
			}
		},
		Resources: n.resources, Gateway: n.amqp.Stats, Store: n.store.Stats, Raft: n.replicas, Leaders: n.leaderships, Life: n.life, Repair: n.repairs, Broker: n.broker,
		Certificates: n.certificates, Gossip: n.gossipFigures,
		QueueName: func(id uint64) (vhost, name string, ok bool) {
			q := n.catalog.Load().View().QueueByID(id)
			if q == nil || q.State == catalog.Closing {
				return "", "", false
			}
			return q.Vhost, metrics.ObjectName(q.Name, q.DelayOf), true
		},
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
	var limit syscall.Rlimit
	if syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit) == nil {
		r.OpenFilesMax = limit.Cur
	}
	return r
}

// lagWait bounds how long a request for figures waits for other nodes.
const lagWait = time.Second

// leaderships are those of the queues' groups on this node.
func (n *running) leaderships() metrics.Leaders {
	s := n.host.Stats()
	// Every other node is asked once about all its groups; one that hangs holds no scrape up.
	ctx, cancel := context.WithTimeout(context.Background(), lagWait)
	defer cancel()
	return metrics.Leaders{
		Critical: n.host.Critical(), Missing: n.host.Missing(), Behind: n.host.Behind(ctx, gateEntries).Behind,
		Searching: s.Searching, Away: s.Away, Elections: s.ElectionsInjected, Returned: s.MovedHome, NotGiven: s.MovesHomeFailed,
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
