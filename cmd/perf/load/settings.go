package load

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"
)

// clientGOGC is what GOGC of the clients is without --client-gogc. With 100 the collector took a fifth of what two processors could do,
// from the servers as well (docs/benchmarks/README.md).
const clientGOGC = 400

// settings of one run. They are part of its JSON line.
type settings struct {
	Mode       string        `json:"mode"`
	Label      string        `json:"label,omitempty"`
	Protocol   string        `json:"protocol"`
	URLs       []string      `json:"-"`
	Nodes      int           `json:"nodes"`
	Queues     int           `json:"queues"`
	Publishers int           `json:"publishers"`
	Consumers  int           `json:"consumers"`
	Size       int           `json:"size"`
	Rate       int           `json:"rate,omitempty"`
	Window     int           `json:"window"`
	Prefetch   int           `json:"prefetch"` // 0 with NoAck
	NoAck      bool          `json:"no_ack,omitempty"`
	Fanout     bool          `json:"fanout,omitempty"`
	AckEvery   int           `json:"ack_every"`
	Messages   int           `json:"messages,omitempty"`
	Via        string        `json:"via,omitempty"`
	Preload    int           `json:"preload,omitempty"`
	Quorum     bool          `json:"quorum_type,omitempty"`
	Strategy   string        `json:"strategy,omitempty"`
	Parallel   int           `json:"parallel,omitempty"`
	Freeze     bool          `json:"freeze,omitempty"`
	Restart    bool          `json:"restart,omitempty"`
	Cut        bool          `json:"cut,omitempty"`
	OneLeader  bool          `json:"one_leader,omitempty"`
	ClientGOGC int           `json:"client_gogc"`
	Warmup     time.Duration `json:"-"`
	Duration   time.Duration `json:"-"`
	Drain      time.Duration `json:"-"`
	Settle     time.Duration `json:"-"`
	Prefix     string        `json:"-"`

	start     string // binary of nodes to start
	dir       string // for their data
	pids      []int
	servers   []server
	leaderPID int
	out       string
	logLevel  string // of nodes that are started
	keep      bool
	profiles  string
	scrapes   int
}

// server is a process that was started elsewhere.
type server struct {
	name string // by which the protocol knows it
	pid  int
	url  string
}

// parseServer reads name=pid@url.
func parseServer(text string) (x server, err error) {
	name, rest, ok1 := strings.Cut(text, "=")
	pid, url, ok2 := strings.Cut(rest, "@")
	if x.pid, err = strconv.Atoi(pid); err != nil || !ok1 || !ok2 {
		return x, fmt.Errorf("--servers: %q is not of the form name=pid@url", text)
	}
	x.name, x.url = name, url
	return x, nil
}

// queueArgs are the arguments of every queue.
func (s *settings) queueArgs() map[string]any {
	args := map[string]any{}
	if s.Quorum {
		args["x-queue-type"] = "quorum"
	}
	if s.OneLeader {
		args["x-queue-leader-locator"] = "client-local"
	}
	return args
}

// copies is how many queues get each message.
func (s *settings) copies() int {
	if s.Fanout {
		return s.Queues
	}
	return 1
}

var modes = map[string]func(*run) error{
	"throughput": throughput,
	"latency":    throughput,
	"deadletter": deadletter,
	"backlog":    backlog,
	"failover":   failover,
	"queues":     queues,
	"start":      start,
}

// parse reads the command line.
func parse(args []string, stderr io.Writer) (*settings, error) {
	if len(args) == 0 || modes[args[0]] == nil {
		return nil, errors.New("the first argument is the mode: throughput, latency, deadletter, backlog, failover, queues or start")
	}
	s := &settings{Mode: args[0]}
	flags := flag.NewFlagSet("warren-perf "+s.Mode, flag.ContinueOnError)
	flags.SetOutput(io.Discard) // an error is one line; only --help lists the flags
	var urls, pids, servers string
	flags.StringVar(&urls, "urls", "", "AMQP addresses, separated by commas; clients use them in turn")
	flags.StringVar(&s.Protocol, "protocol", amqpProtocol, "how to speak: amqp, or grpc with addresses like grpc://user:password@host:port")
	flags.StringVar(&pids, "server-pids", "", "process ids of the servers, separated by commas, for CPU and memory")
	flags.StringVar(&servers, "servers", "", "servers as name=pid@url, separated by commas: in place of --urls and --server-pids")
	flags.StringVar(&s.dir, "dir", "", "where nodes that are started keep their data, in a `folder` that is removed; empty: with temporary files")
	flags.StringVar(&s.start, "start", "", "start nodes of this Warren `binary` instead of using --urls")
	flags.IntVar(&s.Nodes, "nodes", 1, "number of nodes to start, or that are behind --urls")
	flags.StringVar(&s.Label, "label", "", "text for the JSON line")
	flags.IntVar(&s.Queues, "queues", 1, "number of queues")
	flags.IntVar(&s.Publishers, "publishers", 1, "number of publishers")
	flags.IntVar(&s.Consumers, "consumers", 1, "number of consumers")
	flags.IntVar(&s.Size, "size", 1024, "bytes of a message's body")
	flags.IntVar(&s.Rate, "rate", 0, "messages per second over all publishers; 0 is as fast as it goes (latency and failover: 1000)")
	flags.IntVar(&s.Window, "window", 1000, "unconfirmed messages of a publisher")
	flags.IntVar(&s.Prefetch, "prefetch", 500, "prefetch of a consumer")
	flags.BoolVar(&s.NoAck, "no-ack", false, "throughput and latency: consume without acks")
	flags.BoolVar(&s.Fanout, "fanout", false, "throughput and latency: publish each message to all queues, by amq.fanout; all figures but the rate count copies")
	flags.IntVar(&s.ClientGOGC, "client-gogc", clientGOGC, "GOGC of the clients; they keep next to nothing alive, and with Go's 100 they collect all the time")
	flags.IntVar(&s.AckEvery, "ack-every", 1, "ack this many deliveries with one method")
	flags.IntVar(&s.Messages, "messages", 100000, "backlog: number of messages")
	flags.StringVar(&s.Via, "via", "reject", "deadletter: reject, ttl or "+viaLimit)
	flags.IntVar(&s.Preload, "preload", 0, "deadletter via reject or "+viaLimit+": publish this many first, then measure the move alone")
	flags.BoolVar(&s.Quorum, "quorum", false, "declare queues with x-queue-type quorum (RabbitMQ's replicated type)")
	flags.StringVar(&s.Strategy, "strategy", "", "deadletter: x-dead-letter-strategy of the source")
	flags.IntVar(&s.Parallel, "parallel", 1, "queues and failover: declare over this many connections at once")
	flags.BoolVar(&s.Restart, "restart", false, "queues: kill the last node and start it again, before the publishes (with --start)")
	flags.IntVar(&s.scrapes, "scrapes", 0, "queues: read the metrics of each node so many times, before the publishes (with --start)")
	flags.BoolVar(&s.Freeze, "freeze", false, "failover: stop the process (SIGSTOP) instead of killing it, until the end of the measurement")
	flags.BoolVar(&s.Cut, "cut", false, "failover: cut the leader's node off from the other nodes, silently, instead of killing it (with --start)")
	flags.BoolVar(&s.OneLeader, "one-leader", false, "failover: have one node lead all queues, and hit that one")
	flags.StringVar(&s.logLevel, "log-level", "warn", "least severe `level` that nodes which are started log")
	flags.StringVar(&s.profiles, "profiles", "", "keep profiles of the nodes (processor, allocations, waits, mutexes) from the beginning of each phase on, in this `folder`, which exists (with --start); processor times are higher then")
	flags.BoolVar(&s.keep, "keep", false, "leave the folder of nodes that were started, with their logs")
	flags.DurationVar(&s.Warmup, "warmup", 3*time.Second, "time before the measurement")
	flags.DurationVar(&s.Duration, "duration", 10*time.Second, "time of the measurement")
	flags.DurationVar(&s.Drain, "drain", 15*time.Second, "time without progress after which missing messages are lost")
	flags.DurationVar(&s.Settle, "settle", 5*time.Second, "backlog: time between the last confirm and reading the servers' memory")
	flags.StringVar(&s.Prefix, "prefix", "perf", "beginning of the queues' names")
	flags.IntVar(&s.leaderPID, "leader-pid", 0, "failover without --start or --servers: the process to kill; --urls leave its node out")
	flags.StringVar(&s.out, "out", "", "append the JSON line to this `file`, too")
	if err := flags.Parse(args[1:]); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			flags.SetOutput(stderr)
			flags.Usage()
		}
		return nil, err
	}
	if flags.NArg() > 0 {
		return nil, fmt.Errorf("unexpected argument %q", flags.Arg(0))
	}
	if urls != "" {
		s.URLs = strings.Split(urls, ",")
	}
	for text := range strings.SplitSeq(pids, ",") {
		if text == "" {
			continue
		}
		pid, err := strconv.Atoi(text)
		if err != nil {
			return nil, fmt.Errorf("--server-pids: %w", err)
		}
		s.pids = append(s.pids, pid)
	}
	for text := range strings.SplitSeq(servers, ",") {
		if text == "" {
			continue
		}
		x, err := parseServer(text)
		if err != nil {
			return nil, err
		}
		s.servers, s.URLs, s.pids = append(s.servers, x), append(s.URLs, x.url), append(s.pids, x.pid)
	}
	return s, s.check()
}

// amqpProtocol is what --protocol is by itself.
const amqpProtocol = "amqp"

// viaLimit is the way into the dead-letter queue over the delivery limit.
const viaLimit = "delivery-limit"

func (s *settings) check() error {
	if s.Rate == 0 && (s.Mode == "latency" || s.Mode == "failover") {
		s.Rate = 1000
	}
	if s.Mode != "deadletter" {
		s.Via, s.Preload, s.Strategy = "", 0, ""
	}
	if s.Mode != "backlog" {
		s.Messages = 0
	}
	if s.Mode != "queues" && s.Mode != "failover" {
		s.Parallel = 0
	}
	if s.NoAck {
		s.Prefetch = 0
	}
	switch {
	case (s.NoAck || s.Fanout) && s.Mode != "throughput" && s.Mode != "latency":
		return errors.New("--no-ack and --fanout go with throughput and latency")
	case s.Fanout && s.Consumers < s.Queues:
		return errors.New("--fanout needs a consumer for each queue")
	case s.Protocol != amqpProtocol && (s.Mode == "failover" || s.Mode == "queues" || s.Mode == "start"):
		return errors.New("--protocol goes with throughput, latency, deadletter and backlog")
	case (s.start == "") == (len(s.URLs) == 0):
		return errors.New("either --urls or --start is needed")
	case s.ClientGOGC < 1:
		return errors.New("--client-gogc must be at least 1")
	case s.Mode == "start" && s.start == "":
		return errors.New("start needs --start")
	case (s.Mode == "queues" || s.Mode == "failover") && s.Parallel < 1:
		return errors.New("--parallel must be at least 1")
	case (s.Freeze || s.Cut || s.OneLeader) && s.Mode != "failover":
		return errors.New("--freeze, --cut and --one-leader go with failover")
	case s.Restart && (s.Mode != "queues" || s.start == "" || s.Nodes < 3):
		return errors.New("--restart goes with queues, --start and three nodes")
	case s.Freeze && s.Cut:
		return errors.New("--freeze or --cut, not both")
	case s.Cut && s.start == "":
		return errors.New("--cut needs --start")
	case s.Nodes < 1 || s.Queues < 1 || s.Publishers < 1 || s.Consumers < 1 || s.Window < 1 || s.Prefetch < 1 && !s.NoAck:
		return errors.New("--nodes, --queues, --publishers, --consumers, --window and --prefetch must be at least 1")
	case s.AckEvery < 1 || s.AckEvery > s.Prefetch && !s.NoAck:
		return errors.New("--ack-every must be between 1 and --prefetch")
	case s.Size < stampBytes:
		return fmt.Errorf("--size must be at least %d", stampBytes)
	case s.Queues > s.Consumers && s.AckEvery > 1:
		return errors.New("--ack-every needs a consumer for each queue")
	case s.Queues > s.Publishers && s.Mode == "deadletter":
		return errors.New("every source needs a publisher")
	case s.Mode == "deadletter" && s.Via != "reject" && s.Via != "ttl" && s.Via != viaLimit:
		return errors.New("--via must be reject, ttl or " + viaLimit)
	case s.Preload > 0 && s.Via == "ttl":
		return errors.New("--preload goes with --via reject or " + viaLimit)
	case s.Mode == "failover" && s.start == "" && s.leaderPID == 0 && len(s.servers) == 0:
		return errors.New("failover needs --start, --servers or --leader-pid")
	case s.Mode == "failover" && s.start != "" && s.Nodes < 3:
		return errors.New("failover needs three nodes")
	}
	return nil
}
