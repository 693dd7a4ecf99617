package load

import (
	"slices"
	"time"
)

// scraped is what reading a node's metrics costs.
type scraped struct {
	Path  string  `json:"path"`
	P50MS float64 `json:"p50_ms"`
	MaxMS float64 `json:"max_ms"`
	CPUMS float64 `json:"cpu_ms"` // of the server, for one reading
	KiB   float64 `json:"kib"`
}

// scrapePaths are read one after the other.
var scrapePaths = []string{
	"/metrics", "/metrics/per-object",
	"/metrics/detailed?family=queue_coarse_metrics&family=queue_metrics&family=queue_consumer_count&family=warren_outbox",
}

// scrape reads the metrics of each node n times.
func (r *run) scrape(n int) error {
	for _, path := range scrapePaths {
		var times []time.Duration
		bytes := 0
		before := r.servers.usage()
		for range n {
			for _, node := range r.servers.cluster.Nodes() {
				began := time.Now()
				text, err := node.Fetch(r.ctx, path)
				if err != nil {
					return err
				}
				times = append(times, time.Since(began))
				bytes += len(text)
			}
		}
		cpu := r.servers.usage().cpu - before.cpu
		slices.Sort(times)
		count := float64(len(times))
		r.result.Scrapes = append(r.result.Scrapes, scraped{
			Path: path, P50MS: millis(times[len(times)/2]), MaxMS: millis(times[len(times)-1]), CPUMS: millis(cpu) / count, KiB: float64(bytes) / count / 1024,
		})
	}
	return nil
}
