package load

import (
	"context"
	"fmt"
	"os"
	"syscall"
	"time"

	"github.com/warrenmq/warren/test/cluster"
)

// servers are the processes under load: nodes that were started here, or
// strangers known by their ids.
type servers struct {
	cfg     *settings
	cluster *cluster.Cluster
	dir     string
}

// open starts the nodes when there are any to start.
func open(ctx context.Context, cfg *settings) (*servers, error) {
	s := &servers{cfg: cfg}
	if cfg.start == "" {
		return s, nil
	}
	dir, err := os.MkdirTemp("", "warren-perf-")
	if err != nil {
		return nil, err
	}
	s.dir = dir
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	s.cluster, err = cluster.Start(ctx, cluster.Config{Nodes: cfg.Nodes, Binary: cfg.start, Dir: dir, Args: []string{"--log-level", "warn"}})
	if err != nil {
		os.RemoveAll(dir)
		return nil, err
	}
	cfg.URLs = s.cluster.URLs()
	for _, n := range s.cluster.Nodes() {
		cfg.pids = append(cfg.pids, n.PID())
	}
	return s, nil
}

func (s *servers) close() error {
	if s.cluster == nil {
		return nil
	}
	defer os.RemoveAll(s.dir)
	return s.cluster.Close()
}

// usage is what the servers have used so far. Processes that are gone count
// nothing.
type usage struct {
	cpu time.Duration
	rss int64
}

func (s *servers) usage() usage {
	var u usage
	for _, pid := range s.cfg.pids {
		cpu, err1 := cluster.ProcessCPU(pid)
		rss, err2 := cluster.ProcessRSS(pid)
		if err1 == nil && err2 == nil {
			u.cpu += cpu
			u.rss += rss
		}
	}
	return u
}

// victim returns a function that kills the node which leads the queue. The
// clients that connect afterwards use the other nodes.
func (s *servers) victim(ctx context.Context, queue string) (kill func() error, err error) {
	if s.cluster == nil {
		return func() error { return syscall.Kill(s.cfg.leaderPID, syscall.SIGKILL) }, nil
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	leader, err := s.cluster.Leader(ctx, queue)
	if err != nil {
		return nil, fmt.Errorf("find the leader: %w", err)
	}
	s.cfg.URLs = nil
	for _, n := range s.cluster.Nodes() {
		if n != leader {
			s.cfg.URLs = append(s.cfg.URLs, n.URL())
		}
	}
	return leader.Kill, nil
}
