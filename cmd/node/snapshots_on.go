//go:build failpoints

package main

import (
	"encoding/json"
	"net/http"
	"strconv"

	"github.com/warrenmq/warren/transport"
)

// snapshots takes a snapshot of the log of ?queue=…, its id, if it is asked by POST. It answers
// how many snapshots this process has received, and the newest entry and the newest applied
// one of the queue's log here.
func (n *running) snapshots(w http.ResponseWriter, r *http.Request) {
	if !n.ready.Load() {
		http.Error(w, errNotReady.Error(), http.StatusServiceUnavailable)
		return
	}
	id, err := strconv.ParseUint(r.FormValue("queue"), 10, 64)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	g, running := n.host.Group(transport.GroupID(id))
	if !running {
		http.Error(w, "no such queue here", http.StatusNotFound)
		return
	}
	if r.Method == http.MethodPost {
		if err := g.Snapshot(); err != nil {
			http.Error(w, err.Error(), http.StatusConflict)
			return
		}
	}
	stats := g.Stats()
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(map[string]uint64{ // the client is gone otherwise
		"received": n.mesh.Stats().SnapshotsReceived, "last": stats.Last, "applied": stats.Applied,
	})
}
