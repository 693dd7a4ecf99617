package load

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/warrenmq/warren/jepsen/network"
	"github.com/warrenmq/warren/test/cluster"
)

// servers are the processes under load: nodes that were started here, or
// strangers known by their ids.
type servers struct {
	cfg     *settings
	cluster *cluster.Cluster
	dir     string
	links   network.Network // between nodes that may be cut off, else nil
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
	c := cluster.Config{Nodes: cfg.Nodes, Binary: cfg.start, Dir: dir, Args: []string{"--log-level", cfg.logLevel}}
	if cfg.Cut {
		c.Places, err = s.throughProxies(cfg.Nodes)
	}
	if err == nil {
		s.cluster, err = cluster.New(c)
	}
	if err == nil && cfg.Mode != "start" {
		ctx, cancel := context.WithTimeout(ctx, time.Minute)
		defer cancel()
		err = s.cluster.StartAll(ctx)
	}
	if err != nil {
		return nil, errors.Join(err, s.close())
	}
	cfg.URLs = s.cluster.URLs()
	if cfg.Protocol == "grpc" {
		cfg.URLs = nil
		for _, n := range s.cluster.Nodes() {
			cfg.URLs = append(cfg.URLs, "grpc://guest:guest@"+n.GRPCAddr())
		}
	}
	if cfg.Mode != "start" {
		s.note()
	}
	return s, nil
}

// throughProxies has the nodes reach each other through this process, which can then cut them off.
func (s *servers) throughProxies(nodes int) (func(string) (cluster.Place, error), error) {
	names := make([]string, nodes)
	for i := range names {
		names[i] = fmt.Sprintf("node%d", i+1) // as package cluster names them
	}
	links, err := network.OpenProxies(names)
	if err != nil {
		return nil, err
	}
	s.links = links
	return func(node string) (cluster.Place, error) {
		p, err := links.Place(node)
		return cluster.Place{Args: func(a cluster.Addrs) ([]string, error) {
			addr, err := p.Advertise(a.Cluster)
			return []string{"--cluster-advertise-addr", addr}, err
		}}, err
	}, nil
}

// note takes down the processes of the nodes that run.
func (s *servers) note() {
	s.cfg.pids = nil
	for _, n := range s.cluster.Nodes() {
		s.cfg.pids = append(s.cfg.pids, n.PID())
	}
}

func (s *servers) close() error {
	if s.dir != "" && !s.cfg.keep {
		defer os.RemoveAll(s.dir)
	} else if s.dir != "" {
		fmt.Fprintln(os.Stderr, "warren-perf: the nodes' folders are in", s.dir)
	}
	var err error
	if s.cluster != nil {
		err = s.cluster.Close()
	}
	if s.links != nil {
		err = errors.Join(err, s.links.Close())
	}
	return err
}

// usage is what the servers have used so far. Processes that are gone count
// nothing.
type usage struct {
	cpu     time.Duration
	rss     int64
	written int64 // bytes, to disk
}

func (s *servers) usage() usage { return usageOf(s.cfg.pids) }

func usageOf(pids []int) usage {
	var u usage
	for _, pid := range pids {
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

// hit is what happens to a server.
type hit struct {
	do, undo func() error
	queues   []string // that it leads, if that is known
	others   []int    // processes of the other servers
}

// victim prepares the end of the server that leads the queue. The clients that connect
// afterwards use the others.
func (s *servers) victim(ctx context.Context, d Driver, queue string) (*hit, error) {
	signal := func(sig syscall.Signal) error { return syscall.Kill(s.cfg.leaderPID, sig) }
	h := &hit{}
	switch {
	case s.cluster != nil:
		leader, err := s.find(ctx, queue, h)
		if err != nil {
			return nil, fmt.Errorf("find the leader: %w", err)
		}
		s.leave(leader.URL())
		for _, n := range s.cluster.Nodes() {
			if n != leader {
				h.others = append(h.others, n.PID())
			}
		}
		if s.cfg.Cut {
			h.do = func() error { return s.links.Harm(s.around(leader.Name), network.Link{Cut: true}) }
			h.undo = func() error { s.links.Heal(); return nil }
			return h, nil
		}
		signal = leader.Signal
	case len(s.cfg.servers) > 0:
		leader, err := s.leads(d, queue)
		if err != nil {
			return nil, fmt.Errorf("find the leader: %w", err)
		}
		s.leave(leader.url)
		signal = func(sig syscall.Signal) error { return syscall.Kill(leader.pid, sig) }
	}
	h.do, h.undo = func() error { return signal(syscall.SIGKILL) }, func() error { return nil }
	if s.cfg.Freeze {
		h.do, h.undo = func() error { return signal(syscall.SIGSTOP) }, func() error { return signal(syscall.SIGCONT) }
	}
	return h, nil
}

// find returns the node that leads the queue, and notes all that it leads.
func (s *servers) find(ctx context.Context, queue string, h *hit) (leader *cluster.Node, err error) {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	err = cluster.Poll(ctx, func() (bool, error) {
		for _, n := range s.cluster.Nodes() {
			page, err := n.Fetch(ctx, "/metrics/detailed?family=queue_consumer_count")
			if err != nil {
				return false, err
			}
			if h.queues = ledQueues(string(page), s.cfg.Prefix); slices.Contains(h.queues, queue) {
				leader = n
				return true, nil
			}
		}
		return false, nil
	})
	return leader, err
}

// ledQueues reads the queues of a run from the metrics of the node that leads them.
func ledQueues(page, prefix string) (names []string) {
	for line := range strings.Lines(page) {
		if !strings.HasPrefix(line, "rabbitmq_detailed_queue_consumers{") {
			continue
		}
		_, rest, _ := strings.Cut(line, `queue="`)
		if name, _, ok := strings.Cut(rest, `"`); ok && strings.HasPrefix(name, prefix+"-") {
			names = append(names, name)
		}
	}
	return names
}

// around are the ways between a node and the others.
func (s *servers) around(node string) (pairs []network.Pair) {
	for _, n := range s.cluster.Nodes() {
		if n.Name != node {
			pairs = append(pairs, network.Pair{From: n.Name, To: node}, network.Pair{From: node, To: n.Name})
		}
	}
	return pairs
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
