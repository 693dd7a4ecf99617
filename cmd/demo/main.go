// Command demo shows what Warren promises: it starts three nodes, runs the
// retry job of package test/retryjob on them, kills the node that leads the
// job's queues with SIGKILL every few seconds and starts it again, and prints
// what became of every message.
//
// The exit code is 1 when a message was lost or duplicated by the move, or the
// run could not be completed, and 2 for wrong flags.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/warrenmq/warren/test/cluster"
	"github.com/warrenmq/warren/test/retryjob"
)

type settings struct {
	binary      string
	nodes       int
	every, down time.Duration
	limit       time.Duration
	keep        bool
	job         retryjob.Config
}

func main() {
	s := settings{job: retryjob.Default()}
	flag.StringVar(&s.binary, "binary", "bin/warren", "the node's `file`")
	flag.IntVar(&s.nodes, "nodes", 3, "number of nodes")
	flag.IntVar(&s.job.Jobs, "jobs", s.job.Jobs, "number of messages")
	flag.IntVar(&s.job.Rate, "rate", s.job.Rate, "messages published per second")
	flag.DurationVar(&s.job.Delay, "delay", s.job.Delay, "first delay of a failed message; each further one is three times as long")
	flag.DurationVar(&s.every, "every", 4*time.Second, "time from one kill to the next; 0 kills nobody")
	flag.DurationVar(&s.down, "down", time.Second, "time until a killed node is started again")
	flag.DurationVar(&s.limit, "limit", 10*time.Minute, "give up after this time")
	flag.BoolVar(&s.keep, "keep", false, "keep the nodes' data and logs")
	flag.Parse()
	if flag.NArg() > 0 || s.nodes < 1 || s.every != 0 && s.every <= s.down {
		fmt.Fprintln(os.Stderr, "demo: no arguments; at least one node; kills further apart than a node is down")
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := demonstrate(ctx, s, os.Stdout)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "demo:", err)
		os.Exit(1)
	}
}

// demonstrate runs the whole show. The error tells what went wrong, also when
// the report was printed.
func demonstrate(ctx context.Context, s settings, out io.Writer) (err error) {
	ctx, cancel := context.WithTimeout(ctx, s.limit)
	defer cancel()
	dir, err := os.MkdirTemp("", "warren-demo-")
	if err != nil {
		return err
	}
	defer func() {
		if s.keep {
			fmt.Fprintln(out, "data and logs are in", dir)
			return
		}
		os.RemoveAll(dir)
	}()
	began := time.Now()
	say := func(format string, args ...any) {
		fmt.Fprintf(out, "%6.1fs  %s\n", time.Since(began).Seconds(), fmt.Sprintf(format, args...))
	}
	c, err := cluster.Start(ctx, cluster.Config{Nodes: s.nodes, Binary: s.binary, Dir: dir})
	if err != nil {
		return fmt.Errorf("start the nodes: %w", err)
	}
	defer func() {
		if closing := c.Close(); err == nil {
			err = closing
		}
	}()
	say("%d nodes are ready", s.nodes)

	job := s.job
	job.URLs = c.URLs()
	job.Progress = func(confirmed, closed int) { say("%d of %d published, %d worked off", confirmed, job.Jobs, closed) }
	var report retryjob.Report
	if s.every == 0 {
		report, err = retryjob.Run(ctx, job)
	} else {
		nemesis := &retryjob.Nemesis{
			Cluster: c, Every: s.every, Down: s.down,
			Killed: func(node, queue string) { say("killing %s, which leads %q", node, queue) },
		}
		report, err = nemesis.RunJob(ctx, job)
	}
	if err != nil {
		return fmt.Errorf("%w\n%s", err, c.Logs())
	}
	fmt.Fprintln(out)
	if err := report.Write(out); err != nil {
		return err
	}
	if crashes := c.Crashes(); crashes != "" {
		return errors.Join(report.Err(), errors.New(crashes))
	}
	return report.Err()
}
