package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/warrenmq/warren/jepsen/db"
	"github.com/warrenmq/warren/jepsen/network"
)

func main() { os.Exit(start()) }

// command is the command line.
type command struct {
	binary, rabbitmq string
	wire             string
	mixes            []*mix
	seed             uint64
	length           int
	time             time.Duration
}

// start returns the exit code: 0 if no difference was found, 1 if one was, 2 if it could not be done.
func start() int {
	var c command
	flag.StringVar(&c.binary, "binary", "bin/warren", "Warren's binary")
	flag.StringVar(&c.rabbitmq, "rabbitmq", "/", "`folder` in which RabbitMQ's packages are")
	names := flag.String("mixes", "", "what sequences are of, `names` with commas between them (default: all in turn)")
	flag.StringVar(&c.wire, "wire", "", "in place of sequences, compare answers to wrong frames, and show `which`: all, or differ")
	flag.Uint64Var(&c.seed, "seed", 1, "first seed")
	flag.IntVar(&c.length, "length", 60, "methods of a sequence")
	flag.DurationVar(&c.time, "time", 5*time.Minute, "how long to go on")
	flag.Parse()
	for i := range mixes {
		if *names == "" || slices.Contains(strings.Split(*names, ","), mixes[i].name) {
			c.mixes = append(c.mixes, &mixes[i])
		}
	}
	if len(c.mixes) == 0 {
		fmt.Fprintf(os.Stderr, "no mix %q\n", *names)
		return 2
	}
	if code, entered := network.Enter(); entered {
		return code
	}
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer cancel()
	differ, err := c.run(ctx)
	switch {
	case err != nil:
		fmt.Fprintln(os.Stderr, err)
		return 2
	case differ:
		return 1
	}
	return 0
}

// clusterNodes is the size of Warren's cluster.
const clusterNodes = 3

// run starts both brokers and compares them until the time is over or ctx ends.
func (c *command) run(ctx context.Context) (differ bool, err error) {
	dir, err := os.MkdirTemp("", "warren-differential-")
	if err != nil {
		return false, err
	}
	defer os.RemoveAll(dir)
	if c.binary, err = filepath.Abs(c.binary); err != nil {
		return false, err
	}
	net, err := network.Open(db.NodeNames(clusterNodes + 1))
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, net.Close()) }()
	var p pair
	for i, s := range []struct {
		name string
		net  network.Network
		opts db.Options
	}{
		{"rabbitmq", last{net}, db.Options{Nodes: 1, Binary: c.rabbitmq}},
		{"warren", net, db.Options{Nodes: clusterNodes, Binary: c.binary}},
	} {
		s.opts.Dir = filepath.Join(dir, s.name)
		if err := os.Mkdir(s.opts.Dir, 0o755); err != nil {
			return false, err
		}
		b, err := db.New(s.name, s.net, s.opts)
		if err != nil {
			return false, err
		}
		defer func() { err = errors.Join(err, b.Close()) }()
		if err := b.Start(ctx); err != nil {
			return false, fmt.Errorf("start %s: %w", s.name, err)
		}
		p[i] = broker{name: s.name, http: b.HTTP(b.Nodes()[0]), client: &http.Client{Timeout: 10 * time.Second}}
		for _, n := range b.Nodes() {
			p[i].urls = append(p[i].urls, "amqp://"+db.User+":"+db.User+"@"+b.AMQP(n)+"/")
		}
	}
	if c.wire != "" {
		return compareWire(p, c.wire == "all")
	}
	return c.search(ctx, p)
}

// try runs the sequence of a seed, a second time if there is a difference: one that has gone then was of a moment when a broker was slow.
func (c *command) try(p pair, seed uint64, seen map[string]bool) error {
	m := c.mixes[seed%uint64(len(c.mixes))]
	ops := m.sequence(seed, c.length)
	d, err := p.run(m, ops)
	if err != nil || d == nil {
		return err
	}
	if seen[d.kind()] {
		fmt.Printf("seed %d, %s: once more: %s\n", seed, m.name, d.kind())
		return nil
	}
	ops = ops[:d.step+1]
	again, err := p.run(m, ops)
	switch {
	case err != nil:
		return err
	case again == nil || again.kind() != d.kind():
		fmt.Printf("seed %d, %s: once only: %s\n", seed, m.name, d.kind())
		return nil
	}
	if ops, d, err = p.shorten(m, ops, d); err != nil {
		return err
	}
	seen[d.kind()] = true
	fmt.Printf("seed %d, %s, %d methods:\n", seed, m.name, len(ops))
	for i, o := range ops {
		fmt.Printf("  %d %s\n", i, o)
	}
	fmt.Print(d.text(p))
	return nil
}

// last is a network of which only the last node is used, as the first of a cluster of its own.
type last struct{ network.Network }

func (l last) Place(string) (network.Place, error) {
	names := db.NodeNames(clusterNodes + 1)
	return l.Network.Place(names[clusterNodes])
}

// search tries seed after seed. It shows of each kind of difference the first, shortened.
func (c *command) search(ctx context.Context, p pair) (differ bool, err error) {
	seen := map[string]bool{}
	seeds := 0
	for end := time.Now().Add(c.time); time.Now().Before(end) && ctx.Err() == nil; seeds++ {
		seed := c.seed + uint64(seeds)
		if err := c.try(p, seed, seen); err != nil {
			return true, fmt.Errorf("seed %d: %w", seed, err)
		}
	}
	fmt.Printf("%d sequences of %d methods, %d kinds of differences\n", seeds, c.length, len(seen))
	return len(seen) > 0, nil
}
