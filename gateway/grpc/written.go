package grpc

import (
	"context"
	"net"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding"
	encodingproto "google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/peer"
)

// noticed is a response of which it is known when the client has room for all of it: the library takes a call's first message whatever its size, and keeps what
// the client does not read, also when the call has ended.
type noticed struct {
	m       any
	written chan struct{} // closed then
	begun   bool          // there will be a notice
}

// Get implements mem.BufferPool, which is asked for nothing.
func (n *noticed) Get(length int) *[]byte {
	b := make([]byte, length)
	return &b
}

// Put implements mem.BufferPool: the library needs the bytes no more.
func (n *noticed) Put(*[]byte) { close(n.written) }

// noticing is the codec of all messages.
type noticing struct{ encoding.CodecV2 }

func newCodec() noticing { return noticing{encoding.GetCodecV2(encodingproto.Name)} }

// Marshal implements encoding.CodecV2.
func (c noticing) Marshal(v any) (mem.BufferSlice, error) {
	n, ok := v.(*noticed)
	if !ok {
		return c.CodecV2.Marshal(v)
	}
	data, err := c.CodecV2.Marshal(n.m)
	if err != nil {
		return nil, err
	}
	defer data.Free()
	b := data.Materialize()
	if mem.IsBelowBufferPoolingThreshold(cap(b)) {
		return mem.BufferSlice{mem.SliceBuffer(b)}, nil // small, and without notice
	}
	n.begun = true
	return mem.BufferSlice{mem.NewBuffer(&b, n)}, nil
}

// sendRead sends a response and returns when the client has room for all of it. Who has none after a while is disconnected, as soon as others need its place:
// nothing else frees the response.
func (s *Server) sendRead(stream grpc.ServerStream, resp any, needed func() bool) error {
	ctx := stream.Context()
	_ = grpc.SetSendCompressor(ctx, encoding.Identity) // else what is noticed is not what is sent; it fails in tests only
	sent := s.apart(func() error {
		n := &noticed{m: resp, written: make(chan struct{})}
		err := stream.SendMsg(n)
		if err == nil && n.begun {
			select {
			case <-n.written:
			case <-ctx.Done():
				err = context.Cause(ctx)
			}
		}
		return err
	})
	timer := time.NewTimer(s.waits.peek)
	defer timer.Stop()
	for {
		select {
		case err := <-sent:
			return err
		case <-timer.C:
			if needed() {
				s.disconnect(ctx)
				return refuse(codes.ResourceExhausted, reasonSlow, "the response was not read in %v", s.waits.peek)
			}
			timer.Reset(s.waits.peek / 30)
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// disconnect ends a client's connection.
func (s *Server) disconnect(ctx context.Context) {
	p, ok := peer.FromContext(ctx)
	if !ok {
		return
	}
	if conn, ok := s.conns.Load(p.Addr.String()); ok {
		s.log.Warn("gRPC connection ended: a response was not read", "peer", p.Addr.String())
		_ = conn.(net.Conn).Close() //nolint:forcetypeassert // there is nothing else
	}
}
