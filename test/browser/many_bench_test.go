package browser

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

const (
	manyQueues  = 10_000
	boundQueues = 1_000 // bound to one exchange
	openFor     = 20 * time.Second
)

// views are pages of the application with what they show when they are there; each is opened from another page.
var views = []struct{ name, hash, there string }{
	{"overview", "#/", `document.querySelectorAll("tbody tr").length >= 3`},
	{"queues", "#/queues", rowsAtLeast(50)},
	{"queues by messages", "#/queues?sort=messages&desc=1", rowsAtLeast(50)},
	{"queues by a name", "#/queues?name=queue%20077", rowsAtLeast(50)},
	{"queues, the last page", "#/queues?page=200", rowsAtLeast(50)},
	{"a queue", "#/queues/%2F/queue%2004711", `document.querySelector("h1")?.innerText === "queue 04711" && document.querySelector(".figure")`},
	{"dead letters", "#/dead-letters", `document.querySelector("h1")?.innerText.includes("Dead letters") && document.querySelector("main table, main .empty")`},
	{"the default exchange", "#/exchanges/%2F/amq.default", `document.body.innerText.includes("Every queue is bound")`},
	{"an exchange with a thousand bindings", "#/exchanges/%2F/many", rowsAtLeast(50)},
	{"topology", "#/topology", `document.querySelector("main svg, main .notice")`},
	{"Raft", "#/raft", rowsAtLeast(25)},
}

func rowsAtLeast(n int) string {
	return fmt.Sprintf(`document.querySelectorAll("main tbody tr").length >= %d`, n)
}

// BenchmarkManyQueues looks at ten thousand replicated queues with a browser: how long each page takes until it shows what it is for, for how long
// it holds up the browser at a time (0: never for 50 ms), and what it reads in twenty seconds (-benchtime 1x; -v shows the table; six minutes). What a page costs the nodes is in
// BenchmarkQueueList.
func BenchmarkManyQueues(b *testing.B) {
	r, err := start()
	if err != nil {
		b.Fatal(err)
	}
	r.many(b)
	p := open(b)
	p.login("guest", "guest")
	p.shows("Log out")
	p.run(`performance.setResourceTimingBufferSize(10000); window.longest = 0;
		new PerformanceObserver((l) => { for (const e of l.getEntries()) window.longest = Math.max(window.longest, e.duration); }).observe({ type: "longtask" })`)
	for b.Loop() {
		worst := 0.0
		for _, v := range views {
			p.visit("#/admin/feature-flags")
			p.await("another page", `document.querySelector("h1")?.innerText === "Feature flags"`)
			p.run(`performance.clearResourceTimings(); window.longest = 0`)
			took := eval[float64](p, `(async () => { const began = performance.now(); location.hash = `+quote(v.hash)+`;
				await new Promise((f) => setTimeout(f, 0));
				while (!(`+v.there+`)) { if (performance.now() - began > 30000) return -1; await new Promise((f) => setTimeout(f, 5)); }
				return performance.now() - began; })()`)
			time.Sleep(openFor)
			read := eval[struct{ N, KiB, Max float64 }](p, `(() => { const l = performance.getEntriesByType("resource").filter((e) => e.name.includes("/api/") && !e.name.includes("events"));
				return { N: l.length, KiB: l.reduce((s, e) => s + e.decodedBodySize, 0) / 1024, Max: Math.max(0, ...l.map((e) => e.duration)) }; })()`)
			b.Logf("%-38s there after %5.0f ms; longest task %4.0f ms; %3.0f requests, the slowest %4.0f ms, %7.0f KiB",
				v.name, took, eval[float64](p, "window.longest"), read.N, read.Max, read.KiB)
			if took < 0 {
				b.Errorf("%s is not there after 30 s", v.name)
			}
			worst = max(worst, took)
		}
		b.ReportMetric(worst, "ms/worst")
	}
}

// many makes the queues. A tenth of them get a message, a tenth are bound to an exchange.
func (r *rig) many(b *testing.B) {
	var group sync.WaitGroup
	const workers = 24
	conn, err := amqp.Dial(r.cluster.Node(0).URL())
	if err != nil {
		b.Fatal(err)
	}
	defer conn.Close()
	ch, err := conn.Channel()
	if err == nil {
		err = ch.ExchangeDeclare("many", "direct", true, false, false, false, nil)
	}
	if err != nil {
		b.Fatal(err)
	}
	for w := range workers {
		group.Go(func() {
			if err := r.some(b.Context(), w, workers); err != nil {
				b.Error(err)
			}
		})
	}
	group.Wait()
	time.Sleep(openFor) // leaders settle, snapshots are taken
}

// some makes every so manyth queue.
func (r *rig) some(ctx context.Context, first, step int) error {
	conn, err := amqp.Dial(r.cluster.Node(first % 3).URL())
	if err != nil {
		return err
	}
	defer conn.Close()
	ch, err := conn.Channel()
	for i := first; i < manyQueues && err == nil; i += step {
		name := fmt.Sprintf("queue %05d", i)
		if _, err = ch.QueueDeclare(name, true, false, false, false, amqp.Table{"x-queue-type": "quorum"}); err != nil {
			break
		}
		if i%10 == 0 {
			err = ch.PublishWithContext(ctx, "", name, false, false, amqp.Publishing{Body: []byte(name)})
		}
		if i < boundQueues && err == nil {
			err = ch.QueueBind(name, name, "many", false, nil)
		}
	}
	return err
}
