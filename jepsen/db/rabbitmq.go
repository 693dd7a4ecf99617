package db

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/warrenmq/warren/jepsen/network"
)

// RabbitMQ is a cluster of RabbitMQ nodes, of Debian's packages, each with an Erlang port mapper
// (epmd) in a host of a Lan of its own. Nothing of the machine's own RabbitMQ is read or changed.
type RabbitMQ struct {
	root   string // where the packages are unpacked
	client *http.Client
	nodes  []*rabbitNode

	mu   sync.Mutex
	seen map[string]seenCount // of each queue
}

const (
	// What RabbitMQ tells about queues is collected every rabbitStats, on its way in steps of as much: it is
	// believed when it has been the same for rabbitSettled.
	rabbitStats       = 500 * time.Millisecond
	rabbitSettled     = 2500 * time.Millisecond
	rabbitDeadLetters = 10 * time.Second
	rabbitPoll        = 250 * time.Millisecond
	rabbitAMQP        = "5672"
	rabbitHTTP        = "15672"
	rabbitDist        = "25672"
)

// seenCount is what was said about a queue, and since when.
type seenCount struct {
	count Count
	since time.Time
}

// NewRabbitMQ prepares a cluster of the nodes of net, which must be a Lan: Erlang's nodes know each
// other by their hosts' addresses. opts.Binary is the folder that Debian's packages are unpacked in,
// "" for "/".
func NewRabbitMQ(net network.Network, opts Options) (DB, error) {
	r := &RabbitMQ{
		root:   opts.Binary,
		client: &http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}},
		seen:   map[string]seenCount{},
	}
	if r.root == "" {
		r.root = "/"
	}
	for _, file := range []string{r.server(), r.epmd()} {
		if _, err := os.Stat(file); err != nil {
			return nil, fmt.Errorf("RabbitMQ is not installed; jepsen/rabbitmq.sh fetches it: %w", err)
		}
	}
	cookie := make([]byte, 16)
	if _, err := rand.Read(cookie); err != nil {
		return nil, err
	}
	for i, name := range NodeNames(opts.Nodes) {
		place, err := net.Place(name)
		if err != nil {
			return nil, err
		}
		if place.Host == "" || place.Run == nil || place.Expose == nil {
			return nil, fmt.Errorf("RabbitMQ in a network of %s: %w: it needs namespaces", net.Kind(), ErrUnsupported)
		}
		n := &rabbitNode{name: name, dir: filepath.Join(opts.Dir, name), place: place, env: opts.Env}
		r.nodes = append(r.nodes, n)
		if err := errors.Join(place.Expose(rabbitAMQP), place.Expose(rabbitHTTP)); err != nil {
			return nil, err
		}
		if err := n.prepare(r.nodes[0], i > 0, hex.EncodeToString(cookie)); err != nil {
			return nil, err
		}
	}
	return r, nil
}

func (r *RabbitMQ) server() string {
	return filepath.Join(r.root, "usr", "lib", "rabbitmq", "bin", "rabbitmq-server")
}

// erlang is the folder of Erlang's programs.
func (r *RabbitMQ) erlang() string { return filepath.Join(r.root, "usr", "lib", "erlang", "bin") }

func (r *RabbitMQ) epmd() string { return filepath.Join(r.erlang(), "epmd") }

// byName returns a node. A name that NodeNames did not make is a mistake of the caller.
func (r *RabbitMQ) byName(name string) *rabbitNode {
	for _, n := range r.nodes {
		if n.name == name {
			return n
		}
	}
	panic("no node " + name)
}

// Name implements DB.
func (r *RabbitMQ) Name() string { return "rabbitmq" }

// Nodes implements DB.
func (r *RabbitMQ) Nodes() []string { return NodeNames(len(r.nodes)) }

// Start implements DB: the first node makes the cluster, the others join it.
func (r *RabbitMQ) Start(ctx context.Context) error {
	for _, n := range r.nodes {
		if err := n.mapPorts(r.epmd()); err != nil {
			return err
		}
	}
	for i, n := range r.nodes {
		if err := r.Launch(n.name); err != nil {
			return err
		}
		if i > 0 {
			continue
		}
		if err := r.Ready(ctx); err != nil {
			return err
		}
	}
	return r.Ready(ctx)
}

// Launch implements DB.
func (r *RabbitMQ) Launch(node string) error {
	return r.byName(node).launch(r.server(), r.erlang())
}

// Ready implements DB. A node whose process has ended by itself is started again, as Debian's unit
// for systemd does (Restart=on-failure).
func (r *RabbitMQ) Ready(ctx context.Context) error {
	for {
		err := r.ready(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", ctx.Err(), err)
		case <-time.After(rabbitPoll):
		}
	}
}

// ready looks once: all nodes that run must say that they see all of these, and that
// each queue has all its members.
func (r *RabbitMQ) ready(ctx context.Context) error {
	var running []*rabbitNode
	for _, n := range r.nodes {
		switch {
		case n.running():
			running = append(running, n)
		case n.failed():
			if err := r.Launch(n.name); err != nil {
				return err
			}
			return fmt.Errorf("%s had ended by itself", n.name)
		}
	}
	var g errgroup.Group
	for _, n := range running {
		g.Go(func() error {
			seen, err := r.members(ctx, n)
			if err == nil && seen < len(running) {
				err = fmt.Errorf("%s sees %d of %d nodes", n.name, seen, len(running))
			}
			return err
		})
		g.Go(func() error {
			conn, err := net.DialTimeout("tcp", r.AMQP(n.name), timeoutAnswer)
			if err != nil {
				return err
			}
			return conn.Close()
		})
	}
	if err := g.Wait(); err != nil || len(running) == 0 {
		return err
	}
	queues, err := r.queues(ctx, running[0])
	for _, q := range queues {
		if q.State != "running" || q.Type == "quorum" && (q.Leader == "" || len(q.Online) < len(running)) {
			return fmt.Errorf("queue %q is %s, led by %q, on %v", q.Name, q.State, q.Leader, q.Online)
		}
	}
	return err
}

// Running implements DB.
func (r *RabbitMQ) Running(node string) bool { return r.byName(node).running() }

// Signal implements DB.
func (r *RabbitMQ) Signal(node string, sig syscall.Signal) error { return r.byName(node).signal(sig) }

// Kill implements DB.
func (r *RabbitMQ) Kill(node string) error { return r.byName(node).kill() }

// Stop implements DB.
func (r *RabbitMQ) Stop(ctx context.Context, node string) error { return r.byName(node).stop(ctx) }

// GRPC implements DB.
func (r *RabbitMQ) GRPC(string) string { return "" }

// AMQP implements DB.
func (r *RabbitMQ) AMQP(node string) string {
	return net.JoinHostPort(r.byName(node).place.Host, rabbitAMQP)
}

// HTTP implements DB.
func (r *RabbitMQ) HTTP(node string) string {
	return "http://" + net.JoinHostPort(r.byName(node).place.Host, rabbitHTTP)
}

// Break implements DB.
func (r *RabbitMQ) Break(context.Context, string, Disk) error { return ErrUnsupported }

// Arm implements DB.
func (r *RabbitMQ) Arm(context.Context, string, string, uint64) error { return ErrUnsupported }

// Disarm implements DB.
func (r *RabbitMQ) Disarm(context.Context, string) error { return ErrUnsupported }

// SetClock implements DB.
func (r *RabbitMQ) SetClock(string, time.Duration) error { return ErrUnsupported }

// SetForget implements DB.
func (r *RabbitMQ) SetForget(string, int) error { return ErrUnsupported }

// States implements DB: RabbitMQ tells nobody what a replica holds.
func (r *RabbitMQ) States(context.Context, string) ([]State, error) { return nil, ErrUnsupported }

// LogFile implements DB.
func (r *RabbitMQ) LogFile(node string) string { return r.byName(node).logFile() }

// DataDir implements DB.
func (r *RabbitMQ) DataDir(node string) string { return r.byName(node).dataDir() }

// Crashes implements DB: the beginnings of the dumps that the virtual machine leaves when it ends
// in disorder. Processes of Erlang that end while links are cut are its normal work, and in the logs.
func (r *RabbitMQ) Crashes() string {
	var found strings.Builder
	for _, n := range r.nodes {
		found.WriteString(n.crash())
	}
	return found.String()
}

// Close implements DB.
func (r *RabbitMQ) Close() error {
	var errs []error
	for _, n := range r.nodes {
		errs = append(errs, n.kill(), n.unmapPorts())
	}
	return errors.Join(errs...)
}

// Members implements DB.
func (r *RabbitMQ) Members(context.Context, string) ([]string, error) { return nil, ErrUnsupported }

// SetMember implements DB.
func (r *RabbitMQ) SetMember(context.Context, string, string, bool) error { return ErrUnsupported }

// Move implements DB.
func (r *RabbitMQ) Move(string) error { return ErrUnsupported }
