package process

import (
	"fmt"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/warrenmq/warren/test/cluster"
)

// BenchmarkQueueList measures what a page of a hundred of ten thousand replicated queues on three nodes costs, sorted by every sort of column: the
// time of an answer, and the nodes' processor time while one page is open that refreshes every five seconds (-benchtime 1x; two minutes).
func BenchmarkQueueList(b *testing.B) {
	const queues = 10_000
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
	var wg sync.WaitGroup
	for w := range 24 {
		wg.Go(func() {
			conn, err := amqp.Dial(c.Node(w % 3).URL())
			if err != nil {
				b.Error(err)
				return
			}
			defer conn.Close()
			ch, err := conn.Channel()
			for i := w; i < queues && err == nil; i += 24 {
				name := fmt.Sprintf("queue %05d", i)
				if _, err = ch.QueueDeclare(name, true, false, false, false, amqp.Table{"x-queue-type": "quorum"}); err == nil && i%10 == 0 {
					err = ch.PublishWithContext(b.Context(), "", name, false, false, amqp.Publishing{Body: []byte(name)})
				}
			}
			if err != nil {
				b.Error(err)
			}
		})
	}
	wg.Wait()
	client := http.Client{Timeout: 10 * time.Second}
	page := func(sort string) time.Duration {
		req, err := http.NewRequestWithContext(b.Context(), http.MethodGet, c.Node(0).HTTP()+"/api/queues?page=3&page_size=100&sort_reverse=true&sort="+sort, http.NoBody)
		if err != nil {
			b.Fatal(err)
		}
		req.SetBasicAuth("guest", "guest")
		began := time.Now()
		resp, err := client.Do(req)
		if err != nil {
			b.Fatal(err)
		}
		var buf [64 << 10]byte
		for err == nil {
			_, err = resp.Body.Read(buf[:])
		}
		resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			b.Fatal(resp.Status)
		}
		return time.Since(began)
	}
	cpu := func() (sum time.Duration) {
		for _, n := range c.Nodes() {
			used, err := n.CPU()
			if err != nil {
				b.Fatal(err)
			}
			sum += used
		}
		return sum
	}
	time.Sleep(20 * time.Second) // leaders settle, snapshots are taken
	const rest = 20 * time.Second
	sorts := []string{"name", "messages", "consumers", "message_stats.publish_details.rate", "leader", "policy", "state"}
	for b.Loop() {
		var took []time.Duration
		for range 15 {
			for _, s := range sorts {
				time.Sleep(20 * time.Millisecond)
				took = append(took, page(s))
			}
		}
		slices.Sort(took)
		before := cpu()
		time.Sleep(rest)
		idle := cpu() - before
		before = cpu()
		for range rest / (5 * time.Second) {
			page("messages")
			time.Sleep(5 * time.Second)
		}
		open := cpu() - before
		before = cpu()
		time.Sleep(rest)
		idle = (idle + cpu() - before) / 2 // what is left of the declarations' work becomes less
		b.ReportMetric(float64(took[len(took)/2].Microseconds())/1e3, "ms/p50")
		b.ReportMetric(float64(took[len(took)*99/100].Microseconds())/1e3, "ms/p99")
		b.ReportMetric(100*idle.Seconds()/rest.Seconds(), "%core-idle")
		b.ReportMetric(100*(open-idle).Seconds()/rest.Seconds(), "%core-page")
	}
}
