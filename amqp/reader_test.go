package amqp

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"
)

func TestFrameGoldens(t *testing.T) {
	cases := []struct {
		name string
		got  []byte
		hex  string
	}{
		{"heartbeat", AppendHeartbeat(nil), "08 0000 00000000 ce"},
		{"method", AppendMethodFrame(nil, 258, &BasicAck{DeliveryTag: 1}), "01 0102 0000000d 003c0050 0000000000000001 00 ce"},
		{"frame", AppendFrame(nil, FrameBody, 1, []byte("hi")), "03 0001 00000002 6869 ce"},
		{"empty content", AppendContent(nil, 1, ClassBasic, nil, nil, 4096), "02 0001 0000000e 003c 0000 0000000000000000 0000 ce"},
		{
			"content", AppendContent(nil, 1, ClassBasic, RawProperties{0x10, 0, 2}, []byte("abc"), 4096),
			"02 0001 0000000f 003c 0000 0000000000000003 1000 02 ce 03 0001 00000003 616263 ce",
		},
	}
	for _, tc := range cases {
		if want := unhex(t, tc.hex); !bytes.Equal(tc.got, want) {
			t.Errorf("%s: got %x, want %x", tc.name, tc.got, want)
		}
	}
}

func TestBodyIsSplit(t *testing.T) {
	const frameMax = 4096
	for _, tc := range []struct{ body, frames int }{
		{0, 0}, {1, 1}, {frameMax - 8, 1}, {frameMax - 7, 2}, {2 * (frameMax - 8), 2}, {10 * frameMax, 11},
	} {
		body := bytes.Repeat([]byte{7}, tc.body)
		out := AppendContent(nil, 5, ClassBasic, nil, body, frameMax)
		if want := ContentSize(nil, tc.body, frameMax); len(out) != want {
			t.Errorf("body of %d: ContentSize says %d, got %d bytes", tc.body, want, len(out))
		}
		fr := NewFrameReader(bytes.NewReader(out))
		fr.SetMax(frameMax)
		head, err := fr.Next()
		if err != nil {
			t.Fatalf("body of %d: %v", tc.body, err)
		}
		h, err := ParseContentHeader(head.Payload)
		if err != nil || h.BodySize != uint64(tc.body) || h.ClassID != ClassBasic {
			t.Errorf("body of %d: header %+v %v", tc.body, h, err)
		}
		var got []byte
		frames := 0
		for {
			f, err := fr.Next()
			if err == io.EOF {
				break
			}
			if err != nil || f.Type != FrameBody || f.Channel != 5 || len(f.Payload)+FrameOverhead > frameMax {
				t.Fatalf("body of %d: frame %d of %d bytes: %v", tc.body, f.Type, len(f.Payload), err)
			}
			got = append(got, f.Payload...)
			frames++
		}
		if frames != tc.frames || !bytes.Equal(got, body) {
			t.Errorf("body of %d: got %d bytes in %d frames, want %d frames", tc.body, len(got), frames, tc.frames)
		}
	}
	if got := BodyChunk(0); got != int(FrameMaxLimit)-FrameOverhead {
		t.Errorf("BodyChunk(0): got %d", got)
	}
	if got := BodyChunk(1); got != int(FrameMinSize)-FrameOverhead {
		t.Errorf("BodyChunk(1): got %d", got)
	}
	if !ContentHeaderFits(make(RawProperties, 4076), 4096) || ContentHeaderFits(make(RawProperties, 4077), 4096) || !ContentHeaderFits(make(RawProperties, 1<<20), 0) {
		t.Error("ContentHeaderFits: wrong boundary")
	}
}

func TestFrameReaderRefuses(t *testing.T) {
	big := AppendFrame(nil, FrameBody, 1, make([]byte, 4097))
	cases := []struct {
		name  string
		bytes []byte
		text  string
	}{
		{"type", unhex(t, "07 0001 00000000 ce"), "unknown type 7"},
		{"type of an HTTP request", []byte("GET / HTTP/1.1\r\n"), "unknown type 71"},
		{"end byte", unhex(t, "08 0000 00000000 cf"), "ends with 0xcf"},
		{"size", big, "4097 bytes exceeds the maximum of 4096"},
		{"huge size", unhex(t, "03 0001 ffffffff"), "exceeds"},
	}
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			fr := NewFrameReader(bytes.NewReader(tc.bytes))
			fr.SetMax(4096)
			_, err := fr.Next()
			e, ok := errors.AsType[*Error](err)
			if !ok || e.Code != FrameError || !strings.Contains(e.Text, tc.text) {
				t.Errorf("Next: got %v, want 501 with %q", err, tc.text)
			}
			if len(fr.buf) > readBufferAhead {
				t.Errorf("buffer grew to %d", len(fr.buf))
			}
			if !fr.Ready() {
				t.Error("Ready: want true for a frame that is refused without reading")
			}
		})
	}
	fr := NewFrameReader(bytes.NewReader(AppendFrame(nil, FrameBody, 1, make([]byte, 4096))))
	fr.SetMax(1)
	if _, err := fr.Next(); err != nil {
		t.Errorf("payload of exactly the maximum: %v, want the grace of the overhead", err)
	}
}

func TestFrameReaderEnds(t *testing.T) {
	whole := AppendMethodFrame(nil, 1, &BasicPublish{Exchange: "e", RoutingKey: "k"})
	for n := range len(whole) {
		fr := NewFrameReader(bytes.NewReader(whole[:n]))
		want := io.ErrUnexpectedEOF
		if n == 0 {
			want = io.EOF
		}
		if _, err := fr.Next(); err != want {
			t.Errorf("%d of %d bytes: got %v, want %v", n, len(whole), err, want)
		}
	}
	broken := errors.New("broken")
	fr := NewFrameReader(io.MultiReader(bytes.NewReader(whole), bytes.NewReader(whole[:9]), iotest.ErrReader(broken)))
	if _, err := fr.Next(); err != nil {
		t.Fatalf("first frame: %v", err)
	}
	if _, err := fr.Next(); err != broken {
		t.Errorf("failing reader: got %v, want its own error", err)
	}
	if _, err := NewFrameReader(stuck{}).Next(); err != io.ErrNoProgress {
		t.Errorf("reader without progress: got %v", err)
	}
	if _, err := NewFrameReader(lying{}).Next(); err == nil {
		t.Error("reader that reports too many bytes: want an error")
	}
}

type stuck struct{}

func (stuck) Read([]byte) (int, error) { return 0, nil }

type lying struct{}

func (lying) Read(b []byte) (int, error) { return len(b) + 1, nil }

func TestFrameReaderHeader(t *testing.T) {
	stream := append([]byte("AMQP\x00\x00\x09\x01"), AppendHeartbeat(nil)...)
	fr := NewFrameReader(iotest.OneByteReader(bytes.NewReader(stream)))
	h, err := fr.Header()
	if err != nil || h != Header091() {
		t.Fatalf("Header: got %s %v", h, err)
	}
	if f, err := fr.Next(); err != nil || f.Type != FrameHeartbeat {
		t.Errorf("Next: got %+v %v", f, err)
	}
	if _, err := NewFrameReader(strings.NewReader("AMQ")).Header(); err != io.ErrUnexpectedEOF {
		t.Errorf("short header: got %v", err)
	}
	if _, err := NewFrameReader(strings.NewReader("")).Header(); err != io.EOF {
		t.Errorf("no header: got %v", err)
	}
}

func TestFrameReaderReady(t *testing.T) {
	two := AppendHeartbeat(AppendHeartbeat(nil))
	r, w := io.Pipe()
	go func() { // ends when the pipe is closed below
		_, _ = w.Write(two[:12])
		_, _ = w.Write(two[12:])
	}()
	defer func() { _ = r.Close() }()
	fr := NewFrameReader(r)
	if fr.Ready() {
		t.Error("Ready before any read: want false")
	}
	if _, err := fr.Next(); err != nil {
		t.Fatal(err)
	}
	if fr.Ready() || fr.Buffered() != 4 {
		t.Errorf("after half of the second frame: got Ready=%v Buffered=%d, want false 4", fr.Ready(), fr.Buffered())
	}
	if _, err := fr.Next(); err != nil {
		t.Fatal(err)
	}
	all := NewFrameReader(bytes.NewReader(two))
	if _, err := all.Next(); err != nil {
		t.Fatal(err)
	}
	if !all.Ready() {
		t.Error("with a whole frame buffered: want true")
	}
}

// TestFrameReaderBufferFollowsTraffic checks that the buffer is small at first,
// grows for a stream, holds one large frame without growing further, and shrinks
// again under small frames.
func TestFrameReaderBufferFollowsTraffic(t *testing.T) {
	small := AppendHeartbeat(nil)
	large := AppendFrame(nil, FrameBody, 1, make([]byte, 131072-FrameOverhead))
	src := &chunks{}
	fr := NewFrameReader(src)
	fr.SetMax(131072)
	next := func() {
		t.Helper()
		if _, err := fr.Next(); err != nil {
			t.Fatal(err)
		}
	}

	src.add(small)
	next()
	if len(fr.buf) != readBufferMin {
		t.Errorf("idle: buffer of %d, want %d", len(fr.buf), readBufferMin)
	}
	src.add(large)
	next()
	if got := len(fr.buf); got != 131072 {
		t.Errorf("large frame: buffer of %d, want 131072", got)
	}
	before := &fr.buf[0]
	for range 10 {
		src.add(large)
		next()
	}
	if before != &fr.buf[0] {
		t.Error("large frames of one size: want the buffer reused")
	}
	for range 8 * (readShrinkAfter + 1) {
		src.add(small)
		next()
	}
	if got := len(fr.buf); got != readBufferMin {
		t.Errorf("after small frames: buffer of %d, want %d", got, readBufferMin)
	}
	for range 5 {
		src.add(bytes.Repeat(small, 20000))
		for range 20000 {
			next()
		}
	}
	if got := len(fr.buf); got != readBufferAhead {
		t.Errorf("stream of small frames: buffer of %d, want %d", got, readBufferAhead)
	}
}

// chunks hands out what was added, one piece per read at most.
type chunks struct{ pieces [][]byte }

func (c *chunks) add(b []byte) { c.pieces = append(c.pieces, b) }

func (c *chunks) Read(b []byte) (int, error) {
	if len(c.pieces) == 0 {
		return 0, io.EOF
	}
	n := copy(b, c.pieces[0])
	if c.pieces[0] = c.pieces[0][n:]; len(c.pieces[0]) == 0 {
		c.pieces = c.pieces[1:]
	}
	return n, nil
}

func TestContentHeaderMalformed(t *testing.T) {
	for _, s := range []string{"", "003c", "003c 0000 00000000000000", "003c 0000 0000000000000000 00", "003c 0001 0000000000000000 0000"} {
		_, err := ParseContentHeader(unhex(t, s))
		if e, ok := errors.AsType[*Error](err); !ok || e.Code != SyntaxError {
			t.Errorf("ParseContentHeader(%s): got %v, want a syntax error", s, err)
		}
	}
}

// TestFrameReaderResumes interrupts the stream after every byte, once with the error
// alone and once together with the bytes before it.
func TestFrameReaderResumes(t *testing.T) {
	stream := AppendHeartbeat(AppendMethodFrame(nil, 3, &BasicAck{DeliveryTag: 5}))
	for _, together := range []bool{false, true} {
		for cut := range len(stream) {
			fr := NewFrameReader(&interrupted{stream: stream, cut: cut, together: together})
			var types []uint8
			interruptions := 0
			for len(types) < 2 {
				f, err := fr.Next()
				switch {
				case err == nil:
					types = append(types, f.Type)
				case err == io.ErrClosedPipe && interruptions == 0:
					interruptions++
				default:
					t.Fatalf("cut at %d: %v", cut, err)
				}
			}
			if types[0] != FrameMethod || types[1] != FrameHeartbeat {
				t.Errorf("cut at %d: got types %v", cut, types)
			}
		}
	}
}

// interrupted fails once with io.ErrClosedPipe when cut bytes are read.
type interrupted struct {
	stream   []byte
	cut, at  int
	together bool
	done     bool
}

func (r *interrupted) Read(b []byte) (int, error) {
	if !r.done && r.at == r.cut {
		r.done = true
		return 0, io.ErrClosedPipe
	}
	end := len(r.stream)
	if !r.done {
		end = r.cut
	}
	n := copy(b, r.stream[r.at:end])
	r.at += n
	if !r.done && r.together && r.at == r.cut {
		r.done = true
		return n, io.ErrClosedPipe
	}
	if n == 0 {
		return 0, io.EOF
	}
	return n, nil
}

func TestSetMaxIsClamped(t *testing.T) {
	fr := NewFrameReader(nil)
	for in, want := range map[uint32]uint32{0: FrameMaxLimit, 1: FrameMinSize, 8192: 8192, 1 << 31: FrameMaxLimit} {
		if fr.SetMax(in); fr.max != want {
			t.Errorf("SetMax(%d): got %d, want %d", in, fr.max, want)
		}
	}
}
