package transport

import (
	"fmt"

	"google.golang.org/grpc"
	"google.golang.org/grpc/mem"
)

// rawMessage is the only message type of the service: bytes.
type rawMessage struct{ data mem.BufferSlice }

// rawBytes wraps a byte slice for sending.
func rawBytes(b []byte) *rawMessage {
	return &rawMessage{data: mem.BufferSlice{mem.SliceBuffer(b)}}
}

// take copies the message out and frees gRPC's buffers.
func (m *rawMessage) take() []byte {
	b := m.data.Materialize()
	m.data.Free()
	m.data = nil
	return b
}

// rawCodec hands bytes through gRPC untouched.
type rawCodec struct{}

func (rawCodec) Marshal(v any) (mem.BufferSlice, error) {
	m, ok := v.(*rawMessage)
	if !ok {
		return nil, fmt.Errorf("transport: cannot send a %T", v)
	}
	return m.data, nil
}

func (rawCodec) Unmarshal(data mem.BufferSlice, v any) error {
	m, ok := v.(*rawMessage)
	if !ok {
		return fmt.Errorf("transport: cannot receive a %T", v)
	}
	data.Ref()
	m.data = data
	return nil
}

func (rawCodec) Name() string { return "warren-raw" }

const (
	serviceName    = "warren.transport.v1.Node"
	linkMethod     = "/" + serviceName + "/Link"
	snapshotMethod = "/" + serviceName + "/Snapshot"
	callMethod     = "/" + serviceName + "/Call"
)

// nodeService is what the gRPC server calls.
type nodeService interface {
	serveLink(stream grpc.ServerStream) error
	serveSnapshot(stream grpc.ServerStream) error
	serveCall(stream grpc.ServerStream) error
}

// service describes the three methods of a node. A call is one message each way, and a stream here all the same: only of that the handler may say how long
// it waits for the message.
func service() *grpc.ServiceDesc {
	return &grpc.ServiceDesc{
		ServiceName: serviceName,
		HandlerType: (*nodeService)(nil),
		Streams: []grpc.StreamDesc{
			{
				StreamName: "Call", ServerStreams: true, ClientStreams: true,
				Handler: func(srv any, s grpc.ServerStream) error { return srv.(nodeService).serveCall(s) },
			},
			{
				StreamName: "Link", ServerStreams: true, ClientStreams: true,
				Handler: func(srv any, s grpc.ServerStream) error { return srv.(nodeService).serveLink(s) },
			},
			{
				StreamName: "Snapshot", ServerStreams: true, ClientStreams: true,
				Handler: func(srv any, s grpc.ServerStream) error { return srv.(nodeService).serveSnapshot(s) },
			},
		},
	}
}
