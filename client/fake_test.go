package client

import (
	"context"
	"net"
	"sync"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	warrenv1 "github.com/warrenmq/warren/api/warren/v1"
)

// patience is for what comes at once on a machine that is not starved.
const patience = 30 * time.Second

type (
	publishSide = grpc.BidiStreamingServer[warrenv1.PublishStreamRequest, warrenv1.PublishStreamResponse]
	consumeSide = grpc.BidiStreamingServer[warrenv1.ConsumeRequest, warrenv1.ConsumeResponse]
)

// fake is a node that breaks its promises when it is told to: what real ones do at moments that a test cannot choose.
type fake struct {
	warrenv1.UnimplementedPublishServiceServer
	warrenv1.UnimplementedConsumeServiceServer
	warrenv1.UnimplementedTopologyServiceServer
	warrenv1.UnimplementedMessageServiceServer
	addr string

	mu      sync.Mutex
	greeted bool
	publish []func(publishSide) error // what becomes of the streams, one after the other; the first one of each client is its greeting
	consume []func(consumeSide) error
	queue   func() error              // what becomes of declarations
	redrive []*warrenv1.RedriveStatus // what is said of one, the first when it begins; the last again and again
}

func refusal(code codes.Code, reason string) error {
	s, err := status.New(code, "as told").WithDetails(&errdetails.ErrorInfo{Reason: reason, Domain: errorDomain, Metadata: map[string]string{"amqp_code": "403"}})
	if err != nil {
		return err
	}
	return s.Err()
}

func startFake(t *testing.T) *fake {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	f := &fake{addr: ln.Addr().String()}
	s := grpc.NewServer()
	warrenv1.RegisterPublishServiceServer(s, f)
	warrenv1.RegisterConsumeServiceServer(s, f)
	warrenv1.RegisterTopologyServiceServer(s, f)
	warrenv1.RegisterMessageServiceServer(s, f)
	served := make(chan error, 1)
	go func() { served <- s.Serve(ln) }()
	t.Cleanup(func() {
		s.Stop()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	return f
}

func next[T any](f *fake, list *[]func(T) error) func(T) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(*list) == 0 {
		return func(T) error { return refusal(codes.NotFound, "NOT_FOUND") }
	}
	first := (*list)[0]
	*list = (*list)[1:]
	return first
}

func (f *fake) PublishStream(stream publishSide) error {
	if _, err := stream.Recv(); err != nil {
		return err
	}
	f.mu.Lock()
	greeting := !f.greeted
	f.greeted = true
	f.mu.Unlock()
	if greeting {
		_, _ = stream.Recv() // its end
		return nil
	}
	return next(f, &f.publish)(stream)
}

func (f *fake) Consume(stream consumeSide) error { return next(f, &f.consume)(stream) }

func (f *fake) DeclareQueue(context.Context, *warrenv1.DeclareQueueRequest) (*warrenv1.DeclareQueueResponse, error) {
	if err := f.queue(); err != nil {
		return nil, err
	}
	return &warrenv1.DeclareQueueResponse{Queue: "q"}, nil
}

// dialFake makes a client of fakes, which it tries in their order.
func dialFake(t *testing.T, fakes ...*fake) *Client {
	t.Helper()
	cfg := Config{User: "u", Password: "p", BackoffMin: time.Millisecond, BackoffMax: 10 * time.Millisecond}
	for _, f := range fakes {
		cfg.Addrs = append(cfg.Addrs, f.addr)
		f.greeted = f != fakes[0]
	}
	c, err := dial(t.Context(), cfg, func(int, func(i, j int)) {})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closeClient(t, c) })
	return c
}

func closeClient(t *testing.T, c *Client) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := c.Close(ctx); err != nil {
		t.Error(err)
	}
}

// took are publications that a stream has read.
func took(stream publishSide, n int) ([]*warrenv1.Publication, error) {
	var list []*warrenv1.Publication
	for len(list) < n {
		req, err := stream.Recv()
		if err != nil {
			return list, err
		}
		list = append(list, req.GetPublications()...)
	}
	return list, nil
}

// result answers messages.
func result(stream publishSide, first, last uint64, outcome warrenv1.PublishOutcome) error {
	return stream.Send(&warrenv1.PublishStreamResponse{Results: []*warrenv1.PublishResult{{First: first, Last: last, Outcome: outcome}}})
}

const confirmed = warrenv1.PublishOutcome_PUBLISH_OUTCOME_CONFIRMED

// wait waits for something that happens at once.
func wait[T any](t *testing.T, c <-chan T) (v T) {
	t.Helper()
	select {
	case v = <-c:
	case <-time.After(patience):
		t.Fatal("it did not happen")
	}
	return v
}

func (f *fake) StartRedrive(context.Context, *warrenv1.StartRedriveRequest) (*warrenv1.StartRedriveResponse, error) {
	return &warrenv1.StartRedriveResponse{Status: f.redriving()}, nil
}

func (f *fake) GetRedrive(context.Context, *warrenv1.GetRedriveRequest) (*warrenv1.GetRedriveResponse, error) {
	return &warrenv1.GetRedriveResponse{Status: f.redriving()}, nil
}

func (f *fake) redriving() *warrenv1.RedriveStatus {
	f.mu.Lock()
	defer f.mu.Unlock()
	first := f.redrive[0]
	if len(f.redrive) > 1 {
		f.redrive = f.redrive[1:]
	}
	return first
}
