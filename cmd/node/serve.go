package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"time"

	"github.com/warrenmq/warren/config"
)

// timeoutShutdown bounds the clean stop of the HTTP server.
const timeoutShutdown = 5 * time.Second

// run serves health checks on cfg.HTTPAddr until ctx ends.
//
// The parts of the broker are not constructed here yet: /readyz says so.
func run(ctx context.Context, cfg config.Config, log *slog.Logger) error {
	if err := os.MkdirAll(cfg.DataDir, 0o750); err != nil {
		return fmt.Errorf("data folder: %w", err)
	}
	listener, err := net.Listen("tcp", cfg.HTTPAddr)
	if err != nil {
		return fmt.Errorf("http listener: %w", err)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, "no broker in this build", http.StatusServiceUnavailable)
	})
	server := &http.Server{Handler: mux, ReadHeaderTimeout: timeoutShutdown}
	stop := context.AfterFunc(ctx, func() {
		end, cancel := context.WithTimeout(context.Background(), timeoutShutdown)
		defer cancel()
		if err := server.Shutdown(end); err != nil {
			log.Warn("http server did not stop in time", "err", err)
		}
	})
	defer stop()
	log.Info("listening", "http", listener.Addr().String())
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("http server: %w", err)
	}
	return nil
}
