package catalog

import (
	"context"
	"slices"
	"sync"
)

// waits wakes those who wait for the machine: for an index, for the outcome of a
// request, and subscribers. One mutex guards it; the machine's goroutine calls in after
// every entry and never waits here.
type waits struct {
	mu       sync.Mutex
	indexes  []indexWait
	requests map[requestID]chan *applied // each with room for one
	closed   chan struct{}
	dirty    chan struct{} // there is a newer view; capacity 1

	subMu       sync.Mutex // held while subscribers run
	subscribers []func(old, new *View)
	told        *View // the newest view subscribers have seen
}

type indexWait struct {
	index uint64
	done  chan struct{} // closed when the index is applied
}

func (w *waits) init() {
	w.requests = make(map[requestID]chan *applied)
	w.closed = make(chan struct{})
	w.dirty = make(chan struct{}, 1)
}

func (w *waits) close() { close(w.closed) }

// reached wakes those who wait for an index up to revision.
func (w *waits) reached(revision uint64) {
	w.mu.Lock()
	w.indexes = slices.DeleteFunc(w.indexes, func(i indexWait) bool {
		if i.index > revision {
			return false
		}
		close(i.done)
		return true
	})
	w.mu.Unlock()
	select {
	case w.dirty <- struct{}{}:
	default:
	}
}

// finished hands an outcome to the proposer that waits for it, if it is here.
func (w *waits) finished(a *applied) {
	w.mu.Lock()
	ch := w.requests[a.request]
	delete(w.requests, a.request)
	w.mu.Unlock()
	if ch != nil {
		ch <- a
	}
}

// pending returns the requests somebody waits for.
func (w *waits) pending() []requestID {
	w.mu.Lock()
	defer w.mu.Unlock()
	ids := make([]requestID, 0, len(w.requests))
	for id := range w.requests {
		ids = append(ids, id)
	}
	return ids
}

func (w *waits) expect(id requestID) <-chan *applied {
	ch := make(chan *applied, 1)
	w.mu.Lock()
	w.requests[id] = ch
	w.mu.Unlock()
	return ch
}

// expects tells whether the outcome of a request is still waited for.
func (w *waits) expects(id requestID) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	_, ok := w.requests[id]
	return ok
}

func (w *waits) forget(id requestID) {
	w.mu.Lock()
	delete(w.requests, id)
	w.mu.Unlock()
}

// onApplied is the machine's notify: on its goroutine, after each new view.
func (c *Catalog) onApplied(a *applied) {
	if a != nil {
		c.waits.finished(a)
	} else {
		// A snapshot jumped over entries: outcomes are in its request log.
		for _, id := range c.waits.pending() {
			if o, ok := c.machine.requests.byID[id]; ok {
				c.waits.finished(&applied{request: id, outcome: o})
			}
		}
	}
	c.waits.reached(c.View().Revision())
}

// WaitApplied waits until this replica has applied the entry at index, which must be the
// index of a command ([Result.Index]).
func (c *Catalog) WaitApplied(ctx context.Context, index uint64) error {
	if c.View().Revision() >= index {
		return nil
	}
	w := indexWait{index: index, done: make(chan struct{})}
	c.waits.mu.Lock()
	c.waits.indexes = append(c.waits.indexes, w)
	c.waits.mu.Unlock()
	if c.View().Revision() >= index {
		// It was applied before the wait was entered, so nobody may wake it.
		c.waits.dropIndex(w)
		return nil
	}
	select {
	case <-w.done:
		return nil
	case <-ctx.Done():
		c.waits.dropIndex(w)
		return ctx.Err()
	case <-c.waits.closed:
		return ErrClosed
	}
}

func (w *waits) dropIndex(i indexWait) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.indexes = slices.DeleteFunc(w.indexes, func(o indexWait) bool { return o.done == i.done })
}

// Subscribe calls f with the view now (old is nil) before it returns, and from then on
// after changes: in order, on one goroutine, with the view of the call before as
// old. Several revisions may come as one. f must not call Subscribe and should be quick;
// [View.QueuesChangedSince] tells what to look at.
func (c *Catalog) Subscribe(f func(old, new *View)) {
	w := &c.waits
	w.subMu.Lock()
	defer w.subMu.Unlock()
	if w.told == nil {
		w.told = c.View()
	}
	f(nil, w.told)
	w.subscribers = append(w.subscribers, f)
}

// tellSubscribers runs until close.
func (c *Catalog) tellSubscribers() {
	w := &c.waits
	for {
		select {
		case <-w.closed:
			return
		case <-w.dirty:
		}
		w.subMu.Lock()
		if v := c.View(); w.told != nil && v != w.told {
			for _, f := range w.subscribers {
				f(w.told, v)
			}
			w.told = v
		}
		w.subMu.Unlock()
	}
}
