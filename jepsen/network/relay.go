package network

import (
	"context"
	"errors"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// chunkBytes is how much a relay reads at once, chunksMax how many chunks wait on a slow way: beyond
	// it the sender is held up, as by a full window.
	chunkBytes = 32 << 10
	chunksMax  = 64
	// resendMin and resendMax bound how long a lossy way holds up what it should have lost.
	resendMin, resendMax = 200 * time.Millisecond, time.Second
)

// gate is one direction between two hosts, through which streams pass.
type gate struct {
	state atomic.Pointer[Link]

	mu      sync.Mutex
	changed chan struct{} // closed by set

	carried, held atomic.Uint64
}

func newGate() *gate {
	g := &gate{changed: make(chan struct{})}
	g.state.Store(&Link{})
	return g
}

func (g *gate) set(l Link) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.state.Store(&l)
	close(g.changed)
	g.changed = make(chan struct{})
}

// open waits until the gate is not cut, or ctx ends.
func (g *gate) open(ctx context.Context) error {
	for {
		g.mu.Lock()
		changed := g.changed
		g.mu.Unlock()
		if !g.state.Load().Cut {
			return nil
		}
		g.held.Add(1)
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// delay is how long a chunk of n bytes is under way.
func (g *gate) delay(n int) time.Duration {
	l := g.state.Load()
	d := l.Delay
	if l.Jitter > 0 {
		d += rand.N(l.Jitter)
	}
	if l.Loss > 0 && rand.Float64() < l.Loss {
		g.held.Add(1)
		d += resendMin + rand.N(resendMax-resendMin)
	}
	if l.BytesPerSecond > 0 {
		d += time.Duration(n) * time.Second / time.Duration(l.BytesPerSecond)
	}
	return d
}

// relay accepts streams and passes them on.
type relay struct {
	listener net.Listener
	// onward opens the other side for a stream that was accepted, and says through which gates it
	// passes: there to the other side, back from it. Nil gates are sound.
	onward func(accepted net.Conn) (other net.Conn, there, back *gate, err error)

	ctx    context.Context
	cancel context.CancelFunc
	work   sync.WaitGroup
}

func newRelay(l net.Listener, onward func(net.Conn) (net.Conn, *gate, *gate, error)) *relay {
	r := &relay{listener: l, onward: onward}
	r.ctx, r.cancel = context.WithCancel(context.Background())
	r.work.Go(r.accept)
	return r
}

func (r *relay) accept() {
	for {
		conn, err := r.listener.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err == nil {
			r.work.Go(func() { r.serve(conn) })
		}
	}
}

// serve passes a stream on until both directions have ended.
func (r *relay) serve(conn net.Conn) {
	defer conn.Close()
	other, there, back, err := r.onward(conn)
	if err != nil {
		return // the other side does not take it: neither does this one
	}
	defer other.Close()
	stop := context.AfterFunc(r.ctx, func() { conn.Close(); other.Close() })
	defer stop()
	var both sync.WaitGroup
	both.Go(func() { r.copy(conn, other, there) })
	both.Go(func() { r.copy(other, conn, back) })
	both.Wait()
}

// chunk is a part of a stream that is due.
type chunk struct {
	data []byte
	due  time.Time
}

// copy passes one direction on. When it ends both connections are closed, as by a reset.
func (r *relay) copy(from, to net.Conn, g *gate) {
	if g == nil {
		g = newGate()
	}
	chunks := make(chan chunk, chunksMax)
	ctx, cancel := context.WithCancel(r.ctx)
	defer cancel()
	var writer sync.WaitGroup
	writer.Go(func() {
		defer cancel()
		defer from.Close()
		defer to.Close()
		for c := range chunks {
			if sleepUntil(ctx, c.due) != nil || g.open(ctx) != nil {
				return
			}
			if _, err := to.Write(c.data); err != nil {
				return
			}
			g.carried.Add(1)
		}
	})
	defer writer.Wait()
	defer close(chunks)
	for {
		buf := make([]byte, chunkBytes)
		n, err := from.Read(buf)
		if n > 0 {
			select {
			case chunks <- chunk{buf[:n], time.Now().Add(g.delay(n))}:
			case <-ctx.Done():
				return
			}
		}
		if err != nil {
			return
		}
	}
}

func sleepUntil(ctx context.Context, t time.Time) error {
	d := time.Until(t)
	if d <= 0 {
		return ctx.Err()
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// close ends the relay and its streams.
func (r *relay) close() {
	r.cancel()
	r.listener.Close()
	r.work.Wait()
}
