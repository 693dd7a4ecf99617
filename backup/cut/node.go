package cut

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"sync"
	"time"
)

// Bounds of what a node keeps for a cut.
const (
	// limitMax bounds how long a gate is closed, and a confirmation takes.
	limitMax = time.Minute
	// keptFor is how long a node keeps what it has captured without hearing of it.
	keptFor = time.Minute
	// atOnce bounds the queues that are captured or opened at a time.
	atOnce = 8
)

// Gate is what moves between queues pass; see mover.Gate.
type Gate interface {
	Hold(holder string, until time.Time) error
	Release(holder string) (unbroken bool)
	HeldBy(holder string) bool
}

// State is the state of a queue at one moment; see broker.Captured. It is used by one goroutine at a time.
type State interface {
	Confirm(since, until time.Time, wait func(time.Duration) bool) error
	Open() (r io.ReadCloser, size int64, err error)
	Close()
}

// NodeConfig is what a Node is made of. All fields are required.
type NodeConfig struct {
	Gate Gate
	// Led lists what this node leads.
	Led func() []Queue
	// Capture takes the state of a queue that is led here in that term, and tells its index.
	Capture func(q Queue) (s State, index uint64, err error)
	Logger  *slog.Logger
}

// Node is a node's side of cuts. It keeps one at a time.
type Node struct {
	cfg NodeConfig

	mu     sync.Mutex // guards the rest
	kept   *kept
	closed bool
}

// kept is what a node keeps for one cut.
type kept struct {
	id    string
	timer *time.Timer // drops it

	// turn has a place for the call that works on the rest.
	turn   chan struct{}
	states map[uint64]*state
}

// state is one queue of a cut: captured, then perhaps open.
type state struct {
	queue  Queue
	index  uint64
	state  State
	open   io.ReadCloser // nil until it is open
	size   int64
	offset int64 // that was read
}

func (s *state) end() {
	s.state.Close()
	if s.open != nil {
		_ = s.open.Close() // nothing is written
	}
}

// NewNode returns a Node that keeps nothing. The caller ends it with Close.
func NewNode(cfg NodeConfig) *Node { return &Node{cfg: cfg} }

// Close drops what is kept.
func (n *Node) Close() {
	n.mu.Lock()
	n.closed = true
	k := n.kept
	n.mu.Unlock()
	if k != nil {
		n.drop(k)
	}
}

var (
	errBusy    = errors.New("another backup is under way")
	errNoCut   = errors.New("this node keeps nothing of that backup any more")
	errClosed  = errors.New("the node is stopping")
	errNotHeld = errors.New("moves of dead letters were not held all the time")
)

// Answer answers one call of Method.
func (n *Node) Answer(ctx context.Context, raw []byte) ([]byte, error) {
	r, err := decodeRequest(raw)
	if err != nil {
		return nil, err
	}
	if r.Do == doLed {
		return json.Marshal(answer{Led: n.cfg.Led()})
	}
	k, err := n.find(r)
	if err != nil {
		return nil, err
	}
	select {
	case k.turn <- struct{}{}:
		defer func() { <-k.turn }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if n.keeps() != k {
		return nil, errNoCut // it was dropped meanwhile
	}
	var a answer
	switch r.Do {
	case doHold:
		if err = n.cfg.Gate.Hold(k.id, time.Now().Add(time.Duration(r.LimitMS)*time.Millisecond)); err == nil {
			a.Led = n.cfg.Led() // from here on: whoever leads does so with the gate closed
		}
	case doCapture:
		a.Failed, err = n.capture(ctx, k, r)
	case doRelease:
		a.Unbroken = n.cfg.Gate.Release(k.id)
	case doConfirm:
		a.Opened, a.Failed, err = n.confirm(ctx, k, r)
	case doTouch:
	case doRead:
		return k.read(r.Queue, r.Offset)
	case doDrop:
		if n.forget(k) {
			k.clear()
		}
	default:
		err = fmt.Errorf("unknown request %.20q", string(r.Do))
	}
	if err != nil {
		return nil, err
	}
	return json.Marshal(a)
}

func (n *Node) keeps() *kept {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.kept
}

// find returns what is kept of the request's cut, which begins with a hold.
func (n *Node) find(r *request) (*kept, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	k := n.kept
	switch {
	case n.closed:
		return nil, errClosed
	case k != nil && k.id == r.ID:
		k.timer.Reset(keptFor)
		return k, nil
	case r.Do != doHold:
		return nil, errNoCut
	case k != nil:
		return nil, fmt.Errorf("%w (%s)", errBusy, k.id)
	}
	k = &kept{id: r.ID, turn: make(chan struct{}, 1), states: map[uint64]*state{}}
	k.timer = time.AfterFunc(keptFor, func() {
		n.cfg.Logger.Warn("nobody asks for a backup any more, what was kept for it is dropped", "backup", k.id)
		n.drop(k)
	})
	n.kept = k
	return k, nil
}

// drop ends a cut, behind the call that works on it.
func (n *Node) drop(k *kept) {
	if !n.forget(k) {
		return
	}
	k.turn <- struct{}{}
	defer func() { <-k.turn }()
	k.clear()
}

// forget keeps other calls from finding a cut, and opens the gate.
func (n *Node) forget(k *kept) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.kept != k {
		return false
	}
	n.kept = nil
	k.timer.Stop()
	n.cfg.Gate.Release(k.id)
	return true
}

// clear ends all states, in the caller's turn.
func (k *kept) clear() {
	for id := range k.states {
		k.end(id)
	}
}

// capture takes states, all or none unless the request says Each.
func (n *Node) capture(ctx context.Context, k *kept, r *request) ([]Failed, error) {
	if !n.cfg.Gate.HeldBy(k.id) {
		return nil, errNotHeld
	}
	all := make([]*state, len(r.Queues))
	failed := failures{each: r.Each}
	err := each(ctx, len(r.Queues), func(i int) error {
		s, index, err := n.cfg.Capture(r.Queues[i])
		if err == nil {
			all[i] = &state{queue: r.Queues[i], index: index, state: s}
		}
		return failed.note(r.Queues[i].ID, err)
	})
	for _, s := range all {
		switch {
		case s == nil:
		case err != nil || k.states[s.queue.ID] != nil:
			s.end()
			err = errors.Join(err, ctx.Err())
		default:
			k.states[s.queue.ID] = s
		}
	}
	return failed.list, err
}

// confirm keeps the states of the given queues, proves that they are led here and opens them.
func (n *Node) confirm(ctx context.Context, k *kept, r *request) ([]Opened, []Failed, error) {
	since := time.Now()
	until := since.Add(time.Duration(r.LimitMS) * time.Millisecond)
	wanted := map[uint64]bool{}
	for _, q := range r.Queues {
		if k.states[q.ID] == nil {
			return nil, nil, fmt.Errorf("queue %d: %w", q.ID, errNoCut)
		}
		wanted[q.ID] = true
	}
	for id := range k.states {
		if !wanted[id] {
			k.end(id)
		}
	}
	failed := failures{each: r.Each}
	// What is opened first lets its log go on first.
	opened := make([]Opened, len(r.Queues))
	err := each(ctx, len(r.Queues), func(i int) (err error) {
		s := k.states[r.Queues[i].ID]
		if s.open == nil {
			s.open, s.size, err = s.state.Open()
		}
		opened[i] = Opened{ID: s.queue.ID, Term: s.queue.Term, Index: s.index, Bytes: s.size}
		return failed.note(s.queue.ID, err)
	})
	if err != nil {
		return nil, nil, err
	}
	err = each(ctx, len(r.Queues), func(i int) error {
		s := k.states[r.Queues[i].ID]
		return failed.note(s.queue.ID, s.state.Confirm(since, until, func(d time.Duration) bool { return pause(ctx, d) == nil }))
	})
	for _, f := range failed.list {
		k.end(f.ID)
	}
	opened = slices.DeleteFunc(opened, func(o Opened) bool { return k.states[o.ID] == nil })
	return opened, failed.list, err
}

// end ends the state of one queue, in the caller's turn. One that has ended already may be named again.
func (k *kept) end(id uint64) {
	if s := k.states[id]; s != nil {
		s.end()
		delete(k.states, id)
	}
}

// failures are what failed, queue by queue, if that is wanted.
type failures struct {
	each bool
	mu   sync.Mutex
	list []Failed
}

// note returns err unless it is one of the list then.
func (f *failures) note(queue uint64, err error) error {
	if err == nil || !f.each {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.list = append(f.list, Failed{queue, err.Error()})
	return nil
}

// read returns the next bytes of a queue. They are given once.
func (k *kept) read(queue uint64, offset int64) ([]byte, error) {
	s := k.states[queue]
	switch {
	case s == nil || s.open == nil:
		return nil, fmt.Errorf("queue %d: %w", queue, errNoCut)
	case offset != s.offset:
		return nil, fmt.Errorf("queue %d: bytes from %d on are wanted, those up to %d were given", queue, offset, s.offset)
	}
	b := make([]byte, min(chunkBytesMax, s.size-s.offset))
	m, err := io.ReadFull(s.open, b)
	s.offset += int64(m)
	if err != nil {
		return nil, fmt.Errorf("read the state of queue %d: %w", queue, err)
	}
	if s.offset == s.size {
		k.end(queue)
	}
	return b, nil
}

// each runs f for 0 to n-1, some at a time, until one fails.
func each(ctx context.Context, n int, f func(i int) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var work sync.WaitGroup
	places := make(chan struct{}, atOnce)
	for i := range n {
		places <- struct{}{}
		if ctx.Err() != nil {
			break
		}
		work.Go(func() {
			defer func() { <-places }()
			if err := f(i); err != nil {
				cancel(err)
			}
		})
	}
	work.Wait()
	return context.Cause(ctx)
}
