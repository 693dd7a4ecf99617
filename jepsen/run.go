package jepsen

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/warrenmq/warren/jepsen/checker"
	"github.com/warrenmq/warren/jepsen/client"
	"github.com/warrenmq/warren/jepsen/db"
	"github.com/warrenmq/warren/jepsen/history"
	"github.com/warrenmq/warren/jepsen/nemesis"
	"github.com/warrenmq/warren/jepsen/network"
	"github.com/warrenmq/warren/jepsen/report"
	"github.com/warrenmq/warren/jepsen/workload"
)

// Time limits of the steps of a run.
const (
	timeoutStart   = 120 * time.Second
	timeoutSetup   = 30 * time.Second
	timeoutReady   = 90 * time.Second // after everything is healed
	timeoutSettle  = 90 * time.Second
	timeoutFinal   = 120 * time.Second
	timeoutCompare = 60 * time.Second
	timeoutStop    = 45 * time.Second
	timeoutClient  = 8 * time.Second // for an operation
	timeGoroutines = 2 * time.Second // for a node to write its goroutines
	bodyBytes      = 256
	// afterwards is how long clients work on when all is healed.
	afterwards = 2 * time.Second
)

// run is what Run works with.
type run struct {
	cfg     Config
	log     *slog.Logger
	dir     string
	net     network.Network
	db      db.DB
	load    workload.Workload
	nemeses []nemesis.Nemesis
	rec     *history.Recorder
	clients *client.Config
	lives   lives
}

// Run does one run in an own folder of cfg.Out. The error tells that it could not be done
// at all; what was wrong with the cluster is in the report. The process must have called
// network.Enter.
func Run(ctx context.Context, cfg Config) (report.Report, error) {
	if err := cfg.Validate(); err != nil {
		return report.Report{}, err
	}
	r := &run{cfg: cfg, log: cfg.Log}
	if r.log == nil {
		r.log = slog.New(slog.DiscardHandler)
	}
	out := report.Report{
		Workload: cfg.Workload, Nemeses: cfg.Nemeses, Nodes: cfg.Nodes, Rate: cfg.Rate, Seed: cfg.Seed,
		Repeat: cfg.Repeat(), Begun: time.Now(), Load: cfg.Time,
	}
	if err := r.open(); err != nil {
		return out, errors.Join(err, r.close())
	}
	out.Dir, out.System, out.Network = r.dir, r.db.Name(), r.net.Kind()
	r.log.Info("run", "workload", cfg.Workload, "nemeses", cfg.Nemeses, "seed", cfg.Seed, "network", r.net.Kind(), "dir", r.dir)
	ended := true
	if err := r.work(ctx); err != nil {
		ended = false
		out.Errors = append(out.Errors, err.Error())
		r.goroutines()
	}
	if crashes := r.db.Crashes(); crashes != "" {
		out.Errors = append(out.Errors, "a node crashed, or has a data race:\n"+crashes)
	}
	if err := r.close(); err != nil {
		out.Errors = append(out.Errors, err.Error())
	}
	ops, err := history.Load(r.historyFile())
	if err != nil {
		return out, err
	}
	out.Results = checker.Run(append(r.load.Checkers(), checker.Availability(r.limits()), checker.States()), ops, ended)
	out.Ops, out.Faults = len(ops), report.FaultsOf(ops)
	out.Valid = len(out.Errors) == 0
	for _, c := range out.Results {
		out.Valid = out.Valid && c.Valid
	}
	out.Took = time.Since(out.Begun)
	if out.Valid && !cfg.Keep {
		for _, n := range r.db.Nodes() {
			err = errors.Join(err, os.RemoveAll(r.db.DataDir(n)))
		}
	}
	return out, errors.Join(err, report.Write(out, ops))
}

// looseLimit is how long nothing may be confirmed by a system of whose failovers nothing is known.
const looseLimit = 30 * time.Second

// limits are how long nothing may be confirmed.
func (r *run) limits() checker.Limits {
	if r.cfg.System != "warren" {
		return checker.Limits{Calm: looseLimit}
	}
	l := checker.Limits{Calm: nemesis.Calm, Slack: r.cfg.Slack, Faults: map[string]checker.Pause{}}
	for _, n := range nemesis.All() {
		l.Faults[n.Name] = checker.Pause{Limit: n.Pause, After: n.After}
	}
	return l
}

func (r *run) historyFile() string { return filepath.Join(r.dir, "history.jsonl") }

// open makes what the run needs, without starting nodes.
func (r *run) open() (err error) {
	r.dir = filepath.Join(r.cfg.Out, r.cfg.Name())
	for i := 2; ; i++ {
		err := os.Mkdir(r.dir, 0o755)
		if err == nil {
			break
		}
		if !errors.Is(err, os.ErrExist) {
			return fmt.Errorf("make the run's folder: %w", err)
		}
		r.dir = filepath.Join(r.cfg.Out, fmt.Sprintf("%s-%d", r.cfg.Name(), i))
	}
	nodes := filepath.Join(r.dir, "nodes")
	if err := os.Mkdir(nodes, 0o755); err != nil {
		return fmt.Errorf("make the nodes' folder: %w", err)
	}
	if r.net, err = network.Open(db.NodeNames(r.cfg.Nodes)); err != nil {
		return err
	}
	if r.db, err = db.New(r.cfg.System, r.net, db.Options{Nodes: r.cfg.Nodes, Binary: r.cfg.Binary, Dir: nodes, Env: r.cfg.Env, Failpoints: r.cfg.Failpoints}); err != nil {
		return err
	}
	if r.load, err = workload.New(r.cfg.Workload, workload.Options{Rate: r.cfg.Rate, Nodes: r.cfg.Nodes, Seed: r.cfg.Seed, Quorum: r.cfg.quorum()}); err != nil {
		return err
	}
	if r.nemeses, err = nemesis.Select(r.cfg.Nemeses, true, r.cfg.Failpoints); err != nil {
		return err
	}
	for _, n := range r.nemeses {
		if n.Prepare != nil {
			e := &nemesis.Env{DB: r.db, Net: r.net, Rand: rand.New(rand.NewPCG(r.cfg.Seed, 3))}
			if err := n.Prepare(e); err != nil {
				return fmt.Errorf("prepare %s: %w", n.Name, err)
			}
		}
	}
	if r.rec, err = history.Create(r.historyFile()); err != nil {
		return err
	}
	r.clients = &client.Config{User: db.User, Recorder: r.rec, Timeout: timeoutClient, BodyBytes: bodyBytes, HTTP: r.db.HTTP}
	return nil
}

// close ends what open made and what is still running.
func (r *run) close() error {
	var errs []error
	var parts []io.Closer
	if r.db != nil {
		parts = append(parts, r.db)
	}
	if r.net != nil {
		parts = append(parts, r.net)
	}
	if r.rec != nil {
		parts = append(parts, r.rec)
	}
	for _, p := range parts {
		errs = append(errs, p.Close())
	}
	return errors.Join(errs...)
}

// step calls f with a time limit.
func (r *run) step(ctx context.Context, what string, limit time.Duration, f func(context.Context) error) error {
	begun := time.Now()
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	if err := f(ctx); err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	r.log.Info(what, "took", time.Since(begun).Round(time.Millisecond))
	return nil
}

// work is the run from the start of the nodes to their end.
func (r *run) work(ctx context.Context) error {
	if err := r.step(ctx, "start the nodes", timeoutStart, r.db.Start); err != nil {
		return err
	}
	if err := r.step(ctx, "declare", timeoutSetup, func(ctx context.Context) error {
		c, err := r.final(ctx)
		if err != nil {
			return err
		}
		defer c.Close()
		return r.load.Setup(c)
	}); err != nil {
		return err
	}
	staying, endStaying := context.WithCancel(ctx)
	defer r.lives.wait()
	defer endStaying()
	loading, endLoad := context.WithCancel(staying)
	defer endLoad()
	for i, p := range r.load.Processes() {
		if p.Stays {
			r.live(staying, i, p)
		} else {
			r.live(loading, i, p)
		}
	}
	if err := r.faults(ctx); err != nil {
		return err
	}
	if err := r.step(ctx, "heal", timeoutReady, r.heal); err != nil {
		return err
	}
	pause(ctx, afterwards)
	endLoad()
	e := &workload.Env{Open: r.final, Count: r.db.Count, Record: func(op history.Op) {
		op.Process = history.Final
		r.rec.Record(op)
	}}
	if err := r.step(ctx, "settle", timeoutSettle, func(ctx context.Context) error { return r.load.Settle(ctx, e) }); err != nil {
		return err
	}
	endStaying()
	r.lives.wait()
	if r.cfg.sabotage != nil {
		if err := r.cfg.sabotage(ctx, r.db); err != nil {
			return err
		}
	}
	if err := r.step(ctx, "final", timeoutFinal, func(ctx context.Context) error { return r.load.Final(ctx, e) }); err != nil {
		return err
	}
	if err := r.step(ctx, "compare", timeoutCompare, r.compare); err != nil {
		return err
	}
	return r.step(ctx, "stop the nodes", timeoutStop, r.stop)
}

// faults lets the nemeses work until the time of the load is over, or the history is full.
func (r *run) faults(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, r.cfg.Time)
	defer cancel()
	full := time.NewTicker(time.Second)
	defer full.Stop()
	plan := nemesis.Plan(r.cfg.Seed, r.nemeses, r.cfg.Time, r.cfg.Hold)
	ended := make(chan error, 1)
	go func() { // ends soon after ctx
		ended <- nemesis.Run(ctx, &nemesis.Env{DB: r.db, Net: r.net, Queues: r.load.Queues()}, plan, r.rec)
	}()
	var err error
	for running, waiting := true, true; running || waiting; {
		select {
		case err = <-ended:
			running = false
			ended = nil
		case <-full.C:
			if r.rec.Full() {
				r.log.Warn("the history is full: the load ends")
				cancel()
			}
		case <-done(ctx, waiting):
			waiting = false
		}
	}
	return err
}

// done returns ctx.Done while it is still waited for.
func done(ctx context.Context, waiting bool) <-chan struct{} {
	if waiting {
		return ctx.Done()
	}
	return nil
}

// heal ends all harm, whatever the nemeses have left, and waits until all nodes are ready.
func (r *run) heal(ctx context.Context) error {
	r.net.Heal()
	for _, n := range r.db.Nodes() {
		if !r.db.Running(n) {
			if err := r.db.Launch(n); err != nil {
				return err
			}
		} else if err := r.db.Signal(n, syscall.SIGCONT); err != nil {
			return err
		}
	}
	return r.db.Ready(ctx)
}

// stop stops all nodes in order.
func (r *run) stop(ctx context.Context) error {
	var g errgroup.Group
	for _, n := range r.db.Nodes() {
		g.Go(func() error { return r.db.Stop(ctx, n) })
	}
	return g.Wait()
}

// goroutines makes the nodes that still run write what their goroutines do into their logs.
// It ends them.
func (r *run) goroutines() {
	for _, n := range r.db.Nodes() {
		if err := errors.Join(r.db.Signal(n, syscall.SIGCONT), r.db.Signal(n, syscall.SIGQUIT)); err != nil {
			r.log.Warn("no goroutines", "node", n, "err", err)
		}
	}
	pause(context.Background(), timeGoroutines)
}

// pause waits for d or until ctx ends.
func pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	}
}
