package main

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/pprof"
	"slices"
	"time"

	"github.com/warrenmq/warren/management"
	"github.com/warrenmq/warren/web"
)

// timeoutHTTP bounds reading a request's head and the clean stop.
const timeoutHTTP = 5 * time.Second

// serveHTTP serves health checks from early on, and what tests and operators
// look at, and the management API once the node is ready.
func (n *running) serveHTTP(context.Context) error {
	mux := http.NewServeMux()
	n.serveProbes(mux)
	if n.listeners.debug == nil {
		n.serveDebug(mux, localOnly)
	}
	n.serveFailpoints(mux)
	page, err := web.Handler()
	if err != nil {
		return err
	}
	mux.Handle("/", page)
	mux.HandleFunc("/api/", n.serveManagement)
	mux.HandleFunc("POST /api/warren/recovery/cluster", func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, "only on the node's control socket: warren ctl --local recover_cluster", http.StatusForbidden)
	})
	n.serveOn("http", mux, n.listeners.http, nil)
	if n.listeners.https != nil {
		n.serveOn("https", mux, n.listeners.https, n.clientTLS.ServerConfig(n.clientAuth(), "http/1.1"))
	}
	if n.listeners.health != nil {
		probes := http.NewServeMux()
		n.serveProbes(probes)
		n.serveOn("health", probes, n.listeners.health, nil)
	}
	if n.listeners.metrics != nil {
		figures := http.NewServeMux()
		n.serveMetrics(figures)
		n.serveOn("metrics", figures, n.listeners.metrics, nil)
	}
	if n.listeners.debug != nil {
		if addr := n.listeners.debug.Addr().String(); !localAddr(addr) {
			n.log.Warn("profiles can be read by whoever reaches their address", "debug", addr)
		}
		debug := http.NewServeMux()
		n.serveDebug(debug, func(h http.HandlerFunc) http.HandlerFunc { return h })
		n.serveOn("debug", debug, n.listeners.debug, nil)
	}
	if err := n.serveControl(); err != nil {
		return fmt.Errorf("control socket: %w", err)
	}
	return nil
}

// serveDebug adds what tests and operators look at. guard is put before what is not for everybody.
func (n *running) serveDebug(mux *http.ServeMux, guard func(http.HandlerFunc) http.HandlerFunc) {
	mux.Handle("GET /debug/queues", inTurn(inTime(http.HandlerFunc(n.serveQueues), openAnswers), openAnswersMax, timeoutOpenAnswer))
	mux.HandleFunc("GET /debug/pprof/", guard(pprof.Index))
	mux.HandleFunc("GET /debug/pprof/profile", guard(pprof.Profile))
	mux.HandleFunc("GET /debug/pprof/trace", guard(pprof.Trace))
	mux.HandleFunc("GET /debug/pprof/block", guard(blockProfile().ServeHTTP))
	mux.HandleFunc("GET /debug/pprof/mutex", guard(mutexProfile().ServeHTTP))
}

// serveQueues describes all queues.
func (n *running) serveQueues(w http.ResponseWriter, r *http.Request) {
	if !n.ready.Load() {
		http.Error(w, errNotReady.Error(), http.StatusServiceUnavailable)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	if err := json.NewEncoder(w).Encode(n.broker.Queues(r.Context())); err != nil {
		n.log.Debug("answer not written", "err", err)
	}
}

// serveProbes adds health checks, which ask for no login, and figures.
func (n *running) serveProbes(mux *http.ServeMux) {
	mux.HandleFunc("GET /healthz", n.serveAlive)
	mux.HandleFunc("GET /readyz", n.serveReady)
	n.serveMetrics(mux)
}

// serveOn serves HTTP on ln until the node is closed, over TLS if secure is not nil. Each listener has a server of its own: net/http sets one up in Serve, which is
// not for two at a time.
func (n *running) serveOn(name string, mux *http.ServeMux, ln net.Listener, secure *tls.Config) {
	ln = newHTTPConns(ln, sharesOf(openFilesMax(), fileShares{http: httpConnectionsMax}).http)
	if secure != nil {
		ln = tls.NewListener(ln, secure)
	}
	server := &http.Server{
		Handler: n.contained(timedBody(direct(mux), timeoutHTTPBody)), ReadHeaderTimeout: timeoutHTTP, IdleTimeout: timeoutHTTPIdle,
		MaxHeaderBytes: httpHeadMax, ConnState: httpConnState,
		ErrorLog: slog.NewLogLogger(n.log.Handler(), slog.LevelDebug), // what foreign clients do wrong
	}
	go func() {
		if err := server.Serve(ln); !errors.Is(err, http.ErrServerClosed) {
			n.failed <- fmt.Errorf("%s server: %w", name, err)
		}
	}()
	n.onClose(name, func() error {
		ctx, cancel := context.WithTimeout(context.Background(), timeoutHTTP)
		defer cancel()
		return server.Shutdown(ctx)
	})
}

// direct answers 404 where mux would send a client on to a cleaner path.
func direct(mux *http.ServeMux) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if management.Unclean(r) {
			http.NotFound(w, r)
			return
		}
		mux.ServeHTTP(w, r)
	})
}

// proxyHeaders are what proxies add to a request.
var proxyHeaders = []string{"Forwarded", "Via", "X-Forwarded-For", "X-Real-Ip"}

// localOnly refuses clients that are not on this machine, and what a proxy on this machine passes on: profiles tell too
// much, and cost too much, for anybody.
func localOnly(h http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		host, _, err := net.SplitHostPort(r.RemoteAddr)
		passed := slices.ContainsFunc(proxyHeaders, func(name string) bool { return r.Header.Get(name) != "" })
		if ip := net.ParseIP(host); err != nil || !ip.IsLoopback() || passed {
			http.Error(w, "only from this machine", http.StatusForbidden)
			return
		}
		h(w, r)
	}
}
