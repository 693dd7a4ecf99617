package grpc

import (
	"encoding/binary"
	"testing"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// begin starts a call and sends the beginning of a request that it says is so long.
func (r *rude) begin(stream uint32, path string, bytes uint32) {
	r.t.Helper()
	r.block.Reset()
	for _, f := range []hpack.HeaderField{
		{Name: ":method", Value: "POST"},
		{Name: ":scheme", Value: "http"},
		{Name: ":path", Value: path},
		{Name: ":authority", Value: "node"},
		{Name: "content-type", Value: "application/grpc"},
		{Name: "te", Value: "trailers"},
	} {
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
	for i := range uint32(openStreamsMax + 1) {
		r.begin(2*i+1, "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo", 2)
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
