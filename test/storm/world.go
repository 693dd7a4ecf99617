package storm

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/warrenmq/warren/test/cluster"
	"github.com/warrenmq/warren/test/frames"
)

// Names that all clients share. The vhost "/" and guest stay as they are: the harness itself works there.
var (
	vhosts = []string{"/", "/", "/", "/", "/", "/", "v1", "v2"}
	users  = []string{"u1", "u2", "u3", "u4"}
)

// changed are the users whose permissions and limits come and go, and whose connections are closed. u1 stays as it is.
var changed = users[1:]

// lostUser is the one that is deleted, and whose password may be any: of the others it stays, or nobody would come in.
const lostUser = "u4"

// password is that of all users but guest.
const password = "secret"

// queue is a queue as most of its declarations have it.
type queue struct {
	name    string
	bits    byte // of queue.declare
	args    []byte
	asJSON  string // the same for the management API
	durable bool
}

const (
	bitPassive    = 1
	bitDurable    = 2
	bitExclusive  = 4
	bitAutoDelete = 8
	bitNoWait     = 16
)

func durable(name, asJSON string, pairs ...any) queue {
	return queue{name: name, bits: bitDurable, args: frames.Table(pairs...), asJSON: asJSON, durable: true}
}

var queues = []queue{
	durable("q0", `{}`),
	durable("two", `{"x-quorum-initial-group-size":2}`, "x-quorum-initial-group-size", int32(2)),
	durable("two2", `{"x-quorum-initial-group-size":2}`, "x-quorum-initial-group-size", int32(2)),
	durable("one", `{"x-quorum-initial-group-size":1}`, "x-quorum-initial-group-size", int32(1)),
	durable("ttl", `{"x-quorum-initial-group-size":2,"x-message-ttl":300,"x-dead-letter-exchange":"","x-dead-letter-routing-key":"two"}`,
		"x-quorum-initial-group-size", int32(2), "x-message-ttl", int32(300), "x-dead-letter-exchange", "", "x-dead-letter-routing-key", "two"),
	durable("full", `{"x-max-length":5,"x-overflow":"reject-publish"}`, "x-max-length", int32(5), "x-overflow", "reject-publish"),
	durable("letters", `{"x-quorum-initial-group-size":2,"x-max-length":5,"x-dead-letter-exchange":"x-fanout"}`,
		"x-quorum-initial-group-size", int32(2), "x-max-length", int32(5), "x-dead-letter-exchange", "x-fanout"),
	durable("least", `{"x-queue-type":"quorum","x-delivery-limit":2,"x-dead-letter-exchange":"","x-dead-letter-routing-key":"q0","x-dead-letter-strategy":"at-least-once","x-overflow":"reject-publish"}`,
		"x-queue-type", "quorum", "x-delivery-limit", int32(2), "x-dead-letter-exchange", "", "x-dead-letter-routing-key", "q0",
		"x-dead-letter-strategy", "at-least-once", "x-overflow", "reject-publish"),
	durable("ranks", `{"x-max-priority":5}`, "x-max-priority", int32(5)),
	durable("single", `{"x-quorum-initial-group-size":2,"x-single-active-consumer":true}`, "x-quorum-initial-group-size", int32(2), "x-single-active-consumer", true),
	durable("expires", `{"x-expires":1500}`, "x-expires", int32(1500)),
	durable("once", `{"x-deduplication-window":2000,"x-deduplication-size":20}`, "x-deduplication-window", int32(2000), "x-deduplication-size", int32(20)),
	durable("slow", `{"x-consumer-timeout":1000,"x-quorum-initial-group-size":2}`, "x-consumer-timeout", int32(1000), "x-quorum-initial-group-size", int32(2)),
	durable("retry", `{"x-queue-type":"quorum","x-delayed-retry-type":"failed","x-delayed-retry-min":100,"x-delayed-retry-max":1000}`,
		"x-queue-type", "quorum", "x-delayed-retry-type", "failed", "x-delayed-retry-min", int32(100), "x-delayed-retry-max", int32(1000)),
	durable("removal", `{"x-quorum-initial-group-size":2,"x-dead-letter-on-removal":true,"x-dead-letter-exchange":"","x-dead-letter-routing-key":"two2","x-expires":3000}`,
		"x-quorum-initial-group-size", int32(2), "x-dead-letter-on-removal", true, "x-dead-letter-exchange", "", "x-dead-letter-routing-key", "two2", "x-expires", int32(3000)),
	{name: "memory", asJSON: `{}`},
	{name: "passing", bits: bitAutoDelete, asJSON: `{}`},
	{name: "mine", bits: bitExclusive, asJSON: `{}`},
}

// exchange is an exchange as most of its declarations have it.
type exchange struct {
	name, kind string
	args       []byte
	asJSON     string
}

var exchanges = []exchange{
	{name: "x-direct", kind: "direct", args: frames.Table("alternate-exchange", "x-fanout"), asJSON: `{"alternate-exchange":"x-fanout"}`},
	{name: "x-fanout", kind: "fanout", asJSON: `{}`},
	{name: "x-topic", kind: "topic", asJSON: `{}`},
	{name: "x-headers", kind: "headers", asJSON: `{}`},
	{name: "x-delayed", kind: "x-delayed-message", args: frames.Table("x-delayed-type", "direct"), asJSON: `{"x-delayed-type":"direct"}`},
	{name: "x-hash", kind: "x-consistent-hash", asJSON: `{}`},
	{name: "x-random", kind: "x-random", asJSON: `{}`},
}

func (d dice) queue() queue { return queues[d.IntN(len(queues))] }

// oddly is a name of queues that are declared with any arguments.
func (d dice) oddly() string { return pick(d, "odd1", "odd2", "odd3") }

// queueName is one of a queue that there may be, now and then any other text.
func (d dice) queueName() string {
	if d.chance(.08) {
		return d.oddly()
	}
	if d.chance(.03) {
		return d.odd()
	}
	return d.queue().name
}

// lasting is the name of a queue that there mostly is.
func (d dice) lasting() string {
	return pick(d, "q0", "two", "two2", "slow", "ttl", "letters", "single", "one", "once", "retry", "removal")
}

func (d dice) exchangeName() string {
	switch {
	case d.chance(.03):
		return d.odd()
	case d.chance(.1):
		return pick(d, "amq.direct", "amq.fanout", "amq.topic", "amq.headers", "amq.match")
	}
	return exchanges[d.IntN(len(exchanges))].name
}

func (d dice) key() string {
	if d.chance(.3) {
		return pick(d, "a.b", "a.*", "#", "*.b", "1", "7", "")
	}
	return d.queueName()
}

func (d dice) vhost() string {
	if d.chance(.01) {
		return d.odd()
	}
	return pick(d, vhosts...)
}

func (d dice) user() string {
	switch {
	case d.chance(.6): // who may do all that there is
		return pick(d, "guest", "u1")
	case d.chance(.02):
		return "stranger" // who has no password that is right: too many of those hold up who comes from the same address
	}
	return pick(d, "u2", "u2", "u2", "u3", "u3", "u3", lostUser)
}

// passwordOf is the right password but for a few.
func (d dice) passwordOf(user string) string {
	switch user {
	case "stranger":
		return d.odd()
	case "guest":
		return "guest"
	}
	return password
}

// world is what all clients of a run share.
type world struct {
	cfg     Config
	cluster *cluster.Cluster
	begun   time.Time

	mu       sync.Mutex
	findings []Finding
	answers  map[string]int // how often what was answered, for the report
	down     map[string]bool
	traces   []*trace
}

// Finding is something that must not be.
type Finding struct {
	After time.Duration // since the beginning of the run
	Kind  string
	Text  string
}

// findingsMax is how many of a kind are kept, findingBytesMax how much of each.
const (
	findingsMax     = 10
	findingBytesMax = 8 << 10
)

func (w *world) find(kind, format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	n := 0
	for _, f := range w.findings {
		if f.Kind == kind {
			n++
		}
	}
	if n < findingsMax {
		text := fmt.Sprintf(format, args...)
		w.findings = append(w.findings, Finding{time.Since(w.begun).Round(time.Millisecond), kind, text[:min(len(text), findingBytesMax)]})
	}
}

func (w *world) allFindings() []Finding {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.findings)
}

// answered counts an answer.
func (w *world) answered(what string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.answers[what]++
}

// node is one of the nodes, running or not. One of an older program has no clients: it refuses by a panic what it would write that it does not know.
func (w *world) node(d dice) *cluster.Node {
	nodes := w.cluster.Nodes()
	if w.cfg.Older != "" {
		nodes = nodes[:clusterNodes-1]
	}
	return pick(d, nodes...)
}

// expectDown says whether a node's process may end now.
func (w *world) expectDown(n *cluster.Node, down bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.down[n.Name] = down
}

// ended looks for nodes that have ended though nobody ended them.
func (w *world) ended() {
	w.mu.Lock()
	var gone []*cluster.Node
	for _, n := range w.cluster.Nodes() {
		if !w.down[n.Name] && !n.Running() {
			w.down[n.Name] = true // it is told once
			gone = append(gone, n)
		}
	}
	w.mu.Unlock()
	for _, n := range gone {
		w.find("a node ended", "%s\n%s", n.Name, n.Crash())
	}
}

// traceMax is how many lines of a client are kept.
const traceMax = 3000

// trace is what a client did last.
type trace struct {
	name  string
	begun time.Time
	mu    sync.Mutex
	lines []string
	next  int
}

func (w *world) trace(name string) *trace {
	t := &trace{name: name, begun: w.begun}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.traces = append(w.traces, t)
	return t
}

func (t *trace) say(format string, args ...any) {
	line := fmt.Sprintf("%9.3f %s", time.Since(t.begun).Seconds(), strings.ToValidUTF8(fmt.Sprintf(format, args...), "?"))
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.lines) < traceMax {
		t.lines = append(t.lines, line)
		return
	}
	t.lines[t.next] = line
	t.next = (t.next + 1) % traceMax
}

// writeTraces writes what each client did last into a folder.
func (w *world) writeTraces(dir string) error {
	w.mu.Lock()
	traces := slices.Clone(w.traces)
	w.mu.Unlock()
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	for _, t := range traces {
		t.mu.Lock()
		text := strings.Join(slices.Concat(t.lines[t.next:], t.lines[:t.next]), "\n") + "\n"
		t.mu.Unlock()
		if err := os.WriteFile(filepath.Join(dir, t.name+".txt"), []byte(text), 0o644); err != nil {
			return err
		}
	}
	return nil
}
