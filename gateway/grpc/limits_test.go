package grpc

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"io"
	"log/slog"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	warrenv1 "github.com/warrenmq/warren/api/warren/v1"
	"github.com/warrenmq/warren/contain"
)

// limitsWait is for what comes soon on a machine that is not starved.
const limitsWait = 30 * time.Second

// served is a server without a broker at a socket.
func served(t *testing.T, waits func(*patience)) (s *Server, addr string) {
	t.Helper()
	guard := contain.New(contain.Config{Logger: slog.New(slog.DiscardHandler)})
	t.Cleanup(guard.Close)
	s = New(Config{Logger: slog.New(slog.DiscardHandler), Logins: logins{}, MessageBytesMax: 1 << 20, ConnectionsMax: 100, Guard: guard}, nil)
	waits(&s.waits)
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(ln) }() // ends with Stop
	t.Cleanup(func() {
		s.Stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	until(t, "the server to begin", func() bool { return s.began() != nil })
	return s, ln.Addr().String()
}

// until waits for what comes soon.
func until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(limitsWait); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("waited for %s", what)
		}
	}
}

func (s *Server) began() *grpc.Server {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.lib
}

// rude is a client that speaks HTTP/2 and heeds nothing of what the server asks for.
type rude struct {
	t      *testing.T
	conn   net.Conn
	framer *http2.Framer
	block  bytes.Buffer
	hpack  *hpack.Encoder
}

func rudely(t *testing.T, addr string) *rude {
	t.Helper()
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	if err := conn.SetDeadline(time.Now().Add(limitsWait)); err != nil {
		t.Fatal(err)
	}
	r := &rude{t: t, conn: conn, framer: http2.NewFramer(conn, conn)}
	r.hpack = hpack.NewEncoder(&r.block)
	if _, err := io.WriteString(conn, http2.ClientPreface); err != nil {
		t.Fatal(err)
	}
	if err := r.framer.WriteSettings(); err != nil {
		t.Fatal(err)
	}
	return r
}

// call begins one, with metadata, and the request of a health check. The error is of writing.
func (r *rude) call(stream uint32, method string, more ...hpack.HeaderField) error {
	r.block.Reset()
	fixed := []hpack.HeaderField{
		{Name: ":method", Value: "POST"},
		{Name: ":scheme", Value: "http"},
		{Name: ":path", Value: "/grpc.health.v1.Health/" + method},
		{Name: ":authority", Value: "node"},
		{Name: "content-type", Value: "application/grpc"},
		{Name: "te", Value: "trailers"},
	}
	for _, f := range append(fixed, more...) {
		if err := r.hpack.WriteField(f); err != nil {
			r.t.Fatal(err)
		}
	}
	const most = 16 << 10
	block := r.block.Bytes()
	part := block[:min(most, len(block))]
	block = block[len(part):]
	err := r.framer.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, BlockFragment: part, EndHeaders: len(block) == 0})
	for len(block) > 0 && err == nil {
		part, block = block[:min(most, len(block))], block[min(most, len(block)):]
		err = r.framer.WriteContinuation(stream, len(block) == 0, part)
	}
	if err != nil {
		return err
	}
	return r.framer.WriteData(stream, true, make([]byte, 5)) // a message of 0 bytes
}

// answer is what comes of a stream first: nil headers of a response, or the code that it was broken off with. Beside it the error of the connection.
func (r *rude) answer(stream uint32) (broken http2.ErrCode, answered bool, err error) {
	for {
		f, err := r.framer.ReadFrame()
		if err != nil {
			return 0, false, err
		}
		switch f := f.(type) {
		case *http2.SettingsFrame:
			if !f.IsAck() {
				_ = r.framer.WriteSettingsAck() // what fails is told by the next frame
			}
		case *http2.HeadersFrame:
			if f.StreamID == stream {
				return 0, true, nil
			}
		case *http2.RSTStreamFrame:
			if f.StreamID == stream {
				return f.ErrCode, false, nil
			}
		}
	}
}

// fields are n of metadata with values of so many bytes.
func fields(n, bytes int) []hpack.HeaderField {
	list := make([]hpack.HeaderField, n)
	for i := range list {
		list[i] = hpack.HeaderField{Name: "giant", Value: strings.Repeat("~", bytes), Sensitive: true}
	}
	return list
}

// TestMetadataIsBounded: calls with more metadata than there may be are broken off, and the connection's others go on; one field that
// is too large by itself, or a MiB of them, ends the connection.
func TestMetadataIsBounded(t *testing.T) {
	t.Parallel()
	_, addr := served(t, func(*patience) {})
	r := rudely(t, addr)
	// HTTP/2 counts 32 bytes more for each field: of 14 KiB there are 112.
	for i, c := range []struct {
		size int
		ok   bool
	}{{1 << 10, true}, {14 << 10, false}, {metadataBytesMax / 2, true}} {
		stream := uint32(2*i + 1)
		if err := r.call(stream, "Check", fields(c.size/128, 128)...); err != nil {
			t.Fatal(err)
		}
		broken, answered, err := r.answer(stream)
		if err != nil || answered != c.ok {
			t.Fatalf("%d bytes of metadata: answered %v, broken off %v, %v", c.size, answered, broken, err)
		}
	}
	for _, giant := range [][]hpack.HeaderField{fields(1, 2*metadataBytesMax), fields(64, metadataBytesMax)} {
		r := rudely(t, addr)
		_ = r.call(1, "Check", giant...) // the connection may end while it is written
		if _, answered, err := r.answer(1); err == nil || answered {
			t.Errorf("%d fields of %d bytes of metadata were taken: %v", len(giant), len(giant[0].Value), err)
		}
	}
}

// TestCallsAreBounded: a connection has no more calls at once than it may, whatever its client thinks of it.
func TestCallsAreBounded(t *testing.T) {
	t.Parallel()
	s, addr := served(t, func(*patience) {})
	r := rudely(t, addr)
	r.logIn(s)
	stream := uint32(3)
	for range streamsMax - 1 {
		if err := r.call(stream, "Watch"); err != nil {
			t.Fatal(err)
		}
		if _, answered, err := r.answer(stream); err != nil || !answered {
			t.Fatalf("call %d: %v", stream, err)
		}
		stream += 2
	}
	if err := r.call(stream, "Watch"); err != nil {
		t.Fatal(err)
	}
	if broken, _, err := r.answer(stream); err != nil || broken != http2.ErrCodeRefusedStream {
		t.Fatalf("one call more: %v, %v", broken, err)
	}
	if err := r.framer.WriteRSTStream(1, http2.ErrCodeCancel); err != nil {
		t.Fatal(err)
	}
	stream += 2
	if err := r.call(stream, "Watch"); err != nil {
		t.Fatal(err)
	}
	if broken, answered, err := r.answer(stream); err != nil || !answered {
		t.Fatalf("a call after another has ended: %v, %v", broken, err)
	}
}

// wantRefusal checks what a call ended with.
func wantRefusal(t *testing.T, err error, code codes.Code, reason string) {
	t.Helper()
	s, _ := status.FromError(err)
	for _, d := range s.Details() {
		if info, ok := d.(*errdetails.ErrorInfo); ok && info.GetReason() == reason && s.Code() == code {
			return
		}
	}
	t.Errorf("got %v with %v, want %v, %s", err, s.Details(), code, reason)
}

// connected is a client's connection of the library.
func connected(t *testing.T, addr string) *grpc.ClientConn {
	t.Helper()
	conn, err := grpc.NewClient(addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// TestStreamsWithoutRequestsEnd: a stream that is opened and says nothing ends.
func TestStreamsWithoutRequestsEnd(t *testing.T) {
	t.Parallel()
	s, addr := served(t, func(p *patience) { p.open = 50 * time.Millisecond })
	conn := connected(t, addr)
	ctx, cancel := context.WithTimeout(t.Context(), limitsWait)
	defer cancel()
	ctx = metadata.AppendToOutgoingContext(ctx, "authorization", "Basic "+base64.StdEncoding.EncodeToString([]byte("u:right")))
	publish, err := warrenv1.NewPublishServiceClient(conn).PublishStream(ctx)
	if err != nil {
		t.Fatal(err)
	}
	consume, err := warrenv1.NewConsumeServiceClient(conn).Consume(ctx)
	if err != nil {
		t.Fatal(err)
	}
	_, errPublish := publish.Recv()
	_, errConsume := consume.Recv()
	for _, err := range []error{errPublish, errConsume} {
		wantRefusal(t, err, codes.DeadlineExceeded, reasonOpenTimeout)
	}
	if n := s.Sessions(); n != 0 {
		t.Errorf("%d sessions", n)
	}
}

// TestIdleConnectionsEnd: a connection without calls is told to go, and closed.
func TestIdleConnectionsEnd(t *testing.T) {
	t.Parallel()
	_, addr := served(t, func(p *patience) { p.idle = 50 * time.Millisecond })
	r := rudely(t, addr)
	for {
		f, err := r.framer.ReadFrame()
		if errors.Is(err, io.EOF) || errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			t.Fatalf("the connection is still there: %v", err)
		}
		if ping, ok := f.(*http2.PingFrame); ok && !ping.IsAck() { // it looks whether anything is on its way
			if err := r.framer.WritePing(true, ping.Data); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// swallower passes bytes between a client and a server, until it swallows those to the server.
type swallower struct {
	net.Listener
	to        string
	swallows  atomic.Bool
	endedByIt chan struct{} // the server has ended the connection
}

func newSwallower(t *testing.T, to string) *swallower {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &swallower{Listener: ln, to: to, endedByIt: make(chan struct{})}
	t.Cleanup(func() { _ = ln.Close() })
	go p.pass() // ends with the connection, which the client or the server ends
	return p
}

func (p *swallower) pass() {
	client, err := p.Accept()
	if err != nil {
		return
	}
	defer client.Close()
	server, err := net.Dial("tcp", p.to)
	if err != nil {
		return
	}
	defer server.Close()
	go func() { // ends with the client
		b := make([]byte, 4096)
		for {
			n, err := client.Read(b)
			if err != nil {
				return
			}
			if !p.swallows.Load() {
				_, _ = server.Write(b[:n]) // the other direction tells
			}
		}
	}()
	_, _ = io.Copy(client, server)
	close(p.endedByIt)
}

// TestDeadPeersAreFound: a client from which nothing comes any more is asked, and its connection ends with its streams; one that answers stays.
func TestDeadPeersAreFound(t *testing.T) {
	t.Parallel()
	s, addr := served(t, func(p *patience) { p.alive, p.answer = time.Second, 4*time.Second })
	dead, alive := newSwallower(t, addr), newSwallower(t, addr)
	ctx, cancel := context.WithTimeout(t.Context(), limitsWait)
	defer cancel()
	for _, p := range []*swallower{dead, alive} {
		stream, err := grpc_health_v1.NewHealthClient(connected(t, p.Addr().String())).Watch(ctx, &grpc_health_v1.HealthCheckRequest{})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := stream.Recv(); err != nil {
			t.Fatal(err)
		}
	}
	if f := s.Figures(); f.Connections != 2 || f.Accepted != 2 {
		t.Errorf("%+v, want two connections", f)
	}
	dead.swallows.Store(true)
	select {
	case <-dead.endedByIt:
	case <-ctx.Done():
		t.Fatal("a connection from which nothing comes is still there")
	}
	select {
	case <-alive.endedByIt:
		t.Error("a connection that is alive was ended")
	default:
	}
	until(t, "one connection", func() bool { return s.Figures().Connections == 1 })
}

// flood sends a reader events until that is refused.
type flood struct {
	warrenv1.UnimplementedStatusServiceServer
	s     *Server
	ended chan struct{}
}

func (f *flood) Watch(_ *warrenv1.WatchRequest, stream grpc.ServerStreamingServer[warrenv1.WatchResponse]) error {
	defer close(f.ended)
	w := &watch{s: f.s, stream: stream, ending: make(chan struct{})}
	for {
		if err := w.send(stream.Context(), &warrenv1.WatchResponse{Events: []*warrenv1.Event{{Name: strings.Repeat("n", 8<<10)}}}); err != nil {
			return refusalOf(err)
		}
	}
}

// TestSlowWatchersAreCutOff: who does not read a stream of events is cut off, and what there was to tell is not kept.
func TestSlowWatchersAreCutOff(t *testing.T) {
	t.Parallel()
	s := New(Config{Logger: slog.New(slog.DiscardHandler)}, nil)
	s.waits.read = 100 * time.Millisecond
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	lib := grpc.NewServer()
	f := &flood{s: s, ended: make(chan struct{})}
	warrenv1.RegisterStatusServiceServer(lib, f)
	go func() { _ = lib.Serve(ln) }() // ends with Stop
	t.Cleanup(func() { lib.Stop(); s.workers.Wait() })
	ctx, cancel := context.WithTimeout(t.Context(), limitsWait)
	defer cancel()
	stream, err := warrenv1.NewStatusServiceClient(connected(t, ln.Addr().String())).Watch(ctx, &warrenv1.WatchRequest{})
	if err != nil {
		t.Fatal(err)
	}
	select { // the library reads no more by itself than it has a window for
	case <-f.ended:
	case <-ctx.Done():
		t.Fatal("a reader that does not read is not cut off")
	}
	events := 0
	for err == nil {
		_, err = stream.Recv()
		events++
	}
	wantRefusal(t, err, codes.ResourceExhausted, reasonSlow)
	if most := 256 << 10 / (8 << 10); events > most {
		t.Errorf("%d events came, more than %d", events, most)
	}
}
