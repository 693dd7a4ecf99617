package detector

import (
	"context"
	"fmt"
	"sync"

	"github.com/warrenmq/warren/transport"
)

// Goodbye tells the nodes that are not dead that this process ends: they need not find out, or ask each other. It is for the moment
// after which this process does nothing for the cluster any more. It returns when all have answered or ctx ends; who did not hear it, or
// does not know the call, sees the links end as before.
func (d *Detector) Goodbye(ctx context.Context) {
	run := d.cfg.Net.Peer(d.cfg.Local).Process
	if run == 0 {
		return
	}
	d.mu.Lock()
	others := d.othersLocked(d.cfg.Local)
	d.mu.Unlock()
	var wg sync.WaitGroup
	for _, n := range others {
		wg.Go(func() {
			if _, err := d.cfg.Net.Call(ctx, n, MethodGoodbye, encodeGoodbye(run)); err != nil {
				d.cfg.Logger.Debug("a node was not told that this one ends", "node", n, "err", err)
			}
		})
	}
	wg.Wait()
}

// goodbye notes that a process ends. It counts for that run only: the call may come when the next one has begun.
func (d *Detector) goodbye(_ context.Context, from transport.NodeID, message []byte) ([]byte, error) {
	run, err := decodeGoodbye(message)
	if err != nil {
		return nil, fmt.Errorf("goodbye of %s: %w", from, err)
	}
	d.mu.Lock()
	if w, ok := d.peers[from]; ok {
		w.left = run
	}
	d.mu.Unlock()
	d.poke()
	return nil, nil
}
