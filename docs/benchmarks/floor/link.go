//go:build linux

package main

import (
	"bufio"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"slices"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// maxMessage is the most bytes of a message on a link: the spare follower's batch.
const maxMessage = batch * bodySize

// link is an ordered way to another process. What receive returns is valid until the next call; each direction has one user.
type link interface {
	send(message []byte) error
	receive() ([]byte, error)
}

// frames is a link over TCP: each message behind its length.
type frames struct {
	conn    net.Conn
	in      *bufio.Reader
	out     []byte
	message []byte
}

func newFrames(c net.Conn) *frames { return &frames{conn: c, in: bufio.NewReaderSize(c, 64<<10)} }

func (f *frames) send(message []byte) error {
	f.out = binary.BigEndian.AppendUint32(f.out[:0], uint32(len(message)))
	f.out = append(f.out, message...)
	_, err := f.conn.Write(f.out)
	return err
}

func (f *frames) receive() ([]byte, error) {
	var head [4]byte
	if _, err := io.ReadFull(f.in, head[:]); err != nil {
		return nil, err
	}
	n := int(binary.BigEndian.Uint32(head[:]))
	if n > maxMessage {
		return nil, fmt.Errorf("a message of %d bytes", n)
	}
	f.message = slices.Grow(f.message[:0], n)[:n]
	_, err := io.ReadFull(f.in, f.message)
	return f.message, err
}

// stream is a link over a gRPC stream.
type stream struct {
	grpc interface {
		SendMsg(message any) error
		RecvMsg(message any) error
	}
	out, in wrapperspb.BytesValue
}

func (s *stream) send(message []byte) error {
	s.out.Value = message
	return s.grpc.SendMsg(&s.out)
}

func (s *stream) receive() ([]byte, error) {
	err := s.grpc.RecvMsg(&s.in)
	return s.in.Value, err
}

const (
	serviceName = "floor"
	streamName  = "link"
	// window is so large that no message waits for it, and that it is rarely renewed.
	window = 8 << 20
)

// dial opens a link to a node.
func dial(ctx context.Context, kind, addr string) (link, error) {
	if kind == "tcp" {
		c, err := (&net.Dialer{}).DialContext(ctx, "tcp", addr)
		return newFrames(c), err
	}
	c, err := grpc.NewClient(addr, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithInitialWindowSize(window), grpc.WithInitialConnWindowSize(window))
	if err != nil {
		return nil, err
	}
	s, err := c.NewStream(ctx, &grpc.StreamDesc{StreamName: streamName, ServerStreams: true, ClientStreams: true}, "/"+serviceName+"/"+streamName)
	return &stream{grpc: s}, err
}

// accept serves one link.
func accept(l net.Listener, kind string, serve func(link) error) error {
	if kind == "tcp" {
		c, err := l.Accept()
		if err != nil {
			return err
		}
		return serve(newFrames(c))
	}
	server := grpc.NewServer(grpc.InitialWindowSize(window), grpc.InitialConnWindowSize(window))
	desc := grpc.StreamDesc{StreamName: streamName, ServerStreams: true, ClientStreams: true, Handler: func(_ any, s grpc.ServerStream) error {
		return serve(&stream{grpc: s})
	}}
	server.RegisterService(&grpc.ServiceDesc{ServiceName: serviceName, HandlerType: (*any)(nil), Streams: []grpc.StreamDesc{desc}}, struct{}{})
	return server.Serve(l)
}
