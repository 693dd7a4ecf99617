package storm

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/warrenmq/warren/test/cluster"
)

// Config says what a run is.
type Config struct {
	Seed   uint64
	Time   time.Duration // how long clients and faults go on
	Binary string        // the nodes'
	// Older, if not empty, is the binary of one of them, which is of an older program.
	Older string
	// Failpoints: they were built with cluster.FailpointsTag. Without, no node is cut off, and no disk full.
	Failpoints bool
	// Dir is an existing folder for the nodes' data and logs, and for the traces if there is a finding.
	Dir string
	// How many there are of each, at a time.
	AMQP, GRPC, HTTP, Admins int
	// Calm: no node comes to harm.
	Calm bool
	// Keep writes the traces of a run without a finding, too.
	Keep bool
	// Settle bounds how long nodes may take until all is gone of clients that have left.
	Settle time.Duration
}

// Default is a run of a minute.
func Default() Config {
	return Config{Time: time.Minute, AMQP: 12, GRPC: 4, HTTP: 2, Admins: 2, Settle: time.Minute}
}

// Report is what came of a run.
type Report struct {
	Findings []Finding
	Answers  string // how often what was answered
	Errors   string // lines of the nodes' logs that tell of errors, by how often
}

// clusterNodes is how many nodes there are: the loss of one takes the majority of queues with two replicas, and not that of the catalog.
const clusterNodes = 3

// Run starts a cluster, lets the storm go over it, and looks at what is left. An error is for what kept it from that.
func Run(ctx context.Context, cfg Config) (r Report, err error) {
	w := &world{cfg: cfg, begun: time.Now(), answers: map[string]int{}, down: map[string]bool{}}
	w.cluster, err = cluster.New(cluster.Config{
		Nodes: clusterNodes, Binary: cfg.Binary, Dir: cfg.Dir, Env: []string{"GORACE=atexit_sleep_ms=10"}, Args: []string{"--log-level", "debug"},
	})
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, w.cluster.Close()) }()
	if cfg.Older != "" {
		w.cluster.Node(clusterNodes - 1).SetBinary(cfg.Older)
	}
	if err := w.cluster.StartAll(ctx); err != nil {
		return r, err
	}
	if err := w.found(ctx); err != nil {
		return r, err
	}
	list, err := w.endpoints(ctx)
	if err != nil {
		return r, err
	}
	before, err := w.measureSettled(ctx)
	if err != nil {
		return r, err
	}
	w.play(ctx, list)
	if ctx.Err() != nil {
		return r, ctx.Err() // what is not over says nothing
	}
	if err = w.heal(ctx); err == nil {
		err = w.judge(ctx, before)
	}
	if err != nil {
		w.find("not healed", "%v", err)
	}
	w.stop(ctx)
	w.readLogs(&r)
	r.Findings, r.Answers = w.allFindings(), counted(w.answers)
	if len(r.Findings) > 0 || cfg.Keep {
		err = w.writeTraces(filepath.Join(cfg.Dir, "traces"))
	} else {
		err = nil
	}
	return r, err
}

// play lets all clients, administrators and faults go on for their time, and waits until they have left.
func (w *world) play(ctx context.Context, list []endpoint) {
	ctx, cancel := context.WithTimeout(ctx, w.cfg.Time)
	defer cancel()
	var all sync.WaitGroup
	for i := range w.cfg.AMQP {
		all.Go(func() { w.speak(ctx, i) })
	}
	for i := range w.cfg.GRPC {
		all.Go(func() { w.call(ctx, i) })
	}
	for i := range w.cfg.HTTP {
		all.Go(func() { w.browse(ctx, i, list) })
	}
	for i := range w.cfg.Admins {
		all.Go(func() { w.administrate(ctx, i) })
	}
	if !w.cfg.Calm {
		all.Go(func() { w.harm(ctx) })
	}
	done := make(chan struct{})
	go func() {
		all.Wait()
		close(done)
	}()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-done:
			return
		case <-tick.C:
			w.ended()
			if len(w.allFindings()) > 0 {
				cancel() // what comes behind it says little
			}
		}
	}
}

// stop ends the nodes in order.
func (w *world) stop(ctx context.Context) {
	w.ended()
	for _, n := range w.cluster.Nodes() {
		w.expectDown(n, true)
	}
	ctx, cancel := context.WithTimeout(ctx, startTime)
	defer cancel()
	if err := w.cluster.StopAll(ctx); err != nil {
		w.find("a node does not stop", "%v", err)
	}
}

// panicked are texts of a log that tell of a panic that a library has caught, or of an invariant.
var panicked = []string{"http: panic serving", "panic serving", "invariant"}

// readLogs looks for what no log should have.
func (w *world) readLogs(r *Report) {
	if crashes := w.cluster.Crashes(); crashes != "" {
		w.find("crash", "%s", crashes)
	}
	kinds := map[string]int{}
	for _, n := range w.cluster.Nodes() {
		data, err := os.ReadFile(n.LogFile())
		if err != nil {
			w.find("no log", "%v", err)
			continue
		}
		for line := range strings.Lines(string(data)) {
			for _, text := range panicked {
				if strings.Contains(line, text) {
					w.find("panic", "%s: %.1000s", n.Name, line)
				}
			}
			if strings.Contains(line, "level=ERROR") || strings.Contains(line, "level=WARN") {
				kinds[message(line)]++
			}
		}
	}
	r.Errors = counted(kinds)
}

// message is the text of a line of a log, without what it is about.
func message(line string) string {
	_, text, _ := strings.Cut(line, "level=")
	level, text, _ := strings.Cut(text, " msg=")
	if strings.HasPrefix(text, `"`) {
		end := strings.Index(text[1:], `"`)
		return level + " " + text[1:1+max(end, 0)]
	}
	text, _, _ = strings.Cut(text, " ")
	return level + " " + text
}

// counted lists what there is, the most frequent first.
func counted(m map[string]int) string {
	keys := slices.SortedFunc(maps.Keys(m), func(a, b string) int { return m[b] - m[a] })
	var b strings.Builder
	for _, k := range keys {
		fmt.Fprintf(&b, "  %6d %s\n", m[k], k)
	}
	return b.String()
}
