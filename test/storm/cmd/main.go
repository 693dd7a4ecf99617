// Command cmd lets storms go over a cluster, seed after seed: see package storm.
package main

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/warrenmq/warren/test/cluster"
	"github.com/warrenmq/warren/test/storm"
)

func main() { os.Exit(start()) }

// start returns the exit code: 0 if there was no finding, 1 if there was one, 2 if it could not be done.
func start() int {
	cfg := storm.Default()
	budget := flag.Duration("budget", 5*time.Minute, "how long to go on with new seeds")
	out := flag.String("out", ".run/storm", "`folder` for logs and traces of runs with findings")
	goOn := flag.Bool("go-on", false, "go on after a finding")
	flag.BoolVar(&cfg.Keep, "keep", false, "keep logs and traces of runs without findings, too")
	verbose := flag.Bool("v", false, "tell how often what was answered")
	flag.Uint64Var(&cfg.Seed, "seed", 0, "first seed; 0: by chance")
	flag.DurationVar(&cfg.Time, "time", cfg.Time, "how long each storm is")
	flag.StringVar(&cfg.Binary, "binary", "", "the nodes' binary; empty: it is built, with the race detector")
	flag.StringVar(&cfg.Older, "older", "", "the binary of one of them, in place of that")
	flag.BoolVar(&cfg.Failpoints, "failpoints", true, "the binary has them")
	flag.IntVar(&cfg.AMQP, "amqp", cfg.AMQP, "AMQP clients")
	flag.IntVar(&cfg.GRPC, "grpc", cfg.GRPC, "gRPC clients")
	flag.IntVar(&cfg.HTTP, "http", cfg.HTTP, "clients of the management API")
	flag.IntVar(&cfg.Admins, "admins", cfg.Admins, "administrators")
	flag.BoolVar(&cfg.Calm, "calm", false, "no node is killed, stopped, frozen, drained or cut off")
	flag.Parse()
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer cancel()
	found, err := run(ctx, cfg, *budget, *out, *goOn, *verbose)
	switch {
	case err != nil:
		fmt.Fprintln(os.Stderr, err)
		return 2
	case found:
		return 1
	}
	return 0
}

func run(ctx context.Context, cfg storm.Config, budget time.Duration, out string, goOn, verbose bool) (found bool, err error) {
	if err := os.MkdirAll(out, 0o755); err != nil {
		return false, err
	}
	if cfg.Binary == "" {
		if err := os.Setenv(cluster.RaceEnv, "1"); err != nil {
			return false, err
		}
		if cfg.Binary, err = cluster.Build(ctx, out, cluster.FailpointsTag); err != nil {
			return false, err
		}
	}
	if cfg.Seed == 0 {
		cfg.Seed = rand.Uint64N(1 << 32)
	}
	runs := 0
	for end := time.Now().Add(budget); time.Now().Before(end) && ctx.Err() == nil && (!found || goOn); cfg.Seed++ {
		cfg.Dir = filepath.Join(out, fmt.Sprint("seed", cfg.Seed))
		if err := os.MkdirAll(cfg.Dir, 0o755); err != nil {
			return found, err
		}
		begun := time.Now()
		r, err := storm.Run(ctx, cfg)
		if err != nil {
			return found, fmt.Errorf("seed %d: %w", cfg.Seed, err)
		}
		runs++
		fmt.Printf("seed %d: %d findings in %v\n", cfg.Seed, len(r.Findings), time.Since(begun).Round(time.Second))
		for _, f := range r.Findings {
			fmt.Printf("  after %v: %s: %s\n", f.After, f.Kind, f.Text)
		}
		if verbose {
			fmt.Printf("%s%s", r.Answers, r.Errors)
		}
		if len(r.Findings) == 0 && !cfg.Keep {
			if err := os.RemoveAll(cfg.Dir); err != nil {
				return found, err
			}
			continue
		}
		found = found || len(r.Findings) > 0
		fmt.Printf("  logs and traces are in %s\n", cfg.Dir)
	}
	fmt.Printf("%d storms\n", runs)
	return found, nil
}
