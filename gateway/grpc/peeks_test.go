package grpc

import (
	"context"
	"net"
	"sync"
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
	const patient = 200 * time.Millisecond
	s, _ := served(t, func(p *patience) { p.peek = patient })
	ctx := peer.NewContext(t.Context(), &peer.Peer{Addr: &net.TCPAddr{}, LocalAddr: &net.TCPAddr{}})
	ctx, cancel := context.WithTimeout(metadata.NewIncomingContext(ctx, metadata.Pairs("authorization", "Bearer good.token")), limitsWait)
	defer cancel() // of what is being sent to those that were cut off
	var mu sync.Mutex
	var made []time.Time // in order
	call := s.asStream(warrenv1.MessageService_ServiceDesc.ServiceName, &grpc.MethodDesc{MethodName: "Peek", Handler: func(_ any, _ context.Context, recv func(any) error, _ grpc.UnaryServerInterceptor) (any, error) {
		if err := recv(nil); err != nil {
			return nil, err
		}
		mu.Lock()
		defer mu.Unlock()
		made = append(made, time.Now())
		return &warrenv1.PeekResponse{}, nil
	}})
	ask := func(reads chan struct{}) error { return call.Handler(nil, &peekCall{ctx: ctx, reads: reads}) }
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
	for i := range len(made) - peeksMax { // each is kept for so long at least
		if d := made[i+peeksMax].Sub(made[i]); d < patient {
			t.Errorf("%d responses within %v, want %d", peeksMax+1, d, peeksMax)
		}
	}
}
