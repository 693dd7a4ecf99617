package grpc

import (
	"context"
	"encoding/binary"
	"io"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/reflection/grpc_reflection_v1"

	warrenv1 "github.com/warrenmq/warren/api/warren/v1"
)

// begin starts a call and sends the beginning of a request that it says is so long.
func (r *rude) begin(stream uint32, path string, bytes uint32, more ...hpack.HeaderField) {
	r.t.Helper()
	r.block.Reset()
	fixed := []hpack.HeaderField{
		{Name: ":method", Value: "POST"},
		{Name: ":scheme", Value: "http"},
		{Name: ":path", Value: path},
		{Name: ":authority", Value: "node"},
		{Name: "content-type", Value: "application/grpc"},
		{Name: "te", Value: "trailers"},
	}
	for _, f := range append(fixed, more...) {
		if err := r.hpack.WriteField(f); err != nil {
			r.t.Fatal(err)
		}
	}
	if err := r.framer.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, BlockFragment: r.block.Bytes(), EndHeaders: true}); err != nil {
		r.t.Fatal(err)
	}
	if err := r.framer.WriteData(stream, false, append(binary.BigEndian.AppendUint32([]byte{0}, bytes), 0)); err != nil {
		r.t.Fatal(err)
	}
}

// TestRequestsWithoutLoginAreNotRead: a call without a login is refused before its request is there, and one that needs none if its request is large,
// or does not come.
func TestRequestsWithoutLoginAreNotRead(t *testing.T) {
	t.Parallel()
	_, addr := served(t, func(p *patience) { p.open = limitsWait / 100 })
	r := rudely(t, addr)
	stream := uint32(1)
	for _, path := range []string{
		"/warren.v1.PublishService/Publish", "/warren.v1.AdminService/AddUser", "/warren.v1.PublishService/PublishStream", "/grpc.health.v1.Health/Check",
		"/grpc.health.v1.Health/Watch", "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo",
	} {
		for _, bytes := range []uint32{1 << 20, 2} {
			r.begin(stream, path, bytes)
			if _, answered, err := r.answer(stream); err != nil || !answered {
				t.Fatalf("%s with a request of %d bytes: %v", path, bytes, err)
			}
			stream += 2
		}
	}
}

// TestStreamsWithoutLoginAreBounded: there are not so many of them that each may keep what nobody reads.
func TestStreamsWithoutLoginAreBounded(t *testing.T) {
	t.Parallel()
	s, addr := served(t, func(p *patience) { p.open = limitsWait })
	r := rudely(t, addr)
	r.logIn(s)
	for i := range uint32(openStreamsMax + 1) {
		r.begin(2*i+3, "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo", 2)
	}
	for { // they come to it in any order
		f, err := r.framer.ReadFrame()
		if err != nil {
			t.Fatal(err)
		}
		if _, refused := f.(*http2.HeadersFrame); refused {
			break
		}
	}
	if n := s.openStreams.Load(); n != openStreamsMax {
		t.Errorf("%d streams", n)
	}
}

// logIn begins a call with a login, as stream 1, and waits until the server knows of it.
func (r *rude) logIn(s *Server) {
	r.t.Helper()
	r.begin(1, "/warren.v1.ConsumeService/Get", 100, goodToken)
	until(r.t, "the login", func() bool {
		c := s.connOf(r.conn.LocalAddr())
		return c != nil && c.known.Load()
	})
}

// TestCallsOfStrangersAreBounded: whoever has not logged in on a connection has a few calls on it at a time, which never end if they watch the health of the
// node. Others have as many as they like.
func TestCallsOfStrangersAreBounded(t *testing.T) {
	t.Parallel()
	s, addr := served(t, func(*patience) {})
	conn := connected(t, addr)
	ctx, cancel := context.WithTimeout(t.Context(), limitsWait)
	defer cancel()
	watch := func() (end func(), err error) {
		ctx, cancel := context.WithCancel(ctx)
		stream, err := grpc_health_v1.NewHealthClient(conn).Watch(ctx, &grpc_health_v1.HealthCheckRequest{})
		if err == nil {
			_, err = stream.Recv()
		}
		return cancel, err
	}
	var ends []func()
	for range openCallsMax {
		end, err := watch()
		if err != nil {
			t.Fatal(err)
		}
		ends = append(ends, end)
	}
	end, err := watch()
	end()
	wantRefusal(t, err, codes.ResourceExhausted, reasonTooMany)
	ends[0]()
	until(t, "the server to know of it", func() bool {
		if end, err = watch(); err != nil {
			end()
		}
		return err == nil
	})
	ends = append(ends[1:], end)
	ctx = metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer good.token")
	if _, err := warrenv1.NewAdminServiceClient(conn).ListUsers(ctx, &warrenv1.ListUsersRequest{}); err == nil {
		t.Error("a server without a broker has users")
	}
	for range 2 * openCallsMax {
		end, err := watch()
		if err != nil {
			t.Fatalf("when somebody has logged in: %v", err)
		}
		ends = append(ends, end)
	}
	for _, end := range ends {
		end()
	}
	if n := s.Figures().Connections; n != 1 {
		t.Errorf("%d connections", n)
	}
}

// TestLeavingEndsStreamsWithoutLogin: a stream that watches the health of a node, or waits for a question to reflection, does not keep the node from
// leaving. Who watches is told that the node serves no more.
func TestLeavingEndsStreamsWithoutLogin(t *testing.T) {
	t.Parallel()
	s, addr := served(t, func(*patience) {})
	conn := connected(t, addr)
	ctx, cancel := context.WithTimeout(t.Context(), limitsWait)
	defer cancel()
	watch, err := grpc_health_v1.NewHealthClient(conn).Watch(ctx, &grpc_health_v1.HealthCheckRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if got, err := watch.Recv(); err != nil || got.GetStatus() != grpc_health_v1.HealthCheckResponse_SERVING {
		t.Fatal(got, err)
	}
	look, err := grpc_reflection_v1.NewServerReflectionClient(conn).ServerReflectionInfo(ctx)
	if err != nil {
		t.Fatal(err)
	}
	until(t, "the stream to come", func() bool { return s.openStreams.Load() > 0 })
	s.Leave(ctx)
	if ctx.Err() != nil {
		t.Error("the node waits for streams that do not end")
	}
	if got, err := watch.Recv(); err != nil || got.GetStatus() != grpc_health_v1.HealthCheckResponse_NOT_SERVING {
		t.Error(got, err)
	}
	_, err = watch.Recv()
	wantRefusal(t, err, codes.Unavailable, reasonLeaving)
	_, err = look.Recv()
	wantRefusal(t, err, codes.Unavailable, reasonLeaving)
}

// notedCall is a call of a client that has logged in. It notes whether its request is read.
type notedCall struct {
	grpc.ServerStream
	ctx  context.Context //nolint:containedctx // the call's
	read atomic.Bool
}

func (u *notedCall) Context() context.Context { return u.ctx }

func (u *notedCall) RecvMsg(any) error {
	u.read.Store(true)
	return io.EOF
}

// TestHeldUpCallsAreNotRead: the message of a call takes no memory while publishers are held up, and such a call does not keep the node from leaving.
func TestHeldUpCallsAreNotRead(t *testing.T) {
	t.Parallel()
	s, _ := served(t, func(*patience) {})
	ctx := peer.NewContext(t.Context(), &peer.Peer{Addr: &net.TCPAddr{}, LocalAddr: &net.TCPAddr{}})
	ctx = metadata.NewIncomingContext(ctx, metadata.Pairs("authorization", "Bearer good.token"))
	publish := func() (u *notedCall, ended chan error) {
		u, ended = &notedCall{ctx: ctx}, make(chan error, 1)
		call := s.asStream(warrenv1.PublishService_ServiceDesc.ServiceName, &warrenv1.PublishService_ServiceDesc.Methods[0])
		go func() { ended <- call.Handler(&publishService{s: s}, u) }() // ends below
		return u, ended
	}
	s.SetBlocked("low on memory", true)
	u, ended := publish()
	select {
	case err := <-ended:
		t.Fatal(err)
	case <-time.After(10 * time.Millisecond):
	}
	s.SetBlocked("", false)
	if err := <-ended; err == nil || !u.read.Load() {
		t.Error("it is not read when publishers are free")
	}
	s.SetBlocked("low on disk", false)
	u, ended = publish()
	select {
	case err := <-ended:
		t.Fatal(err)
	case <-time.After(10 * time.Millisecond):
	}
	s.Leave(t.Context())
	wantRefusal(t, <-ended, codes.Unavailable, reasonLeaving)
	if u.read.Load() {
		t.Error("it is read though publishers are held up")
	}
}
