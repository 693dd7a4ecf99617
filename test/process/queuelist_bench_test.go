package process

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/warrenmq/warren/test/cluster"
)

// listedQueues is how many queues the rig has, each with three replicas.
const listedQueues = 10_000

// sortedBy are the columns of the management page, and what the list of queues is without any.
var sortedBy = []string{
	"", "name", "vhost", "type", "state", "policy", "messages_ready", "messages_unacknowledged", "messages", "messages_dlx",
	"message_stats.publish_details.rate", "message_stats.deliver_get_details.rate", "message_stats.ack_details.rate",
	"consumers", "leader", "messages_delayed", "messages_parked",
}

// BenchmarkQueueList measures what the management API costs on three nodes with ten thousand replicated queues: the time of a page of a hundred
// sorted by each column, the nodes' processor time at rest and while a page is open, and what a scrape of every object takes
// (-benchtime 1x, four minutes; -v shows the tables; with WARREN_PROFILES=folder profiles of the first node are written there).
func BenchmarkQueueList(b *testing.B) {
	r := newListRig(b)
	r.declare()
	time.Sleep(20 * time.Second) // leaders settle, snapshots are taken
	for b.Loop() {
		r.columns()
		idle, open := r.openPage()
		b.ReportMetric(100*idle, "%core-idle")
		b.ReportMetric(100*(open-idle), "%core-page")
		r.scrapes()
	}
}

// listRig is a cluster with many queues.
type listRig struct {
	b      *testing.B
	c      *cluster.Cluster
	client http.Client
}

func newListRig(b *testing.B) *listRig {
	binary, err := shared.binary()
	if err != nil {
		b.Fatal(err)
	}
	c, err := cluster.New(cluster.Config{Nodes: 3, Binary: binary, Dir: b.TempDir()})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = c.Close() })
	if err := c.StartAll(b.Context()); err != nil {
		b.Fatal(err)
	}
	return &listRig{b: b, c: c, client: http.Client{Timeout: 30 * time.Second}}
}

// declare makes the queues. A tenth of them get a message.
func (r *listRig) declare() {
	began := time.Now()
	var wg sync.WaitGroup
	for w := range 24 {
		wg.Go(func() {
			conn, err := amqp.Dial(r.c.Node(w % 3).URL())
			if err != nil {
				r.b.Error(err)
				return
			}
			defer conn.Close()
			ch, err := conn.Channel()
			for i := w; i < listedQueues && err == nil; i += 24 {
				name := fmt.Sprintf("queue %05d", i)
				if _, err = ch.QueueDeclare(name, true, false, false, false, amqp.Table{"x-queue-type": "quorum"}); err == nil && i%10 == 0 {
					err = ch.PublishWithContext(r.b.Context(), "", name, false, false, amqp.Publishing{Body: []byte(name)})
				}
			}
			if err != nil {
				r.b.Error(err)
			}
		})
	}
	wg.Wait()
	r.b.Logf("declared in %s; %s", time.Since(began).Round(time.Second), loadNow())
}

// get reads a whole answer of the first node and tells how many bytes it has.
func (r *listRig) get(ctx context.Context, path string) (took time.Duration, bytes int64) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, r.c.Node(0).HTTP()+path, http.NoBody)
	if err != nil {
		r.b.Fatal(err)
	}
	req.SetBasicAuth("guest", "guest")
	began := time.Now()
	resp, err := r.client.Do(req)
	if err != nil {
		r.b.Errorf("%s: %v", path, err)
		return time.Since(began), 0
	}
	defer resp.Body.Close()
	bytes, err = io.Copy(io.Discard, resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		r.b.Errorf("%s: %s %v", path, resp.Status, err)
	}
	return time.Since(began), bytes
}

// cpu is the processor time of each node so far.
func (r *listRig) cpu() (list [3]time.Duration) {
	for i, n := range r.c.Nodes() {
		used, err := n.CPU()
		if err != nil {
			r.b.Fatal(err)
		}
		list[i] = used
	}
	return list
}

// columns asks for a page sorted by each column in turn.
func (r *listRig) columns() {
	r.b.Logf("sorted pages; %s", loadNow())
	took := map[string][]time.Duration{}
	var all []time.Duration
	for range 60 {
		for _, s := range sortedBy {
			time.Sleep(20 * time.Millisecond)
			d, _ := r.get(r.b.Context(), "/api/queues?page=3&page_size=100&sort_reverse=true&sort="+s)
			took[s], all = append(took[s], d), append(all, d)
		}
	}
	for _, s := range sortedBy {
		r.b.Logf("%-40s %s", s, spread(took[s]))
	}
	r.b.Logf("%-40s %s; %s", "all", spread(all), loadNow())
	r.b.ReportMetric(ms(quantile(all, 50)), "ms/p50")
	r.b.ReportMetric(ms(quantile(all, 99)), "ms/p99")
	r.b.ReportMetric(ms(quantile(all, 100)), "ms/max")
}

// openPage returns the share of a core that the nodes take at rest, and while the page of queues is open on the first one.
func (r *listRig) openPage() (idle, open float64) {
	const period = 30 * time.Second
	measure := func(what string, f func(ctx context.Context)) float64 {
		ctx, cancel := context.WithTimeout(r.b.Context(), period)
		defer cancel()
		before := r.cpu()
		var wg sync.WaitGroup
		wg.Go(func() { r.profile(what, period) })
		f(ctx)
		<-ctx.Done()
		var sum time.Duration
		text := ""
		for i, c := range r.cpu() {
			sum += c - before[i]
			text += fmt.Sprintf(" %.1f", 100*(c-before[i]).Seconds()/period.Seconds())
		}
		wg.Wait()
		r.b.Logf("%s: %% of a core by node:%s; %s", what, text, loadNow())
		return sum.Seconds() / period.Seconds()
	}
	rest := func(ctx context.Context) { <-ctx.Done() }
	idle = measure("at rest", rest)
	open = measure("with a page", func(ctx context.Context) {
		var wg sync.WaitGroup
		defer wg.Wait()
		wg.Go(func() { r.events(ctx) })
		r.get(ctx, "/api/vhosts")
		r.get(ctx, "/api/warren/cluster")
		for ctx.Err() == nil {
			r.get(r.b.Context(), "/api/queues?page=1&page_size=50&sort=name&pagination=true")
			select {
			case <-ctx.Done():
			case <-time.After(5 * time.Second):
			}
		}
	})
	idle = (idle + measure("at rest again", rest)) / 2 // what is left of the declarations' work becomes less
	return idle, open
}

// events reads the stream of events, as the page does.
func (r *listRig) events(ctx context.Context) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, r.c.Node(0).HTTP()+"/api/warren/events", http.NoBody)
	if err != nil {
		r.b.Error(err)
		return
	}
	req.SetBasicAuth("guest", "guest")
	resp, err := (&http.Client{}).Do(req)
	if err != nil {
		r.b.Error(err)
		return
	}
	defer resp.Body.Close()
	n := 0
	lines := bufio.NewScanner(resp.Body)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		if strings.HasPrefix(lines.Text(), "event: overview") {
			n++
		}
	}
	if err := lines.Err(); !errors.Is(err, context.DeadlineExceeded) {
		r.b.Errorf("the stream of events ended: %v", err)
	}
	r.b.Logf("%d overviews", n)
}

// scrapes reads the metrics of the first node.
func (r *listRig) scrapes() {
	for _, path := range []string{
		"/metrics", "/metrics/per-object", "/metrics/detailed?family=queue_coarse_metrics", "/metrics/detailed?family=queue_coarse_metrics&vhost=other",
	} {
		const times = 10
		var took []time.Duration
		var bytes int64
		before := r.cpu()
		for range times {
			d, n := r.get(r.b.Context(), path)
			took, bytes = append(took, d), n
		}
		used := r.cpu()[0] - before[0]
		r.b.Logf("%-60s %s, %d KiB, %d ms of processor time each", path, spread(took), bytes>>10, used.Milliseconds()/times)
	}
}

// profile writes where the first node's processor time goes, if that is wanted.
func (r *listRig) profile(what string, d time.Duration) {
	dir := os.Getenv("WARREN_PROFILES")
	if dir == "" {
		return
	}
	resp, err := (&http.Client{}).Get(fmt.Sprintf("%s/debug/pprof/profile?seconds=%d", r.c.Node(0).HTTP(), int(d.Seconds())))
	if err != nil {
		r.b.Error(err)
		return
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, strings.ReplaceAll(what, " ", "-")+".pprof"), raw, 0o644)
	}
	if err != nil {
		r.b.Error(err)
	}
}

func quantile(list []time.Duration, percent int) time.Duration {
	sorted := slices.Sorted(slices.Values(list))
	return sorted[min(len(sorted)-1, len(sorted)*percent/100)]
}

func ms(d time.Duration) float64 { return float64(d.Microseconds()) / 1e3 }

func spread(list []time.Duration) string {
	return fmt.Sprintf("p50 %6.1f  p99 %6.1f  max %6.1f ms", ms(quantile(list, 50)), ms(quantile(list, 99)), ms(quantile(list, 100)))
}

// load is how busy the machine is.
func loadNow() string {
	raw, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return err.Error()
	}
	return "load " + strings.TrimSpace(string(raw))
}
