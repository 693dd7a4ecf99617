package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

// plan is what to measure, and with what.
type plan struct {
	warren, perf, nats  string // binaries
	rabbitmq, rabbitmq4 string // folders of packages
	dir                 string // of all data while it is measured, and of the results
	runs                int
	rows, systems       string
	scale               float64
	warmup, duration    time.Duration
	clientGOGC          int // of the load tool, which has a value of its own for 0

	self string
	out  string // without the suffix
}

// measure does all runs and writes the lines and the table.
func measure(ctx context.Context, args []string) error {
	var p plan
	flags := flag.NewFlagSet("peers run", flag.ContinueOnError)
	flags.StringVar(&p.warren, "warren", "bin/warren", "Warren's `binary`")
	flags.StringVar(&p.perf, "perf", "bin/warren-perf", "the load tool's `binary`")
	flags.StringVar(&p.nats, "nats-server", "bin/nats-server", "NATS' `binary`")
	flags.StringVar(&p.rabbitmq, "rabbitmq", "/", "the `folder` that Debian's packages of RabbitMQ are in")
	flags.StringVar(&p.rabbitmq4, "rabbitmq4", "", "the `folder` that packages of a newer Debian with RabbitMQ 4 are in; it is left out without")
	flags.StringVar(&p.dir, "dir", ".run/peers", "for data and results")
	flags.IntVar(&p.runs, "runs", 3, "runs of each work on each system")
	flags.StringVar(&p.rows, "rows", "", "only these rows, separated by commas, such as 1,8,16")
	flags.StringVar(&p.systems, "systems", strings.Join(systems, ","), "the systems, separated by commas")
	flags.Float64Var(&p.scale, "scale", 1, "of the numbers of messages and queues; 0.01 shows that all works")
	flags.DurationVar(&p.warmup, "warmup", 3*time.Second, "time before each measurement")
	flags.IntVar(&p.clientGOGC, "client-gogc", 0, "GOGC of the clients; 0: what the load tool takes by itself")
	flags.DurationVar(&p.duration, "duration", 10*time.Second, "time of each measurement")
	if err := flags.Parse(args); err != nil {
		return err
	}
	list, err := choose(p.rows)
	if err != nil {
		return err
	}
	on := strings.Split(p.systems, ",")
	for _, s := range on {
		if !slices.Contains(systems, s) {
			return fmt.Errorf("no system %q", s)
		}
	}
	if p.rabbitmq4 == "" {
		on = slices.DeleteFunc(on, func(s string) bool { return s == rabbitMQ4 })
	}
	if err := p.settle(); err != nil {
		return err
	}
	for run := range p.runs {
		for _, w := range list {
			for i := range on {
				// Each goes first in turn.
				system := on[(i+run)%len(on)]
				if !w.of(system) {
					continue
				}
				if err := p.once(ctx, w, system, run); err != nil {
					return errors.Join(err, p.write())
				}
			}
		}
	}
	return p.write()
}

// settle makes paths absolute, since servers run in folders of their own, and begins the results.
func (p *plan) settle() (err error) {
	for _, path := range []*string{&p.warren, &p.perf, &p.nats, &p.rabbitmq, &p.rabbitmq4, &p.dir} {
		if *path == "" {
			continue
		}
		if *path, err = filepath.Abs(*path); err != nil {
			return err
		}
	}
	if p.self, err = os.Executable(); err != nil {
		return err
	}
	p.out = filepath.Join(p.dir, time.Now().UTC().Format("2006-01-02T150405"))
	return os.MkdirAll(p.dir, 0o755)
}

// once does one run with servers of its own. What fails in it is a line too; only the end of ctx and
// what fails here is an error.
func (p *plan) once(ctx context.Context, w work, system string, run int) error {
	fmt.Fprintf(os.Stderr, "run %d of %d, row %s (%s): %s\n", run+1, p.runs, w.id, w.title, titles[system])
	line, err := p.perform(ctx, w, system)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if line == nil {
		line = map[string]any{}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, " ", err)
		line["error"] = err.Error()
	}
	line["row"], line["system"], line["run"] = w.id, system, run+1
	text, err := json.Marshal(line)
	if err != nil {
		return err
	}
	f, err := os.OpenFile(p.out+".jsonl", os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	_, err = f.Write(append(text, '\n'))
	return errors.Join(err, f.Close())
}

// perform starts the servers, loads them, and ends them.
func (p *plan) perform(ctx context.Context, w work, system string) (line map[string]any, err error) {
	dir, err := os.MkdirTemp(p.dir, system+"-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	program, args := p.perf, append(w.arguments(p.scale), "--warmup", p.warmup.String(), "--duration", p.duration.String())
	if p.clientGOGC != 0 {
		args = append(args, "--client-gogc", fmt.Sprint(p.clientGOGC))
	}
	if system == warren {
		nodes := []string{"--nodes", "3"}
		if slices.Contains(args, "--nodes") {
			nodes = nil
		}
		return p.load(ctx, program, slices.Concat(args, nodes, []string{"--start", p.warren, "--dir", dir}))
	}
	starting, cancel := context.WithTimeout(ctx, timeoutStart)
	defer cancel()
	var list, helpers []*process
	switch system {
	case rabbitMQ:
		list, helpers, err = startRabbitMQ(starting, packages{root: p.rabbitmq}, dir)
		args = append(args, "--quorum")
	case rabbitMQ4:
		list, helpers, err = startRabbitMQ(starting, packages{root: p.rabbitmq4, jailed: true}, dir)
		args = append(args, "--quorum")
	case natsSynced:
		list, helpers, err = startNATS(starting, p.nats, dir, "always")
	default:
		list, helpers, err = startNATS(starting, p.nats, dir, "")
	}
	defer func() {
		for _, s := range slices.Concat(list, helpers) {
			s.end()
		}
	}()
	if err != nil {
		return nil, err
	}
	if system != rabbitMQ && system != rabbitMQ4 {
		program, args = p.self, append([]string{"nats"}, args...)
	}
	return p.load(ctx, program, append(args, "--nodes", fmt.Sprint(peerNodes), "--servers", servers(list)))
}

// load runs a load tool and returns its line. A run that lost or repeated messages has one, and an error.
func (p *plan) load(ctx context.Context, program string, args []string) (line map[string]any, err error) {
	cmd := exec.CommandContext(ctx, program, args...)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM}
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) } // it ends its nodes
	cmd.WaitDelay = 30 * time.Second
	if err = cmd.Run(); err != nil {
		err = fmt.Errorf("%w: %s", err, strings.TrimSpace(errs.String()))
	}
	if out.Len() > 0 {
		err = errors.Join(err, json.Unmarshal(out.Bytes(), &line))
	}
	return line, err
}

// write makes the table.
func (p *plan) write() error {
	lines, err := readLines(p.out + ".jsonl")
	if err != nil {
		return err
	}
	table := markdown(lines)
	fmt.Print(table)
	fmt.Fprintf(os.Stderr, "\n%s.jsonl and .md\n", p.out)
	return os.WriteFile(p.out+".md", []byte(table), 0o644)
}
