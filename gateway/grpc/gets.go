package grpc

import (
	"context"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"

	warrenv1 "github.com/warrenmq/warren/api/warren/v1"
)

// Bounds of the gets that are answered at a time: each takes some MiB at the node until its response has been read. More wait. Those of one queue have a part
// of it: one that has no leader answers none of its own for a while.
const (
	getsMax      = 64
	getsQueueMax = getsMax / 2
)

// gets are those that are being answered.
type gets struct {
	mu      sync.Mutex
	count   int
	queues  map[string]int // by vhost and queue
	waiting int
	freed   chan struct{} // closed when one has ended
}

func newGets() *gets { return &gets{queues: map[string]int{}, freed: make(chan struct{})} }

// take takes a place, or returns what is closed when there may be one.
func (g *gets) take(queue string) (freed <-chan struct{}) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.count >= getsMax || g.queues[queue] >= getsQueueMax {
		return g.freed
	}
	g.count++
	g.queues[queue]++
	return nil
}

func (g *gets) end(queue string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.count--
	if g.queues[queue]--; g.queues[queue] == 0 {
		delete(g.queues, queue)
	}
	close(g.freed)
	g.freed = make(chan struct{})
}

// enter waits for a place.
func (g *gets) enter(ctx context.Context, queue string, ending <-chan struct{}) error {
	freed := g.take(queue)
	if freed == nil {
		return nil
	}
	g.waits(1)
	defer g.waits(-1)
	for ; freed != nil; freed = g.take(queue) {
		select {
		case <-freed:
		case <-ending:
			return refuse(codes.Unavailable, reasonLeaving, "the node leaves")
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}

func (g *gets) waits(n int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.waiting += n
}

// needed tells whether somebody waits for a place.
func (g *gets) needed() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.waiting > 0
}

// getAnswer answers one get when it is its turn, which comes when the request has been read and before anything is taken from the queue. What a client does not
// read is settled all the same, so that it is cut off only if others wait.
func (s *Server) getAnswer(stream grpc.ServerStream, answer func(recv func(any) error) (any, error)) error {
	queue, entered := "", false
	defer func() {
		if entered {
			s.gets.end(queue)
		}
	}()
	resp, err := answer(func(req any) error {
		if err := stream.RecvMsg(req); err != nil {
			return err
		}
		if get, ok := req.(*warrenv1.GetRequest); ok {
			queue = keyOf(vhostOf(get.GetVhost()), get.GetQueue())
		}
		err := s.gets.enter(stream.Context(), queue, s.ends())
		entered = err == nil
		return err
	})
	if err != nil {
		return err
	}
	return s.sendRead(stream, resp, s.gets.needed)
}
