package load

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
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

// open starts the nodes when there are any to start. For the mode start it only
// prepares them.
func open(ctx context.Context, cfg *settings) (*servers, error) {
	s := &servers{cfg: cfg}
	if cfg.start == "" {
		return s, nil
	}
	dir, err := os.MkdirTemp(cfg.dir, "warren-perf-")
	if err != nil {
		return nil, err
	}
	s.dir = dir
	s.cluster, err = cluster.New(cluster.Config{Nodes: cfg.Nodes, Binary: cfg.start, Dir: dir, Args: []string{"--log-level", "warn"}})
	if err == nil && cfg.Mode != "start" {
		ctx, cancel := context.WithTimeout(ctx, time.Minute)
		defer cancel()
		err = s.cluster.StartAll(ctx)
	}
	if err != nil {
		return nil, errors.Join(err, s.close())
	}
	cfg.URLs = s.cluster.URLs()
	if cfg.Mode != "start" {
		s.note()
	}
	return s, nil
}

// note takes down the processes of the nodes that run.
func (s *servers) note() {
	s.cfg.pids = nil
	for _, n := range s.cluster.Nodes() {
		s.cfg.pids = append(s.cfg.pids, n.PID())
	}
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
	cpu     time.Duration
	rss     int64
	written int64 // bytes, to disk
}

func (s *servers) usage() usage {
	var u usage
	for _, pid := range s.cfg.pids {
		cpu, err1 := cluster.ProcessCPU(pid)
		rss, err2 := cluster.ProcessRSS(pid)
		written, err3 := cluster.ProcessWritten(pid)
		if err1 == nil && err2 == nil {
			u.cpu += cpu
			u.rss += rss
		}
		if err3 == nil { // only a process of the same user tells
			u.written += written
		}
	}
	return u
}

// victim returns a function that sends a signal to the server which leads the queue. The
// clients that connect afterwards use the others.
func (s *servers) victim(ctx context.Context, d Driver, queue string) (hit func(syscall.Signal) error, err error) {
	switch {
	case s.cluster != nil:
		ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
		defer cancel()
		leader, err := s.cluster.Leader(ctx, queue)
		if err != nil {
			return nil, fmt.Errorf("find the leader: %w", err)
		}
		s.leave(leader.URL())
		return leader.Signal, nil
	case len(s.cfg.servers) > 0:
		leader, err := s.leads(d, queue)
		if err != nil {
			return nil, fmt.Errorf("find the leader: %w", err)
		}
		s.leave(leader.url)
		return func(sig syscall.Signal) error { return syscall.Kill(leader.pid, sig) }, nil
	}
	return func(sig syscall.Signal) error { return syscall.Kill(s.cfg.leaderPID, sig) }, nil
}

// leave has clients not use this URL any more.
func (s *servers) leave(url string) {
	s.cfg.URLs = slices.DeleteFunc(slices.Clone(s.cfg.URLs), func(u string) bool { return u == url })
}

// leads asks who leads a queue. Where the protocol does not tell it is the first: the queue was
// declared there.
func (s *servers) leads(d Driver, queue string) (server, error) {
	c, err := d.Dial(s.cfg.URLs[0])
	if err != nil {
		return server{}, err
	}
	defer c.Close()
	name, err := c.Leader(queue)
	if errors.Is(err, ErrUnsupported) {
		return s.cfg.servers[0], nil
	}
	if err != nil {
		return server{}, err
	}
	for _, x := range s.cfg.servers {
		if x.name == name {
			return x, nil
		}
	}
	return server{}, fmt.Errorf("%q is not among --servers", name)
}
