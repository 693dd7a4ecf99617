package catalog

import "context"

// latch is a mutex for what takes time, such as an answer of other nodes: who waits for it can give up.
type latch chan struct{}

func newLatch() latch { return make(latch, 1) }

// lock returns with the latch held, or with the error of ctx.
func (l latch) lock(ctx context.Context) error {
	select {
	case l <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (l latch) unlock() { <-l }
