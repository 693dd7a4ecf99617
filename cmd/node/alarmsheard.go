package main

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/warrenmq/warren/cluster/detector"
	"github.com/warrenmq/warren/transport"
)

// alarmsPatience bounds how long clients wait for what the other nodes are short of: one that runs says so as soon as it is linked.
const (
	alarmsPatience = time.Second
	alarmsPoll     = 5 * time.Millisecond
)

// words is what a node that starts waits for before it has clients.
type words struct {
	others  func() []transport.NodeID
	heard   func(transport.NodeID) bool // it has said what it is short of, if of anything
	gone    func(transport.NodeID) bool // it certainly does not run
	tell    func()                      // says what this node is short of to who waits for that in its turn
	waiting func(why string)
	log     *slog.Logger
}

// awaitAlarms keeps clients away until the other nodes have said what they are short of. A node whose link comes up later, since it or the network is slow, is heard
// then: until that is so its alarms do not block publishers of this node.
func (n *running) awaitAlarms(ctx context.Context) error {
	a := n.alarms
	a.look()
	a.linked.Store(true)
	return words{
		others: func() []transport.NodeID { return slices.Collect(a.others()) },
		heard:  func(id transport.NodeID) bool { _, ok := a.heard.Load(id); return ok },
		gone: func(id transport.NodeID) bool {
			return n.mesh.Peer(id).Refused || n.detector.State(id) == detector.Dead
		},
		tell:    func() { a.tell(a.linked.Swap(false)) }, // a.run has not begun
		waiting: func(why string) { n.starting.Store(&why) },
		log:     n.log,
	}.await(ctx)
}

func (w words) await(ctx context.Context) error {
	for begun := time.Now(); ; {
		w.tell()
		var missing []string
		for _, id := range w.others() {
			if !w.heard(id) && !w.gone(id) {
				missing = append(missing, nodeName(id))
			}
		}
		waited := time.Since(begun)
		switch {
		case len(missing) == 0:
			return nil
		case waited > alarmsPatience:
			w.log.Info("clients are let in before all nodes have said whether they are short of memory or disk", "missing", missing, "after", waited)
			return nil
		}
		w.waiting("waiting to hear of the alarms of " + strings.Join(missing, ", "))
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(alarmsPoll):
		}
	}
}
