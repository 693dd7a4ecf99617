package grpc

import (
	"context"
	"fmt"
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

// getCall is a get from a queue by a client that reads the response when it is let.
type getCall struct {
	peekCall
	queue string
}

func (g *getCall) RecvMsg(m any) error {
	m.(*warrenv1.GetRequest).Queue = g.queue //nolint:forcetypeassert // it is
	return nil
}

// getsRig answers gets that take nothing from anywhere, and counts them.
type getsRig struct {
	s        *Server
	ctx      context.Context //nolint:containedctx // the calls'
	call     grpc.StreamDesc
	answered atomic.Int64
}

func getting(t *testing.T, wait time.Duration) *getsRig {
	t.Helper()
	s, _ := served(t, func(p *patience) { p.peek = wait })
	ctx := peer.NewContext(t.Context(), &peer.Peer{Addr: &net.TCPAddr{}, LocalAddr: &net.TCPAddr{}})
	ctx, cancel := context.WithTimeout(metadata.NewIncomingContext(ctx, metadata.Pairs("authorization", "Bearer good.token")), limitsWait)
	t.Cleanup(cancel)
	r := &getsRig{s: s, ctx: ctx}
	r.call = s.asStream(warrenv1.ConsumeService_ServiceDesc.ServiceName, &grpc.MethodDesc{MethodName: "Get", Handler: func(_ any, _ context.Context, recv func(any) error, _ grpc.UnaryServerInterceptor) (any, error) {
		if err := recv(&warrenv1.GetRequest{}); err != nil {
			return nil, err
		}
		r.answered.Add(1)
		return &warrenv1.GetResponse{}, nil
	}})
	return r
}

func (r *getsRig) get(queue string, reads <-chan struct{}) error {
	return r.call.Handler(nil, &getCall{peekCall{ctx: r.ctx, reads: reads}, queue})
}

// fill has clients that do not read take all places, and adds more that wait. What they end with comes from the channel.
func (r *getsRig) fill(more int, idle <-chan struct{}) (ended chan error) {
	ended = make(chan error, getsMax+more)
	for i := range getsMax + more {
		go func() { ended <- r.get(fmt.Sprint("q", i%4), idle) }() // ends when idle is closed at the latest
	}
	for {
		r.s.gets.mu.Lock()
		full := r.s.gets.count == getsMax && r.s.gets.waiting == more
		r.s.gets.mu.Unlock()
		if full || r.ctx.Err() != nil {
			return ended
		}
		time.Sleep(time.Millisecond)
	}
}

// TestGetsAreBounded: so many gets, and no more, are answered to clients that do not read; the others come to their turn.
func TestGetsAreBounded(t *testing.T) {
	t.Parallel()
	r := getting(t, limitsWait)
	idle := make(chan struct{})
	ended := r.fill(getsMax, idle)
	if n := r.answered.Load(); n != getsMax {
		t.Errorf("%d responses at a time, want %d", n, getsMax)
	}
	close(idle)
	for range 2 * getsMax {
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
}

// TestUnreadGetsAreCutOff: clients that do not read are cut off when others wait, and not before.
func TestUnreadGetsAreCutOff(t *testing.T) {
	t.Parallel()
	r := getting(t, 20*time.Millisecond)
	idle, reading := make(chan struct{}), make(chan struct{})
	close(reading)
	ended := r.fill(0, idle)
	select {
	case err := <-ended:
		t.Errorf("one was cut off that nobody waited for: %v", err)
	case <-time.After(100 * time.Millisecond):
	}
	if err := r.get("other", reading); err != nil {
		t.Errorf("one that reads: %v", err)
	}
	wantRefusal(t, <-ended, codes.ResourceExhausted, reasonSlow)
	close(idle)
	for range getsMax - 1 {
		if err := <-ended; err != nil { // which the same wait has cut off
			wantRefusal(t, err, codes.ResourceExhausted, reasonSlow)
		}
	}
}

// TestGetsOfOtherQueuesGoOn: gets from a queue that are not answered leave room for those from others.
func TestGetsOfOtherQueuesGoOn(t *testing.T) {
	t.Parallel()
	r := getting(t, limitsWait)
	idle, reading := make(chan struct{}), make(chan struct{})
	close(reading)
	var asking sync.WaitGroup
	for range getsMax {
		asking.Go(func() {
			if err := r.get("hangs", idle); err != nil {
				t.Error(err)
			}
		})
	}
	until(t, "answers to as many as a queue may have", func() bool { return r.answered.Load() >= getsQueueMax })
	if err := r.get("other", reading); err != nil {
		t.Error(err)
	}
	if n := r.answered.Load(); n != getsQueueMax+1 {
		t.Errorf("%d at a time", n)
	}
	close(idle)
	asking.Wait()
}
