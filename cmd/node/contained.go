package main

import (
	"net/http"
	"time"

	"github.com/warrenmq/warren/contain"
)

// core is the code that what a node guarantees rests on: no panic may have passed through it and the node go on. Everything else is routing, protocols, and what
// the broker keeps of one client.
var core = []string{
	"fsm.", "queue.", "queue/", "store.", "store/", "dlx.", "dlx/", "catalog.", "cluster/group.", "transport.",
	"broker.(*stream).", "broker.(*hub).", "broker.(*queues).", "broker.(*hosted).", // sequences of operations, and the replicas
}

// lockPatience is how long a lock may be held: longer than the longest wait for a socket or the catalog.
const lockPatience = 2 * time.Minute

// openGuard makes what contains faults of this program that one client meets.
func (n *running) openGuard() {
	n.guard = contain.New(contain.Config{
		Logger: n.log, Module: "github.com/warrenmq/warren/", Core: core, Pass: []error{http.ErrAbortHandler}, Patience: lockPatience,
	})
	n.onClose("guard", func() error {
		n.guard.Close()
		return nil
	})
}

// contained ends a request that meets a fault of this program, and its connection, as net/http would.
func (n *running) contained(next http.Handler) http.Handler {
	const work = "http"
	abort := func() { panic(http.ErrAbortHandler) }
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet || r.Method == http.MethodHead {
			defer n.guard.KeepReading(work, abort)
		} else {
			defer n.guard.Keep(work, "", abort)
		}
		next.ServeHTTP(w, r)
	})
}
