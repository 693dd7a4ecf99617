package transport

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"sync"
	"time"
)

// delivery is one application message on its way to its handler.
type delivery struct {
	kind    uint8
	payload []byte
	in      *inbound // nil for a message to the local node
}

// dispatcher runs the handlers for the messages of one node, in order. Its
// goroutine exists only while there is something to do.
type dispatcher struct {
	m    *Mesh
	from NodeID

	mu      sync.Mutex
	queue   []delivery
	bytes   int
	running bool
}

// push queues d. It fails with ErrBacklog when bound (0 = none) would be exceeded.
func (d *dispatcher) push(v delivery, bound int) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if bound > 0 && d.bytes > 0 && d.bytes+len(v.payload) > bound {
		return ErrBacklog
	}
	d.queue = append(d.queue, v)
	d.bytes += len(v.payload)
	if !d.running {
		d.running = d.m.spawn(d.run)
		if !d.running {
			d.queue, d.bytes = nil, 0
			return ErrClosed
		}
	}
	return nil
}

func (d *dispatcher) run() {
	for {
		d.mu.Lock()
		work := d.queue
		d.queue = nil
		if len(work) == 0 {
			d.running = false
			d.mu.Unlock()
			return
		}
		d.mu.Unlock()
		for i := range work {
			d.deliver(&work[i])
			work[i] = delivery{}
		}
	}
}

func (d *dispatcher) deliver(v *delivery) {
	n := len(v.payload)
	if h := d.m.appHandlers[v.kind].Load(); h != nil {
		(*h)(d.from, v.payload)
	} else {
		d.m.stats.appUnhandled.Add(1)
	}
	d.mu.Lock()
	d.bytes -= n
	d.mu.Unlock()
	if v.in != nil {
		v.in.returnCredit(int64(n))
	}
}

// receiveApp queues an application message for its handler.
func (in *inbound) receiveApp(body []byte) error {
	if len(body) == 0 {
		return fmt.Errorf("%w: application frame without a kind", errMalformed)
	}
	n := int64(len(body) - 1)
	// One message of a sender may overshoot the window, a batch at most.
	if in.undone.Add(n) > int64(in.m.cfg.WindowBytes+in.m.cfg.FrameBytesMax+messageBytesMax) {
		return fmt.Errorf("%w: the peer ignores its window", ErrBacklog)
	}
	if err := in.apps.push(delivery{kind: body[0], payload: body[1:], in: in}, 0); err != nil {
		return err
	}
	return nil
}

// workers runs call handlers on a bounded number of goroutines, which end when there
// is nothing to do.
type workers struct {
	m *Mesh

	mu      sync.Mutex
	queue   []func()
	running int
}

// run queues f or fails with ErrBusy or ErrClosed.
func (w *workers) run(f func()) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.running >= w.m.cfg.Workers {
		if len(w.queue) >= w.m.cfg.WorkerQueueMax {
			w.m.stats.callsBusy.Add(1)
			return ErrBusy
		}
		w.queue = append(w.queue, f)
		return nil
	}
	if !w.m.spawn(func() { w.work(f) }) {
		return ErrClosed
	}
	w.running++
	return nil
}

func (w *workers) work(f func()) {
	for {
		f()
		w.mu.Lock()
		if len(w.queue) == 0 {
			w.queue = nil
			w.running--
			w.mu.Unlock()
			return
		}
		f = w.queue[0]
		w.queue[0] = nil
		w.queue = w.queue[1:]
		w.mu.Unlock()
	}
}

// callContext is the context of all calls that came over one link.
type callContext struct {
	ctx    context.Context
	cancel context.CancelFunc
}

func newCallContext(parent context.Context) callContext {
	ctx, cancel := context.WithCancel(parent)
	return callContext{ctx, cancel}
}

// receiveCall hands a call to a worker.
func (in *inbound) receiveCall(body []byte) error {
	d := decoder{b: body}
	call, method, millis := d.uvarint(), d.u8(), d.uvarint()
	req := d.rest()
	if d.err != nil {
		return d.err
	}
	until := time.Now().Add(time.Duration(min(millis, math.MaxInt32)) * time.Millisecond) // the wait for a worker counts
	err := in.m.workers.run(func() {
		ctx, cancel := context.WithDeadline(in.calls.ctx, until)
		defer cancel()
		if ctx.Err() != nil {
			in.answer(call, nil, ctx.Err()) // nobody waits for it any more
			return
		}
		payload, err := in.m.handleCall(ctx, in.from, method, req)
		in.answer(call, payload, err)
	})
	if err != nil {
		in.answer(call, nil, err)
	}
	return nil
}

// handleCall runs the handler of a method; every error it returns is a *RemoteError.
func (m *Mesh) handleCall(ctx context.Context, from NodeID, method uint8, req []byte) ([]byte, error) {
	h := m.callHandlers[method].Load()
	if h == nil {
		return nil, &RemoteError{Code: CodeUnknownMethod, Text: fmt.Sprintf("node %s does not answer that yet: it starts, or its program is older (method %d)", m.cfg.Local, method)}
	}
	resp, err := (*h)(ctx, from, req)
	if err != nil {
		return nil, remoteOf(err)
	}
	return resp, nil
}

// Send queues an application message to a node. Messages of one kind to one node
// arrive in order and at most once; those queued or in flight when a link breaks
// are lost. The payload belongs to the mesh afterwards, and its memory is used again if package dirty
// lent it; so it must not be sent twice. Send never waits: it
// returns ErrPeerDown without a link and ErrBacklog when the peer's queue is full.
// Messages to the local node are handed to the handler on a goroutine of the mesh.
func (m *Mesh) Send(to NodeID, kind uint8, payload []byte) error {
	if len(payload) > m.cfg.FrameBytesMax-frameOverheadMax {
		return fmt.Errorf("%w: %d bytes", ErrTooLarge, len(payload))
	}
	if to == m.cfg.Local {
		return m.local.push(delivery{kind: kind, payload: payload}, m.cfg.QueueBytesMax)
	}
	p, err := m.peer(to)
	if err != nil {
		return err
	}
	sess := p.current()
	if sess == nil {
		return ErrPeerDown
	}
	fields := [1]byte{kind}
	if err := sess.out.put(laneApp, frameApp, fields[:], payload); err != nil {
		if errors.Is(err, ErrBacklog) {
			m.stats.appBacklog.Add(1)
		}
		return err
	}
	m.stats.framesOut.Add(1)
	return nil
}

// HasRoom tells whether so little waits for a node that its queue takes a quarter of what it holds at most, and one message of any size. Without a link it
// is true: there is nothing to wait for.
func (m *Mesh) HasRoom(to NodeID) bool {
	m.mu.Lock()
	p := m.peers[to]
	m.mu.Unlock()
	if p == nil {
		return true
	}
	sess := p.current()
	return sess == nil || sess.out.hasRoom(laneApp)
}

// Handle sets the handler of a kind of application messages. It runs on the
// goroutine that dispatches the messages of that node, so it must be quick; the
// payload is the handler's own.
func (m *Mesh) Handle(kind uint8, h func(from NodeID, payload []byte)) {
	m.appHandlers[kind].Store(&h)
}

// HandleCall sets the handler of a method, once: two packages that chose one number
// are a mistake in the program, and it panics. Handlers run on a bounded number of
// goroutines and must return when ctx ends; ctx ends with the caller's deadline or
// the loss of its link. An error that is (or wraps) a *RemoteError keeps its code.
func (m *Mesh) HandleCall(method uint8, h func(ctx context.Context, from NodeID, req []byte) ([]byte, error)) {
	if m.callHandlers[method].Swap(&h) != nil {
		panic(fmt.Sprintf("transport: two handlers for method %#x", method))
	}
}

// Call asks a node and waits for the answer. It returns ErrPeerDown at once when the
// newest attempt to reach the node failed, a *RemoteError when the handler failed, and
// the context's error when that ends first; after ErrPeerDown from a lost link or a context's
// end the handler may have run. req belongs to the mesh afterwards.
func (m *Mesh) Call(ctx context.Context, to NodeID, method uint8, req []byte) ([]byte, error) {
	if _, ok := ctx.Deadline(); !ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, m.cfg.CallTimeout)
		defer cancel()
	}
	if to == m.cfg.Local {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		return m.handleCall(ctx, m.cfg.Local, method, req)
	}
	deadline, _ := ctx.Deadline()
	return m.ask(ctx, to, func() request {
		left := uint64(max(time.Until(deadline).Milliseconds(), 1))
		return request{kind: frameCall, body: pieces{req}, fields: binary.AppendUvarint([]byte{method}, left)}
	})
}

// ask is a round trip under a context. The request is made when there is a link.
func (m *Mesh) ask(ctx context.Context, to NodeID, req func() request) ([]byte, error) {
	p, err := m.peer(to)
	if err != nil {
		return nil, err
	}
	sess, err := p.await(ctx.Done(), nil, true)
	var resp []byte
	if err == nil {
		resp, err = sess.roundTrip(ctx.Done(), nil, req())
	}
	if err != nil && ctx.Err() != nil && !errors.Is(err, ErrPeerDown) {
		return nil, fmt.Errorf("call to %s: %w", to, ctx.Err())
	}
	return resp, err
}
