package grpc

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/peer"
	"google.golang.org/protobuf/proto"

	warrenv1 "github.com/warrenmq/warren/api/warren/v1"
)

const (
	// openBytesMax bounds a request to a service that needs no login.
	openBytesMax = 16 << 10
	// openStreamsMax is how many streams of requests a node has that need no login: one that is not read fills its window.
	openStreamsMax = 64
	// openCallsMax is how many calls that need no login a connection has at a time on which nobody has logged in: each takes some 15 KiB, and who watches
	// the health of a node does so for ever.
	openCallsMax = 8
	// windowBytes is what a client may send of a stream that nobody reads. The library's own grows to 16 MiB, for each of them.
	windowBytes     = 256 << 10
	connWindowBytes = 4 << 20
)

// registrar registers calls of one request as streams: the library reads the request of a unary call, of up to 17 MiB, before it asks whether the
// client may make it. The client sees no difference.
type registrar struct {
	s   *Server
	lib *grpc.Server
}

// RegisterService implements grpc.ServiceRegistrar.
func (r registrar) RegisterService(d *grpc.ServiceDesc, impl any) {
	as := *d
	as.Methods, as.Streams = nil, append([]grpc.StreamDesc{}, d.Streams...)
	for i := range d.Methods {
		as.Streams = append(as.Streams, r.s.asStream(d.ServiceName, &d.Methods[i]))
	}
	r.lib.RegisterService(&as, impl)
}

func (s *Server) asStream(service string, m *grpc.MethodDesc) grpc.StreamDesc {
	info := &grpc.StreamServerInfo{FullMethod: "/" + service + "/" + m.MethodName}
	handler := func(srv any, stream grpc.ServerStream) error {
		answer := func(recv func(any) error) (any, error) { return m.Handler(srv, stream.Context(), recv, s.unary) }
		switch info.FullMethod {
		case warrenv1.MessageService_Peek_FullMethodName:
			return s.peekAnswer(stream, answer)
		case warrenv1.ConsumeService_Get_FullMethodName:
			return s.getAnswer(stream, answer)
		case warrenv1.PublishService_Publish_FullMethodName:
			if err := s.holdUp(stream.Context(), s.ends()); err != nil { // before there is a message that takes memory
				return err
			}
		}
		resp, err := answer(stream.RecvMsg)
		if err != nil {
			return err
		}
		return stream.SendMsg(resp)
	}
	return grpc.StreamDesc{StreamName: m.MethodName, Handler: func(srv any, stream grpc.ServerStream) error { return s.stream(srv, stream, info, handler) }}
}

// withoutLogin passes on a call that needs no login.
func (s *Server) withoutLogin(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
	if info.IsClientStream {
		if s.openStreams.Add(1) > openStreamsMax {
			s.openStreams.Add(-1)
			return refuse(codes.ResourceExhausted, reasonTooMany, "the node has %d such streams, which is as many as it takes", openStreamsMax)
		}
		defer s.openStreams.Add(-1)
	}
	if p, ok := peer.FromContext(stream.Context()); ok {
		if conn := s.connOf(p.Addr); conn != nil {
			defer conn.openCalls.Add(-1)
			if conn.openCalls.Add(1) > openCallsMax && !conn.known.Load() {
				return refuse(codes.ResourceExhausted, reasonTooMany, "nobody has logged in on this connection: it may have %d calls at a time", openCallsMax)
			}
		}
	}
	wire, ok := grpc.ServerTransportStreamFromContext(stream.Context()).(wireReader)
	if !ok {
		return refuse(codes.Internal, "INTERNAL", "internal error") // another version of the library, which the tests find
	}
	ending := s.ends()
	ctx, cancel := context.WithCancel(stream.Context())
	defer cancel()
	s.workers.Go(func() { // ends with the call
		select {
		case <-ending:
			select { // who watches the health is told first
			case <-time.After(goodbyeTime):
				cancel()
			case <-ctx.Done():
			}
		case <-ctx.Done():
		}
	})
	err := handler(srv, &openStream{ServerStream: stream, ctx: ctx, s: s, wire: wire, many: info.IsClientStream})
	if err != nil && ctx.Err() != nil && stream.Context().Err() == nil {
		return refuse(codes.Unavailable, reasonLeaving, "the node leaves")
	}
	return err
}

// goodbyeTime is how long streams that need no login go on when the node leaves.
const goodbyeTime = 100 * time.Millisecond

// wireReader fills a buffer with what a stream brings; io.EOF tells that it was at its end.
type wireReader interface{ ReadMessageHeader(b []byte) error }

// openStream is a stream that needs no login: its requests are small, and come soon. The library has one bound for the requests of all.
type openStream struct {
	grpc.ServerStream
	ctx  context.Context //nolint:containedctx // that is how the library passes it on
	s    *Server
	wire wireReader
	many bool // requests
	read bool // the first one
}

// Context implements grpc.ServerStream.
func (o *openStream) Context() context.Context { return o.ctx }

// RecvMsg implements grpc.ServerStream.
func (o *openStream) RecvMsg(m any) error {
	wait := o.s.waits.open
	if o.read {
		wait = o.s.waits.idle
	}
	o.read = true
	b, err := within(o.Context(), o.s, wait, o.request)
	if err != nil {
		return err
	}
	if err := proto.Unmarshal(b, m.(proto.Message)); err != nil { //nolint:forcetypeassert // generated code has no others
		return invalid("the request is not one")
	}
	return nil
}

// request reads one: a byte that is 0 if it is not compressed, its length, and itself.
func (o *openStream) request() ([]byte, error) {
	var head [5]byte
	if err := o.wire.ReadMessageHeader(head[:]); err != nil {
		return nil, err
	}
	n := binary.BigEndian.Uint32(head[1:])
	switch {
	case head[0] != 0:
		return nil, refuse(codes.Unimplemented, "NOT_IMPLEMENTED", "compressed requests are for services with a login")
	case n > openBytesMax:
		return nil, refuse(codes.ResourceExhausted, reasonInvalid, "a request of %d bytes is larger than %d", n, openBytesMax)
	}
	b := make([]byte, n)
	if err := o.wire.ReadMessageHeader(b); err != nil {
		return nil, err
	}
	if o.many {
		return b, nil
	}
	if err := o.wire.ReadMessageHeader(head[:1]); !errors.Is(err, io.EOF) {
		return nil, invalid("more than one request")
	}
	return b, nil
}
