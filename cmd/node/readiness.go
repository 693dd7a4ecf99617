package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"time"
)

// Bounds of what readiness and liveness allow.
const (
	// catalogSilence is how long the catalog's leader may not have been heard.
	catalogSilence = 3 * time.Second
	// diskSilence is how long a write of the log may be under way before clients are sent elsewhere, diskStuck
	// before the process is better started again.
	diskSilence, diskStuck = 3 * time.Second, time.Minute
	// behindEntries is how many entries a replica may miss without being counted as behind in the metrics.
	behindEntries = 64
	// gateLeaderless is how long after its start the node waits for the leaders of its replicas to be known. One that
	// cannot be elected must not keep it away.
	gateLeaderless = 3 * time.Second
)

// readiness says whether clients are to be sent to this node, and if not, why. It is made of what this node knows by
// itself and of nothing that another node could keep from all at once, such as a queue without a leader.
type readiness struct {
	Status string `json:"status"` // ok or failed
	// Reason is for people, Step for programs: starting, draining, stopping, catalog, queue logs, catching up or disk.
	Reason string `json:"reason,omitempty"`
	Step   string `json:"step,omitempty"`
}

// unreadySteps are all steps that there are.
var unreadySteps = []string{"starting", "draining", "stopping", "catalog", "queue logs", "catching up", "disk"}

func notReady(step, format string, args ...any) readiness {
	return readiness{Status: "failed", Reason: fmt.Sprintf(format, args...), Step: step}
}

// readiness looks at everything once; it does not wait.
func (n *running) readiness() readiness {
	switch p := phase(n.phase.Load()); {
	case n.successions.renewed.Load(): // what there is belongs to a former life
		return notReady("starting", "starting: the node begins anew")
	case p == stopping:
		return notReady("stopping", "the node is being stopped")
	case p == draining || p == drained:
		return notReady("draining", "the node is %s", p)
	case p == starting || !n.ready.Load():
		return notReady("starting", "starting: %s", *n.starting.Load())
	}
	// Before the catalog, which usually has the same disk and hears nothing while it hangs.
	if late := n.store.SyncOutstanding(); late > diskSilence {
		return notReady("disk", "the disk has not answered for %v", late.Round(100*time.Millisecond))
	}
	cat := n.catalog.Load()
	switch silent := cat.Unheard(); {
	case cat.LeaderID() == "":
		return notReady("catalog", "the catalog has no leader")
	case silent > catalogSilence:
		return notReady("catalog", "the catalog's leader has not been heard for %v", silent.Round(100*time.Millisecond))
	case !cat.Ready():
		return notReady("catalog", "the copy of the catalog has not caught up")
	}
	if !n.broker.Hosting() {
		open, all := n.broker.Opening()
		return notReady("queue logs", "starting: queue logs %d of %d", open, all)
	}
	if !n.caughtUp.Load() {
		return notReady("catching up", "starting: %d queues have more to catch up with, of %d the leader is not known",
			n.lag.Load().Behind+n.lag.Load().Unreached, n.lag.Load().Leaderless)
	}
	return readiness{Status: "ok"}
}

// awaitLogs waits, after the start of the node, until its replicas have what their leaders have, for
// Config.ReadyCatchUpMax at most: until then the next node should not be stopped, whoever restarts them one by one. Later the
// lag of a replica keeps no client away.
func (n *running) awaitLogs(ctx context.Context) {
	begun := time.Now()
	var opened time.Time
	wait, chase := 10*time.Millisecond, n.host.Chase()
	for time.Since(begun) < n.cfg.ReadyCatchUpMax {
		if n.broker.Hosting() {
			if opened.IsZero() {
				opened = time.Now()
			}
			ask, cancel := context.WithTimeout(ctx, time.Second)
			lag := chase.Look(ask)
			cancel()
			n.lag.Store(&lag)
			if lag.Behind+lag.Unreached == 0 && (lag.Leaderless == 0 || time.Since(opened) > gateLeaderless) {
				break
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait):
		}
		wait = min(2*wait, 200*time.Millisecond)
	}
	if lag := n.lag.Load(); lag.Behind+lag.Unreached > 0 || !n.broker.Hosting() {
		n.log.Warn("replicas are still behind, but the node has waited long enough", "queues", lag.Behind+lag.Unreached)
	}
	n.caughtUp.Store(true)
	n.log.Info("caught up", "after", time.Since(begun))
}

// serveReady answers /readyz: the first line says it in words, the second one is JSON, which alone comes to who accepts that.
func (n *running) serveReady(w http.ResponseWriter, r *http.Request) {
	state := n.readiness()
	status, text := http.StatusOK, "ready"
	if state.Status != "ok" {
		status, text = http.StatusServiceUnavailable, state.Reason
	}
	body, err := json.Marshal(state)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	kind, content := "text/plain; charset=utf-8", text+"\n"+string(body)+"\n"
	if strings.Contains(r.Header.Get("Accept"), "application/json") {
		kind, content = "application/json", string(body)
	}
	w.Header().Set("Content-Type", kind)
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_, _ = w.Write([]byte(content)) // whoever asked has gone
}

// serveAlive answers /healthz: whether this process should go on. The cluster has no say in it.
func (n *running) serveAlive(w http.ResponseWriter, _ *http.Request) {
	if late := n.store.SyncOutstanding(); late > diskStuck {
		http.Error(w, fmt.Sprintf("a write to the log has been under way for %v", late.Round(time.Second)), http.StatusServiceUnavailable)
		return
	}
	fmt.Fprintln(w, "ok")
}
