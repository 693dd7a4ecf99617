package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/warrenmq/warren/catalog"
)

const (
	// belongEvery is the time between two questions whether this node still belongs to the cluster, asked while
	// it hears nothing of the catalog's leader for belongSilence.
	belongEvery   = 2 * time.Second
	belongSilence = 4 * time.Second
)

// watchBelonging ends the process when its storage was taken out of the cluster: it would wait for the others for ever, and clients with it. It may
// learn of that from the catalog; or the others have stopped to speak with it before it could.
func (n *running) watchBelonging(cat *catalog.Catalog) {
	ctx, cancel := context.WithCancel(context.Background())
	local := n.identity.NodeID()
	cat.Subscribe(func(_, now *catalog.View) {
		if now.Forgotten(local) {
			n.expel(catalog.ErrForgotten)
		}
	})
	var work sync.WaitGroup
	work.Go(func() {
		tick := time.NewTicker(belongEvery)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			if why := n.askFates(ctx); why != "" {
				n.expel(fmt.Errorf("%w: %s: the node needs an empty data folder", catalog.ErrForgotten, why))
				return
			}
			if cat.LeaderID() != "" && cat.Unheard() < belongSilence {
				continue
			}
			if err := cat.AskBelongs(ctx, n.gossipNodes()); err != nil {
				n.expel(err)
				return
			}
		}
	})
	n.onClose("belonging", func() error {
		cancel()
		work.Wait()
		return nil
	})
}

// expelled is why the node had to end or to begin anew, nil if it was only asked to end.
func expelled(ctx context.Context) error {
	if cause := context.Cause(ctx); errors.Is(cause, catalog.ErrForgotten) || errors.Is(cause, errRenewed) {
		return cause
	}
	return nil
}
