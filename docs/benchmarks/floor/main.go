//go:build linux

package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := execute(ctx, os.Args[1:])
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "floor:", err)
		os.Exit(1)
	}
}

func execute(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("floor", flag.ContinueOnError)
	n := &node{addresses: os.Stdout}
	r := &run{}
	var role string
	var diskless bool
	flags.StringVar(&n.links, "links", "tcp", "between the nodes: tcp or grpc")
	flags.StringVar(&n.dir, "dir", "", "where the nodes write, in a `folder` that is removed; empty: with temporary files")
	flags.BoolVar(&diskless, "no-disk", false, "nodes write nothing")
	flags.IntVar(&r.rate, "rate", 1000, "messages per second")
	flags.DurationVar(&r.warmup, "warmup", 3*time.Second, "time before the measurement")
	flags.DurationVar(&r.duration, "duration", 10*time.Second, "time of the measurement")
	flags.StringVar(&role, "role", "", "of a process that this program starts: leader or follower")
	flags.StringVar(&n.needed, "needed", "", "of a leader: address of the follower that each message waits for")
	flags.StringVar(&n.spare, "spare", "", "of a leader: address of the other follower")
	if err := flags.Parse(args); err != nil {
		return err
	}
	switch {
	case flags.NArg() > 0:
		return fmt.Errorf("unexpected argument %q", flags.Arg(0))
	case n.links != "tcp" && n.links != "grpc":
		return fmt.Errorf("--links must be tcp or grpc, not %q", n.links)
	case r.rate < 1 || r.warmup < 0 || r.duration < time.Second:
		return fmt.Errorf("--rate must be at least 1, --duration at least 1s")
	}
	if role == "" {
		return r.execute(ctx, n, diskless)
	}
	if !diskless {
		var err error
		if n.disk, err = openDisk(n.dir); err != nil {
			return err
		}
	}
	switch role {
	case "follower":
		return n.follow()
	case "leader":
		return n.lead(ctx)
	}
	return fmt.Errorf("--role must be leader or follower, not %q", role)
}
