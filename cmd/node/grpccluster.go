package main

import (
	"context"

	warrenv1 "github.com/warrenmq/warren/api/warren/v1"
	"github.com/warrenmq/warren/broker"
	"github.com/warrenmq/warren/management"
	"github.com/warrenmq/warren/stats"
)

// grpcCluster tells clients of gRPC what the management API knows.
type grpcCluster struct{ n *running }

// Describe implements rpc.Cluster.
func (c grpcCluster) Describe(ctx context.Context, ask bool) *warrenv1.GetClusterResponse {
	n := c.n
	d := &warrenv1.GetClusterResponse{
		ClusterId: n.ClusterID(), ClusterName: n.ClusterName(), Node: n.cfg.NodeID, Level: uint32(n.Level()), CatalogLeader: n.CatalogLeader(),
	}
	list := n.manager.Nodes(ctx, ask)
	for i := range list {
		m := &list[i]
		d.Nodes = append(d.Nodes, &warrenv1.Node{
			Name: m.Name, Running: m.Running, State: m.State, Zone: m.Zone, Version: m.Version, Level: uint32(m.Level), Replicas: uint64(m.Replicas),
			CatalogVoter: m.CatalogVoter, DownSinceMillis: uint64(m.DownSince), Use: useOf(m.NodeStats),
		})
	}
	return d
}

func useOf(s *management.NodeStats) *warrenv1.NodeUse {
	if s == nil {
		return nil
	}
	return &warrenv1.NodeUse{
		UptimeMillis: uint64(s.Uptime), MemoryUsedBytes: s.MemUsed, MemoryLimitBytes: s.MemLimit, MemoryAlarm: s.MemAlarm,
		DiskFreeBytes: s.DiskFree, DiskLimitBytes: s.DiskLimit, DiskAlarm: s.DiskAlarm, FilesUsed: s.FilesUsed, FilesLimit: s.FilesTotal,
		Connections: uint64(s.SocketsUsed), ConnectionsLimit: uint64(s.SocketsTotal),
	}
}

// QueueLeaders implements rpc.Cluster.
func (c grpcCluster) QueueLeaders(ctx context.Context) func(id uint64) string {
	return c.n.manager.QueueLeaders(ctx)
}

// QueueFigures implements rpc.Cluster.
func (c grpcCluster) QueueFigures(ctx context.Context, names []broker.QueueName, yield func(i int, info *broker.QueueInfo, bytes uint64, rates *stats.Rates)) {
	c.n.manager.QueueFigures(ctx, names, yield)
}
