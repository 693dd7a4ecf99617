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
	"slices"
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

// start returns the exit code: 0 for valid runs, 1 for an invalid one (0 with --judge=false), 2 when it
// could not be done.
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
	case !valid && c.judge:
		return 1
	}
	return 0
}

// command is the command line.
type command struct {
	cfg       jepsen.Config
	systems   []string
	workloads []string
	nodes     []int
	budget    time.Duration
	goOn      bool
	// each: one run for each nemesis. seeds is how many there are of each.
	each  bool
	seeds int
	judge bool
	// rabbitmq is where its packages are unpacked.
	rabbitmq string
}

func parse(args []string) (command, error) {
	c := command{cfg: jepsen.Default()}
	flags := flag.NewFlagSet("jepsen", flag.ContinueOnError)
	systems := flags.String("system", c.cfg.System, "what is tested: some of "+strings.Join(db.Names(), ",")+"; with several, one after the other under the same seeds, and a table at the end")
	flags.StringVar(&c.rabbitmq, "rabbitmq", "/", "the folder in which Debian's packages of RabbitMQ are (jepsen/rabbitmq.sh)")
	workloads := flags.String("workload", c.cfg.Workload, "what clients do: all, or some of "+strings.Join(workload.Names(), ","))
	nemeses := flags.String("nemesis", "all", "faults: all, partition, disk, within, none, or some of "+strings.Join(nemesis.Names(), ","))
	flags.StringVar(&c.cfg.Protocol, "protocol", c.cfg.Protocol, "what clients publish and consume by: "+strings.Join(jepsen.Protocols, ", ")+" (by turns)")
	flags.DurationVar(&c.cfg.Time, "time", c.cfg.Time, "how long clients work under faults in each run")
	flags.DurationVar(&c.cfg.Hold, "hold", c.cfg.Hold, "how long a fault is left at most")
	nodes := flags.String("nodes", "3", "size of the cluster, or several such as 3,5")
	flags.IntVar(&c.cfg.Rate, "rate", c.cfg.Rate, "messages published per second")
	flags.Float64Var(&c.cfg.Slack, "slack", c.cfg.Slack, "multiplies the limits of how long confirms may stay away; 1 is for an idle machine")
	flags.Uint64Var(&c.cfg.Seed, "seed", 0, "fixes the plan of the faults; 0: chosen by chance")
	flags.StringVar(&c.cfg.Binary, "binary", "", "the node's binary; empty: compiled first")
	flags.BoolVar(&c.cfg.Failpoints, "failpoints", true, "the node's binary has (or gets) the build tag failpoints; without, nemeses that need it are left out")
	flags.StringVar(&c.cfg.Out, "out", ".run/jepsen", "folder for reports, histories and logs")
	flags.BoolVar(&c.cfg.Keep, "keep", false, "keep the nodes' data also of valid runs")
	flags.DurationVar(&c.budget, "budget", 0, "go on with other combinations and seeds for this long; 0: one run for each workload")
	flags.BoolVar(&c.goOn, "go-on", false, "go on after an invalid run")
	flags.BoolVar(&c.each, "each", false, "a run for each of the faults or groups instead of one with all")
	flags.IntVar(&c.seeds, "seeds", 1, "how many seeds, counted up from --seed, each run is done with (without --budget)")
	flags.BoolVar(&c.judge, "judge", true, "an invalid run makes the exit code 1; without, verdicts are only printed")
	verbose := flags.Bool("v", false, "tell what goes on")
	if err := flags.Parse(args); err != nil {
		return c, err
	}
	if flags.NArg() > 0 {
		return c, fmt.Errorf("unexpected argument %q", flags.Arg(0))
	}
	c.systems = strings.Split(*systems, ",")
	for _, s := range c.systems {
		// The same plan of faults for all: only Warren can be broken from within.
		c.cfg.Failpoints = c.cfg.Failpoints && s == "warren"
	}
	c.cfg.System = c.systems[0]
	if c.budget > 0 && (len(c.systems) > 1 || c.each || c.seeds != 1 || c.cfg.System != "warren") {
		return c, errors.New("--budget is for runs of warren, and chooses faults and seeds itself")
	}
	c.cfg.Nemeses = strings.Split(*nemeses, ",")
	c.workloads = strings.Split(*workloads, ",")
	if *workloads == "all" {
		c.workloads = workload.Names()
	}
	for _, name := range c.workloads {
		if _, err := workload.New(name, workload.Options{}); err != nil {
			return c, err
		}
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
	if c.cfg.Binary == "" && slices.Contains(c.systems, "warren") {
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
	var all []report.Report
	for _, cfg := range c.configs() {
		if err := ctx.Err(); err != nil {
			return false, err
		}
		r, err := jepsen.Run(ctx, cfg)
		if err != nil {
			return false, err
		}
		report.Text(os.Stdout, r)
		show(r)
		all = append(all, r)
		if !c.judge && r.Ops == 0 {
			return false, fmt.Errorf("the run could not be done: %s", strings.Join(r.Errors, "; "))
		}
	}
	if len(c.systems) > 1 {
		report.Compare(os.Stdout, all)
	}
	return valid, ctx.Err()
}

// configs are the runs, those of the systems under the same seed and faults one after the other.
func (c *command) configs() (list []jepsen.Config) {
	faults := [][]string{c.cfg.Nemeses}
	if c.each {
		faults = nil
		for _, name := range c.cfg.Nemeses {
			faults = append(faults, []string{name})
		}
	}
	for i := range c.seeds {
		for _, name := range c.workloads {
			for _, n := range c.nodes {
				for _, f := range faults {
					for _, system := range c.systems {
						cfg := c.cfg
						cfg.System, cfg.Workload, cfg.Nodes, cfg.Nemeses = system, name, n, f
						cfg.Seed += uint64(i)
						if system == "rabbitmq" {
							cfg.Binary = c.rabbitmq
						}
						list = append(list, cfg)
					}
				}
			}
		}
	}
	return list
}
