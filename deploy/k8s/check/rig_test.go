package check

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/textparse"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb/chunkenc"
	"github.com/prometheus/prometheus/tsdb/chunks"
	"github.com/prometheus/prometheus/util/annotations"
	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/warrenmq/warren/test/cluster"
)

// scraped is what a Prometheus would have of some nodes: the real exposition, with the labels that a target gets.
type scraped struct {
	series map[string]*storedSeries
	last   time.Time
}

type storedSeries struct {
	labels  labels.Labels
	samples []chunks.Sample
}

// sample is one float.
type sample struct {
	t int64
	v float64
}

func (s sample) T() int64                      { return s.t }
func (s sample) F() float64                    { return s.v }
func (s sample) H() *histogram.Histogram       { return nil }
func (s sample) FH() *histogram.FloatHistogram { return nil }
func (s sample) Type() chunkenc.ValueType      { return chunkenc.ValFloat }
func (s sample) Copy() chunks.Sample           { return s }

// The paths that are scraped of each node, as the chart's ServiceMonitor does with perQueue.
var scrapePaths = []string{
	"/metrics",
	"/metrics/detailed?family=queue_coarse_metrics&family=queue_metrics&family=queue_consumer_count&family=queue_delivery_metrics&family=warren_outbox",
}

// scrape reads all nodes once. Those that do not run are down.
func (s *scraped) scrape(ctx context.Context, nodes []*cluster.Node) error {
	s.last = time.Now()
	for _, n := range nodes {
		target := labels.FromStrings("job", "warren-nodes", "namespace", "default", "endpoint", "health", "instance", n.HTTP(), "pod", n.Name)
		up := labels.NewBuilder(target).Set(labels.MetricName, "up").Labels()
		if !n.Running() {
			s.add(up, 0)
			continue
		}
		s.add(up, 1)
		for _, path := range scrapePaths {
			text, err := n.Fetch(ctx, path)
			if err != nil {
				return err
			}
			if err := s.read(text, target); err != nil {
				return fmt.Errorf("%s of %s: %w", path, n.Name, err)
			}
		}
	}
	return nil
}

func (s *scraped) read(text []byte, target labels.Labels) error {
	p := textparse.NewPromParser(text, labels.NewSymbolTable(), false)
	for {
		entry, err := p.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if entry != textparse.EntrySeries {
			continue
		}
		_, _, v := p.Series()
		var l labels.Labels
		p.Labels(&l)
		b := labels.NewBuilder(l)
		target.Range(func(t labels.Label) { b.Set(t.Name, t.Value) })
		s.add(b.Labels(), v)
	}
}

func (s *scraped) add(l labels.Labels, v float64) {
	key := l.String()
	if s.series[key] == nil {
		s.series[key] = &storedSeries{labels: l}
	}
	s.series[key].samples = append(s.series[key].samples, sample{s.last.UnixMilli(), v})
}

// names are the metrics that were there, with all labels that they had.
func (s *scraped) names() map[string][]string {
	names := map[string][]string{}
	for _, one := range s.series {
		name := one.labels.Get(labels.MetricName)
		one.labels.Range(func(l labels.Label) {
			if !slices.Contains(names[name], l.Name) {
				names[name] = append(names[name], l.Name)
			}
		})
	}
	return names
}

// Querier implements storage.Queryable.
func (s *scraped) Querier(_, _ int64) (storage.Querier, error) { return querier{s}, nil }

type querier struct{ s *scraped }

func (q querier) Select(_ context.Context, _ bool, _ *storage.SelectHints, matchers ...*labels.Matcher) storage.SeriesSet {
	set := &seriesSet{at: -1}
	for _, one := range q.s.series {
		if !slices.ContainsFunc(matchers, func(m *labels.Matcher) bool { return !m.Matches(one.labels.Get(m.Name)) }) {
			set.list = append(set.list, storage.NewListSeries(one.labels, one.samples))
		}
	}
	slices.SortFunc(set.list, func(a, b storage.Series) int { return labels.Compare(a.Labels(), b.Labels()) })
	return set
}

func (querier) LabelValues(context.Context, string, *storage.LabelHints, ...*labels.Matcher) ([]string, annotations.Annotations, error) {
	return nil, nil, errors.ErrUnsupported
}

func (querier) LabelNames(context.Context, *storage.LabelHints, ...*labels.Matcher) ([]string, annotations.Annotations, error) {
	return nil, nil, errors.ErrUnsupported
}

func (querier) Close() error { return nil }

type seriesSet struct {
	list []storage.Series
	at   int
}

func (s *seriesSet) Next() bool                        { s.at++; return s.at < len(s.list) }
func (s *seriesSet) At() storage.Series                { return s.list[s.at] }
func (s *seriesSet) Err() error                        { return nil }
func (s *seriesSet) Warnings() annotations.Annotations { return nil }

// evaluate returns the numbers that an expression gives now, those that are none (NaN) left out.
func (s *scraped) evaluate(ctx context.Context, engine *promql.Engine, expr string) ([]float64, error) {
	q, err := engine.NewInstantQuery(ctx, s, nil, expr, s.last)
	if err != nil {
		return nil, err
	}
	defer q.Close()
	r := q.Exec(ctx)
	if r.Err != nil {
		return nil, r.Err
	}
	var numbers []float64
	switch v := r.Value.(type) {
	case promql.Vector:
		for _, one := range v {
			numbers = append(numbers, one.F)
		}
	case promql.Scalar:
		numbers = append(numbers, v.V)
	default:
		return nil, fmt.Errorf("gives a %s", r.Value.Type())
	}
	return slices.DeleteFunc(numbers, math.IsNaN), nil
}

func newEngine() *promql.Engine {
	return promql.NewEngine(promql.EngineOpts{MaxSamples: 1e7, Timeout: time.Minute, LookbackDelta: time.Minute})
}

// threeNodes starts a cluster of what this tree builds.
func threeNodes(t *testing.T) *cluster.Cluster {
	t.Helper()
	binary := os.Getenv(cluster.BinaryEnv)
	if binary == "" {
		binary = filepath.Join(t.TempDir(), "warren")
		build := exec.CommandContext(t.Context(), "go", "build", "-o", binary, "./cmd/node")
		build.Dir = filepath.Join(root, "..", "..")
		build.Env = append(os.Environ(), "CGO_ENABLED=0") // as make build does: it is compiled once for all
		if out, err := build.CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	c, err := cluster.Start(t.Context(), cluster.Config{Nodes: 3, Binary: binary, Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	return c
}

// clients is a client at each node: it publishes with confirms, consumes, rejects, gets, lets expire, and publishes to nowhere.
type clients struct {
	t    *testing.T
	ch   []*amqp.Channel
	turn int
}

func newClients(t *testing.T, c *cluster.Cluster) *clients {
	t.Helper()
	l := &clients{t: t}
	for _, url := range c.URLs() {
		conn, err := amqp.Dial(url)
		l.check(err)
		t.Cleanup(func() { _ = conn.Close() }) // the cluster may be gone first
		ch, err := conn.Channel()
		l.check(err)
		l.check(ch.Confirm(false))
		l.ch = append(l.ch, ch)
	}
	ch := l.ch[0]
	for name, args := range map[string]amqp.Table{
		"work": {"x-queue-type": "quorum", "x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"},
		"wait": {"x-queue-type": "quorum", "x-message-ttl": 10, "x-dead-letter-exchange": "", "x-dead-letter-routing-key": "work"},
		// What dies here goes nowhere: its target is full and says so.
		"stuck":  {"x-queue-type": "quorum", "x-message-ttl": 10, "x-dead-letter-exchange": "", "x-dead-letter-routing-key": "narrow", "x-dead-letter-strategy": "at-least-once", "x-overflow": "reject-publish"},
		"narrow": {"x-queue-type": "quorum", "x-max-length": 1, "x-overflow": "reject-publish"},
		"dead":   {"x-queue-type": "quorum"}, "lost": {"x-message-ttl": 10, "x-dead-letter-exchange": "no such"}, "auto": {}, "got": {},
		"full": {"x-max-length": 1, "x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"},
	} {
		_, err := ch.QueueDeclare(name, true, false, false, false, args)
		l.check(err)
	}
	for i, ch := range l.ch {
		work, err := ch.Consume("work", "", false, false, false, false, nil)
		l.check(err)
		auto, err := ch.Consume("auto", "", true, false, false, false, nil)
		l.check(err)
		go func() { // ends with its connection
			for d := range auto {
				_ = d // taken by delivery
			}
		}()
		go func() { // ends with its connection
			for d := range work {
				if d.DeliveryTag%3 == uint64(i) {
					_ = d.Reject(d.DeliveryTag%2 == 0) // the connection may have ended
				} else {
					_ = d.Ack(false)
				}
			}
		}()
	}
	return l
}

func (l *clients) check(err error) {
	l.t.Helper()
	if err != nil {
		l.t.Fatal(err)
	}
}

// burst sends some messages through each node.
func (l *clients) burst() {
	for _, ch := range l.ch {
		for _, queue := range []string{"work", "wait", "lost", "auto", "got", "full", "full", "work", "stuck", "no queue"} {
			l.turn++
			done, err := ch.PublishWithDeferredConfirm("", queue, queue == "no queue" && l.turn%2 == 0, false, amqp.Publishing{Body: []byte(strings.Repeat("x", 100))})
			l.check(err)
			if !done.Wait() {
				l.t.Fatalf("a message to %s was refused", queue)
			}
		}
		_, _, err := ch.Get("dead", l.turn%2 == 0)
		l.check(err)
		for range 2 { // the second finds nothing
			_, _, err = ch.Get("got", true)
			l.check(err)
		}
		other, err := ch.QueueDeclare("", false, true, true, false, nil)
		l.check(err)
		_, err = ch.QueueDelete(other.Name, false, false, false)
		l.check(err)
	}
}

// selectors are the parts of an expression that name metrics.
func selectors(expr parser.Expr) (list []*parser.VectorSelector) {
	parser.Inspect(expr, func(n parser.Node, _ []parser.Node) error {
		if s, ok := n.(*parser.VectorSelector); ok {
			list = append(list, s)
		}
		return nil
	})
	return list
}

// unknown says which names of metrics and labels in an expression nodes do not have. seen are those that were scraped with their labels, rare are names
// that exist and were not there.
func unknown(expr parser.Expr, seen map[string][]string, rare func(name string) bool) (problems []string) {
	var known []string
	for _, s := range selectors(expr) {
		has, ok := seen[s.Name]
		if !ok {
			if !rare(s.Name) {
				problems = append(problems, "no node has "+s.Name)
			}
			return problems // nothing is known of its labels
		}
		known = append(known, has...)
		for _, m := range s.LabelMatchers {
			if m.Name != labels.MetricName && !slices.Contains(has, m.Name) {
				problems = append(problems, fmt.Sprintf("%s has no label %s", s.Name, m.Name))
			}
		}
	}
	parser.Inspect(expr, func(n parser.Node, _ []parser.Node) error {
		var by []string
		switch n := n.(type) {
		case *parser.AggregateExpr:
			by = n.Grouping
		case *parser.BinaryExpr:
			if n.VectorMatching != nil {
				by = n.VectorMatching.MatchingLabels
			}
		}
		for _, label := range by {
			if !slices.Contains(known, label) {
				problems = append(problems, "nothing has the label "+label)
			}
		}
		return nil
	})
	return problems
}
