package jepsen

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/warrenmq/warren/jepsen/db"
	"github.com/warrenmq/warren/jepsen/nemesis"
	"github.com/warrenmq/warren/jepsen/workload"
)

// Config describes one run.
type Config struct {
	// System, Workload and Nemeses are names of their registries; of the nemeses, groups as well.
	System   string
	Workload string
	Nemeses  []string
	// Protocol is what clients publish and consume by: "amqp", "grpc", or "both", each connection of a process by the other one. What
	// gRPC has not, such as transactions, goes over AMQP.
	Protocol string
	// Time is how long clients work under faults. The whole run takes at most Time and
	// five minutes; usually Time and half a minute.
	Time time.Duration
	// Hold is how long a fault, or the last of two, is left at most.
	Hold time.Duration
	// Nodes is the size of the cluster, at least 1.
	Nodes int
	// Rate is how many messages are published per second, over all publishers.
	Rate int
	// Slack multiplies the limits of how long confirms may stay away: 1 is for an idle machine.
	Slack float64
	// Seed fixes the plan of the faults.
	Seed uint64
	// Binary is the path of the node's binary.
	Binary string
	// Failpoints says that Binary was built with the tag failpoints: without, the nemeses that
	// break nodes from within are left out.
	Failpoints bool
	// Out is an existing folder. The run makes one in it for its reports, history and logs.
	Out string
	// Keep keeps the nodes' data folders also of a valid run.
	Keep bool
	// Env is added to the nodes' environment, as "NAME=value".
	Env []string
	// Log is told what goes on; nil: nobody.
	Log *slog.Logger

	// sabotage, in tests, does what a broken system would have done, before the queues are
	// looked at.
	sabotage func(ctx context.Context, system db.DB) error
}

// Protocols are what clients may speak.
var Protocols = []string{"amqp", "grpc", "both"}

// rpc tells whether a connection is over gRPC.
func (c Config) rpc(process, life int) bool {
	return c.Protocol == "grpc" || c.Protocol == "both" && (process+life)%2 == 0
}

// Default returns a run of the queue workload under all faults, without Binary and Out.
func Default() Config {
	return Config{System: "warren", Workload: "queue", Nemeses: []string{"all"}, Protocol: "amqp", Time: 30 * time.Second, Hold: nemesis.HoldDefault, Nodes: 3, Rate: 200, Slack: 3, Seed: 1}
}

// Validate tells everything that is wrong with c.
func (c Config) Validate() error {
	var errs []error
	check := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	check(slices.Contains(db.Names(), c.System), "no system %q: there are %s", c.System, strings.Join(db.Names(), ", "))
	_, err := workload.New(c.Workload, workload.Options{Quorum: c.quorum()})
	errs = append(errs, err)
	_, err = nemesis.Select(c.Nemeses, true, c.Failpoints)
	errs = append(errs, err)
	check(slices.Contains(Protocols, c.Protocol), "no protocol %q: there are %s", c.Protocol, strings.Join(Protocols, ", "))
	check(c.Protocol == "amqp" || c.System == "warren", "the clients of %s speak amqp", c.System)
	check(c.Time >= time.Second && c.Time <= 12*time.Hour, "a run must last between a second and 12 hours, not %v", c.Time)
	check(c.Hold >= time.Second && c.Hold <= time.Hour, "a fault must last between a second and an hour at most, not %v", c.Hold)
	check(c.Nodes >= 1 && c.Nodes <= 9, "a cluster has 1 to 9 nodes, not %d", c.Nodes)
	check(c.Rate >= 1 && c.Rate <= 100_000, "the rate must be 1 to 100,000 messages a second, not %d", c.Rate)
	check(c.Slack >= 1 && c.Slack <= 1000, "the slack must be 1 to 1,000, not %v", c.Slack)
	check(c.Binary != "" || c.System != "warren", "the path of the node's binary is missing")
	check(c.Out != "", "the folder for reports is missing")
	return errors.Join(errs...)
}

// quorum is for workload.Options.
func (c Config) quorum() bool { return c.System == "rabbitmq" }

// Name names the run for its folder.
func (c Config) Name() string {
	return fmt.Sprintf("%s-%s-%s-%s-%dn-seed%d", c.System, c.Workload, c.Protocol, strings.Join(c.Nemeses, "+"), c.Nodes, c.Seed)
}

// Repeat returns the command that does the run again.
func (c Config) Repeat() string {
	return fmt.Sprintf("go run ./jepsen/cmd --system %s --workload %s --protocol %s --nemesis %s --nodes %d --time %v --hold %v --rate %d --seed %d",
		c.System, c.Workload, c.Protocol, strings.Join(c.Nemeses, ","), c.Nodes, c.Time, c.Hold, c.Rate, c.Seed)
}
