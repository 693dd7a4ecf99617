package grpc

import (
	"context"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"

	warrenv1 "github.com/warrenmq/warren/api/warren/v1"
)

// peekCall is a call of a client that has logged in and reads the response when it is let.
type peekCall struct {
	grpc.ServerStream
	ctx   context.Context //nolint:containedctx // the call's
	reads <-chan struct{}
}

func (p *peekCall) Context() context.Context { return p.ctx }
func (p *peekCall) RecvMsg(any) error        { return nil }

func (p *peekCall) SendMsg(any) error {
	select {
	case <-p.reads:
		return nil
	case <-p.ctx.Done():
		return p.ctx.Err()
	}
}

// TestPeeksAreBounded: so many clients that do not read what they asked for, and no more, have a response made; they are cut off, and those that wait come to
// their turn.
func TestPeeksAreBounded(t *testing.T) {
	t.Parallel()
	s, _ := served(t, func(p *patience) { p.peek = 200 * time.Millisecond })
	ctx := peer.NewContext(t.Context(), &peer.Peer{Addr: &net.TCPAddr{}, LocalAddr: &net.TCPAddr{}})
	ctx, cancel := context.WithTimeout(metadata.NewIncomingContext(ctx, metadata.Pairs("authorization", "Bearer good.token")), limitsWait)
	defer cancel() // of what is being sent to those that were cut off
	var now, most atomic.Int64
	call := s.asStream(warrenv1.MessageService_ServiceDesc.ServiceName, &grpc.MethodDesc{MethodName: "Peek", Handler: func(_ any, _ context.Context, recv func(any) error, _ grpc.UnaryServerInterceptor) (any, error) {
		if err := recv(nil); err != nil {
			return nil, err
		}
		n := now.Add(1)
		for m := most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
		}
		return &warrenv1.PeekResponse{}, nil
	}})
	ask := func(reads chan struct{}) error {
		err := call.Handler(nil, &peekCall{ctx: ctx, reads: reads})
		now.Add(-1)
		return err
	}
	idle, reading := make(chan struct{}), make(chan struct{})
	close(reading)
	var asking sync.WaitGroup
	for range 2 * peeksMax {
		asking.Go(func() { wantRefusal(t, ask(idle), codes.ResourceExhausted, reasonSlow) })
	}
	asking.Wait()
	if err := ask(reading); err != nil {
		t.Errorf("one that reads: %v", err)
	}
	if n := most.Load(); n > peeksMax {
		t.Errorf("%d responses at a time, want %d", n, peeksMax)
	}
}
