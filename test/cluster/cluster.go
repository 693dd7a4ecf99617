package cluster

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
)

// Config says what to start.
type Config struct {
	// Nodes is the number of nodes that found the cluster, at least 1.
	Nodes int
	// Prefix begins the names of the nodes, which a number ends; "": node.
	Prefix string
	// Binary is the path of the node's binary.
	Binary string
	// Dir is an existing folder for the nodes' data and logs. It is not removed.
	Dir string
	// Args are added to every node's command line.
	Args []string
	// Env is added to every node's environment, as "NAME=value".
	Env []string
	// Contained panics, which a node survives, are expected; else they are crashes.
	Contained bool
	// Wrap is a command that runs the binary, such as a shell that sets limits
	// first. Empty: none.
	Wrap []string
	// Join is what the nodes are told to --join; "": the gossip addresses of all.
	Join string
	// Places says where each node runs, now and again when it moves. Nil: all on loopback, on ports that are free.
	Places func(node string) (Place, error)
}

// Place is where a node runs that is not simply on loopback. The zero value is loopback.
type Place struct {
	// Host is the IP address to listen on. All its ports are the node's; "": loopback.
	Host string
	// Run calls start, which starts the node's process, so that the process is in its
	// place, such as a network namespace. Nil: start is called.
	Run func(start func() error) error
	// Args are added to the command line of this node.
	Args func(a Addrs) ([]string, error)
}

// Cluster is a group of nodes on this machine.
type Cluster struct {
	cfg   Config
	nodes []*Node
}

// New prepares the nodes without starting any.
func New(cfg Config) (*Cluster, error) {
	if cfg.Nodes < 1 || cfg.Binary == "" || cfg.Dir == "" {
		return nil, errors.New("a cluster needs nodes, a binary and a folder")
	}
	c := &Cluster{cfg: cfg}
	client := &http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	for i := range cfg.Nodes {
		name := fmt.Sprintf("%s%d", cmp.Or(cfg.Prefix, "node"), i+1)
		n := &Node{Name: name, Dir: filepath.Join(cfg.Dir, name), cluster: c, client: client}
		if err := n.settle(); err != nil {
			return nil, fmt.Errorf("node %s: %w", name, err)
		}
		c.nodes = append(c.nodes, n)
	}
	return c, nil
}

// Start launches all nodes at the same moment and waits until every one is
// ready. After an error nothing is left running.
func Start(ctx context.Context, cfg Config) (*Cluster, error) {
	c, err := New(cfg)
	if err != nil {
		return nil, err
	}
	if err := c.StartAll(ctx); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return c, nil
}

// Nodes returns the nodes, running or not.
func (c *Cluster) Nodes() []*Node { return c.nodes }

// Node returns node i, counted from 0.
func (c *Cluster) Node(i int) *Node { return c.nodes[i] }

// URLs returns the AMQP addresses of all nodes.
func (c *Cluster) URLs() []string {
	urls := make([]string, len(c.nodes))
	for i, n := range c.nodes {
		urls[i] = n.URL()
	}
	return urls
}

// StartAll launches every node that is not running and waits until all are
// ready.
func (c *Cluster) StartAll(ctx context.Context) error {
	for _, n := range c.nodes {
		if n.Running() {
			continue
		}
		if err := n.Launch(); err != nil {
			return err
		}
	}
	return waitReady(ctx, c.nodes) // those that have ended already, too: they say why, or start again
}

// WaitReady waits until every running node is ready.
func (c *Cluster) WaitReady(ctx context.Context) error {
	var running []*Node
	for _, n := range c.nodes {
		if n.Running() {
			running = append(running, n)
		}
	}
	return waitReady(ctx, running)
}

func waitReady(ctx context.Context, nodes []*Node) error {
	g, ctx := errgroup.WithContext(ctx)
	for _, n := range nodes {
		g.Go(func() error { return n.WaitReady(ctx) })
	}
	return g.Wait()
}

// StopAll stops every running node, all at once. The error tells which did not
// stop cleanly.
func (c *Cluster) StopAll(ctx context.Context) error {
	var g errgroup.Group
	for _, n := range c.nodes {
		if !n.Running() {
			continue
		}
		g.Go(func() error {
			if err := n.Stop(ctx); err != nil {
				return fmt.Errorf("stop %s: %w\n%s", n.Name, err, n.LogTail())
			}
			return nil
		})
	}
	return g.Wait()
}

// KillAll ends every node with SIGKILL, one right after the other.
func (c *Cluster) KillAll() error {
	var errs []error
	for _, n := range c.nodes {
		errs = append(errs, n.Kill())
	}
	return errors.Join(errs...)
}

// Close ends whatever runs. It is safe to call twice.
func (c *Cluster) Close() error { return c.KillAll() }

// Logs returns the ends of all logs.
func (c *Cluster) Logs() string {
	var b strings.Builder
	for _, n := range c.nodes {
		b.WriteString(n.LogTail())
	}
	return b.String()
}

// Crashes returns what Crash finds in all logs.
func (c *Cluster) Crashes() string {
	var b strings.Builder
	for _, n := range c.nodes {
		b.WriteString(n.Crash())
	}
	return b.String()
}

// join returns what the nodes are told to --join.
func (c *Cluster) join() string {
	if c.cfg.Join != "" {
		return c.cfg.Join
	}
	list := make([]string, len(c.nodes))
	for i, n := range c.nodes {
		list[i] = n.addrs.Gossip
	}
	return strings.Join(list, ",")
}

// Queue is what a node knows about a queue.
type Queue struct {
	VHost   string   `json:"vhost"`
	Name    string   `json:"name"`
	ID      uint64   `json:"id"`
	Leader  string   `json:"leader"` // node id, or "" while there is none
	Members []string `json:"members"`
	Ready   int      `json:"ready"`
	Unacked int      `json:"unacked"`
	Outbox  int      `json:"outbox"` // dead letters on their way
	// Transferred counts the dead letters that the queue has ever taken, in its
	// replicated state. Nil when the node does not tell.
	Transferred *int `json:"transferred"`
}

// Queues asks node n for all queues.
func (n *Node) Queues(ctx context.Context) ([]Queue, error) {
	body, err := n.Fetch(ctx, "/debug/queues")
	if err != nil {
		return nil, fmt.Errorf("queues of %s: %w", n.Name, err)
	}
	var queues []Queue
	if err := json.Unmarshal(body, &queues); err != nil {
		return nil, fmt.Errorf("queues of %s: %w", n.Name, err)
	}
	return queues, nil
}

// Queue returns what the first running node knows about the queue name of the
// vhost "/". It asks again while nobody answers in time or knows the queue, which
// is declared at one node a moment before the others hear of it, until ctx ends or
// twenty seconds are over.
func (c *Cluster) Queue(ctx context.Context, name string) (q Queue, err error) {
	ctx, cancel := context.WithTimeout(ctx, timeoutQueue)
	defer cancel()
	var last error
	err = Poll(ctx, func() (bool, error) {
		q, last = c.queueNow(ctx, name)
		return last == nil, nil
	})
	return q, errors.Join(err, last)
}

// queueNow asks once.
func (c *Cluster) queueNow(ctx context.Context, name string) (Queue, error) {
	for _, n := range c.nodes {
		if !n.Running() {
			continue
		}
		queues, err := n.Queues(ctx)
		if err != nil {
			return Queue{}, err
		}
		for _, q := range queues {
			if q.VHost == "/" && q.Name == name {
				return q, nil
			}
		}
	}
	return Queue{}, fmt.Errorf("nobody knows a queue %q", name)
}

// Leader returns the node that leads the queue name of the vhost "/". It asks
// the running nodes until the one that is said to lead is running and says so
// itself, or ctx ends.
func (c *Cluster) Leader(ctx context.Context, name string) (*Node, error) {
	var leader *Node
	last := errors.New("nobody answered")
	err := Poll(ctx, func() (bool, error) {
		for _, n := range c.nodes {
			if !n.Running() {
				continue
			}
			queues, err := n.Queues(ctx)
			if err != nil {
				last = err
				continue
			}
			for _, q := range queues {
				if q.VHost == "/" && q.Name == name && q.Leader == n.Name {
					leader = n
					return true, nil
				}
			}
			last = fmt.Errorf("%s does not lead it", n.Name)
		}
		return false, nil
	})
	if err != nil {
		return nil, fmt.Errorf("leader of %q: %w (%w)", name, err, last)
	}
	return leader, nil
}

// ByName returns the node with that id, or nil.
func (c *Cluster) ByName(name string) *Node {
	for _, n := range c.nodes {
		if n.Name == name {
			return n
		}
	}
	return nil
}

// Poll calls done until it returns true or an error, or ctx ends. It waits a
// little between calls: what it waits for is outside this process.
func Poll(ctx context.Context, done func() (bool, error)) error {
	tick := time.NewTicker(intervalPoll)
	defer tick.Stop()
	for {
		ok, err := done()
		if ok || err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
	}
}
