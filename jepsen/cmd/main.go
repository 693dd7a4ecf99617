// Command cmd runs the harness: see docs/jepsen.md.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/warrenmq/warren/jepsen"
	"github.com/warrenmq/warren/jepsen/db"
	"github.com/warrenmq/warren/jepsen/nemesis"
	"github.com/warrenmq/warren/jepsen/network"
	"github.com/warrenmq/warren/jepsen/report"
	"github.com/warrenmq/warren/jepsen/workload"
	"github.com/warrenmq/warren/test/cluster"
)

func main() { os.Exit(start(os.Args[1:])) }

// start returns the exit code: 0 for valid runs, 1 for an invalid one, 2 when it could not be
// done.
func start(args []string) int {
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer cancel()
	c, err := parse(args)
	if errors.Is(err, flag.ErrHelp) {
		return 0
	}
	if err == nil {
		err = c.build(ctx)
	}
	if err == nil {
		if code, entered := network.Enter(); entered {
			return code
		}
	}
	valid := false
	if err == nil {
		valid, err = c.run(ctx)
	}
	switch {
	case err != nil:
		fmt.Fprintln(os.Stderr, err)
		return 2
	case !valid:
		return 1
	}
	return 0
}

// command is the command line.
type command struct {
	cfg       jepsen.Config
	workloads []string
	nodes     []int
	budget    time.Duration
	goOn      bool
}

func parse(args []string) (command, error) {
	c := command{cfg: jepsen.Default()}
	flags := flag.NewFlagSet("jepsen", flag.ContinueOnError)
	flags.StringVar(&c.cfg.System, "system", c.cfg.System, "what is tested: one of "+strings.Join(db.Names(), ","))
	workloads := flags.String("workload", c.cfg.Workload, "what clients do: all, or some of "+strings.Join(workload.Names(), ","))
	nemeses := flags.String("nemesis", "all", "faults: all, partition, disk, within, none, or some of "+strings.Join(nemesis.Names(), ","))
	flags.DurationVar(&c.cfg.Time, "time", c.cfg.Time, "how long clients work under faults in each run")
	flags.DurationVar(&c.cfg.Hold, "hold", c.cfg.Hold, "how long a fault is left at most")
	nodes := flags.String("nodes", "3", "size of the cluster, or several such as 3,5")
	flags.IntVar(&c.cfg.Rate, "rate", c.cfg.Rate, "messages published per second")
	flags.Uint64Var(&c.cfg.Seed, "seed", 0, "fixes the plan of the faults; 0: chosen by chance")
	flags.StringVar(&c.cfg.Binary, "binary", "", "the node's binary; empty: compiled first")
	flags.BoolVar(&c.cfg.Failpoints, "failpoints", true, "the node's binary has (or gets) the build tag failpoints; without, nemeses that need it are left out")
	flags.StringVar(&c.cfg.Out, "out", ".run/jepsen", "folder for reports, histories and logs")
	flags.BoolVar(&c.cfg.Keep, "keep", false, "keep the nodes' data also of valid runs")
	flags.DurationVar(&c.budget, "budget", 0, "go on with other combinations and seeds for this long; 0: one run for each workload")
	flags.BoolVar(&c.goOn, "go-on", false, "go on after an invalid run")
	verbose := flags.Bool("v", false, "tell what goes on")
	if err := flags.Parse(args); err != nil {
		return c, err
	}
	if flags.NArg() > 0 {
		return c, fmt.Errorf("unexpected argument %q", flags.Arg(0))
	}
	c.cfg.Nemeses = strings.Split(*nemeses, ",")
	c.workloads = strings.Split(*workloads, ",")
	if *workloads == "all" {
		c.workloads = workload.Names()
	}
	for size := range strings.SplitSeq(*nodes, ",") {
		n, err := strconv.Atoi(size)
		if err != nil {
			return c, fmt.Errorf("--nodes: %w", err)
		}
		c.nodes = append(c.nodes, n)
	}
	if c.cfg.Seed == 0 {
		c.cfg.Seed = uint64(time.Now().UnixNano() % 1_000_000_000)
	}
	if *verbose {
		c.cfg.Log = slog.New(slog.NewTextHandler(os.Stderr, nil))
	}
	var err error
	c.cfg.Out, err = filepath.Abs(c.cfg.Out)
	return c, err
}

// build compiles the node if no binary was given. It is done outside the namespace, where
// the compiler can fetch what it lacks, and handed on by the environment.
func (c *command) build(ctx context.Context) (err error) {
	if err := os.MkdirAll(c.cfg.Out, 0o755); err != nil {
		return err
	}
	if c.cfg.Binary == "" && c.cfg.System == "warren" {
		if network.Inside() {
			c.cfg.Binary = os.Getenv(cluster.BinaryEnv)
			return nil
		}
		var tags []string
		if c.cfg.Failpoints {
			tags = append(tags, cluster.FailpointsTag)
		}
		if c.cfg.Binary, err = cluster.Build(ctx, c.cfg.Out, tags...); err == nil {
			err = os.Setenv(cluster.BinaryEnv, c.cfg.Binary)
		}
	}
	return err
}

// run does the runs. An invalid one is not an error.
func (c *command) run(ctx context.Context) (valid bool, err error) {
	valid = true
	show := func(r report.Report) {
		fmt.Println(r.Line())
		if !r.Valid {
			fmt.Printf("  report: %s\n  repeat: %s\n", filepath.Join(r.Dir, report.HTMLFile), r.Repeat)
		}
		valid = valid && r.Valid
	}
	if c.budget > 0 {
		fmt.Printf("seeds from %d on\n", c.cfg.Seed)
		return jepsen.Suite(ctx, jepsen.Plan{Base: c.cfg, Workloads: c.workloads, Nodes: c.nodes, Budget: c.budget, GoOn: c.goOn}, show)
	}
	for _, name := range c.workloads {
		for _, n := range c.nodes {
			c.cfg.Workload, c.cfg.Nodes = name, n
			r, err := jepsen.Run(ctx, c.cfg)
			if err != nil {
				return false, err
			}
			report.Text(os.Stdout, r)
			show(r)
		}
	}
	return valid, ctx.Err()
}
