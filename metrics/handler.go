package metrics

import (
	"log/slog"
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// inFlightMax bounds the requests that are answered at once; others get 503.
const inFlightMax = 4

// Handler answers GET /metrics, /metrics/per-object and /metrics/detailed.
func Handler(cfg Config, log *slog.Logger) http.Handler {
	opts := promhttp.HandlerOpts{MaxRequestsInFlight: inFlightMax, ErrorLog: errorLog{log}}
	registry := func(m mode) http.Handler {
		r := prometheus.NewRegistry()
		r.MustRegister(
			&collector{cfg: &cfg, mode: m}, collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		)
		return promhttp.HandlerFor(r, opts)
	}
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", registry(aggregated))
	mux.Handle("GET /metrics/per-object", registry(perObject))
	mux.HandleFunc("GET /metrics/detailed", func(w http.ResponseWriter, r *http.Request) {
		q := r.URL.Query()
		reg := prometheus.NewRegistry()
		// What names no family that is known gets nothing, as from RabbitMQ.
		reg.MustRegister(&collector{cfg: &cfg, mode: detailed, families: q["family"], vhosts: q["vhost"]})
		promhttp.HandlerFor(reg, opts).ServeHTTP(w, r)
	})
	return mux
}

// errorLog gives promhttp's complaints to the node's log.
type errorLog struct{ log *slog.Logger }

func (l errorLog) Println(v ...any) { l.log.Warn("metrics", "err", v) }
