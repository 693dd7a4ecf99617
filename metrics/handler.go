package metrics

import (
	"bytes"
	"compress/gzip"
	"log/slog"
	"net/http"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/common/expfmt"
)

// inFlightMax bounds the requests that are answered at once; others get 503.
const inFlightMax = 4

// contentType is that of Prometheus' text format, the only one here: every Prometheus reads it.
const contentType = "text/plain; version=0.0.4; charset=utf-8"

// Handler answers GET /metrics, /metrics/per-object and /metrics/detailed.
func Handler(cfg Config, log *slog.Logger) http.Handler {
	process := prometheus.NewRegistry()
	process.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	h := &handler{process: process, log: log, busy: make(chan struct{}, inFlightMax)}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /metrics", h.answer(func(*http.Request) *request { return &request{cfg: &cfg, mode: aggregated} }))
	mux.HandleFunc("GET /metrics/per-object", h.answer(func(*http.Request) *request { return &request{cfg: &cfg, mode: perObject} }))
	mux.HandleFunc("GET /metrics/detailed", h.answer(func(r *http.Request) *request {
		q := r.URL.Query()
		// What names no family that is known gets nothing, as from RabbitMQ.
		return &request{cfg: &cfg, mode: detailed, families: q["family"], vhosts: q["vhost"]}
	}))
	return mux
}

type handler struct {
	process prometheus.Gatherer // Go's figures and the process'
	log     *slog.Logger
	busy    chan struct{}
}

// answer serves what is asked for. It is all there before the first byte goes out.
func (h *handler) answer(read func(*http.Request) *request) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		select {
		case h.busy <- struct{}{}:
			defer func() { <-h.busy }()
		default:
			http.Error(w, "too many requests for metrics at once", http.StatusServiceUnavailable)
			return
		}
		asked := read(r)
		text := asked.collect()
		if asked.mode != detailed {
			var err error
			if text, err = h.appendProcess(text); err != nil {
				h.log.Warn("metrics of the process", "err", err)
			}
		}
		w.Header().Set("Content-Type", contentType)
		w.Header().Set("Cache-Control", "no-store")
		if strings.Contains(r.Header.Get("Accept-Encoding"), "gzip") {
			w.Header().Set("Content-Encoding", "gzip")
			z, err := gzip.NewWriterLevel(w, gzip.BestSpeed)
			if err == nil {
				_, err = z.Write(text)
			}
			if err == nil {
				err = z.Close()
			}
			h.gone(err)
			return
		}
		_, err := w.Write(text)
		h.gone(err)
	}
}

// gone notes that whoever asked did not stay for the answer.
func (h *handler) gone(err error) {
	if err != nil {
		h.log.Debug("metrics not written", "err", err)
	}
}

// appendProcess adds Go's figures and the process'.
func (h *handler) appendProcess(dst []byte) ([]byte, error) {
	families, err := h.process.Gather()
	if err != nil {
		return dst, err
	}
	out := bytes.NewBuffer(dst)
	for _, f := range families {
		if _, err := expfmt.MetricFamilyToText(out, f); err != nil {
			return out.Bytes(), err
		}
	}
	return out.Bytes(), nil
}
