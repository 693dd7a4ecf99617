package amqp

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

const (
	readBufferMin   = 4 << 10  // what an idle connection keeps, in bytes
	readBufferAhead = 64 << 10 // how far a busy one reads ahead
	readEmptyMax    = 100      // reads without data or error before giving up
	readShrinkAfter = 64       // reads in a row that used little of the buffer before it is halved
)

// A FrameReader cuts a byte stream into frames. It owns one buffer, which follows
// the traffic: small for a connection that trickles, larger for one that streams
// or sends large frames, never above the negotiated frame size plus overhead or the read-ahead,
// whichever is larger. It is used by one goroutine.
type FrameReader struct {
	r          io.Reader
	buf        []byte
	start, end int    // buf[start:end] is read and not yet consumed
	max        uint32 // largest payload in bytes
	sparse     int    // reads in a row that used little of buf
	err        error  // came along with the last bytes read; due when they do not suffice
}

// NewFrameReader returns a reader that accepts frames up to [FrameMaxInitial].
func NewFrameReader(r io.Reader) *FrameReader {
	fr := &FrameReader{r: r}
	fr.SetMax(FrameMaxInitial)
	return fr
}

// SetMax sets the largest frame in bytes, overhead included; 0 stands for no
// negotiated limit. Values are clamped to [FrameMinSize, FrameMaxLimit]. As servers
// have long done, the reader lets the payload alone be that large, because some
// clients forget the overhead.
func (fr *FrameReader) SetMax(frameMax uint32) {
	if frameMax == 0 {
		frameMax = FrameMaxLimit
	}
	fr.max = min(max(frameMax, FrameMinSize), FrameMaxLimit)
}

// Header reads the eight bytes that open a connection. It is called once, before
// Next. A peer that closes earlier gives [io.EOF] if it sent nothing, otherwise
// [io.ErrUnexpectedEOF].
func (fr *FrameReader) Header() (ProtocolHeader, error) {
	var h ProtocolHeader
	if err := fr.need(len(h)); err != nil {
		return h, err
	}
	copy(h[:], fr.buf[fr.start:])
	fr.start += len(h)
	return h, nil
}

// Next returns the next frame; its payload is valid until the following call. The
// stream ending between frames gives [io.EOF], within a frame [io.ErrUnexpectedEOF].
// A frame of unknown type, beyond the maximum or without its end byte gives an
// [*Error] with [FrameError]; the reader has lost the frame boundary then and must
// not be used again. Any other error is the stream's; after one that passes, such as
// a deadline, Next may be called again and goes on where it was.
func (fr *FrameReader) Next() (Frame, error) {
	if err := fr.need(frameHeadBytes); err != nil {
		return Frame{}, err
	}
	head := fr.buf[fr.start:]
	f := Frame{Type: head[0], Channel: binary.BigEndian.Uint16(head[1:])}
	size := binary.BigEndian.Uint32(head[3:])
	if err := fr.check(f, size); err != nil {
		return Frame{}, err
	}
	total := FrameOverhead + int(size)
	if err := fr.need(total); err != nil {
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		return Frame{}, err
	}
	b := fr.buf[fr.start : fr.start+total]
	if end := b[total-1]; end != FrameEnd {
		return Frame{}, &Error{
			Code: FrameError,
			Text: fmt.Sprintf("frame of type %d on channel %d with %d bytes ends with 0x%02x", f.Type, f.Channel, size, end),
		}
	}
	fr.start += total
	f.Payload = b[frameHeadBytes : total-1 : total-1]
	return f, nil
}

func (fr *FrameReader) check(f Frame, size uint32) error {
	switch f.Type {
	case FrameMethod, FrameHeader, FrameBody, FrameHeartbeat:
	default:
		return &Error{Code: FrameError, Text: fmt.Sprintf("frame of unknown type %d on channel %d", f.Type, f.Channel)}
	}
	if size > fr.max {
		return &Error{
			Code: FrameError,
			Text: fmt.Sprintf("frame of type %d on channel %d with %d bytes exceeds the maximum of %d", f.Type, f.Channel, size, fr.max),
		}
	}
	return nil
}

// Ready reports whether Next will return without reading: a whole frame, or the
// head of an invalid one, is buffered. A writer that flushes when it is false
// answers a burst of frames in one piece.
func (fr *FrameReader) Ready() bool {
	b := fr.buf[fr.start:fr.end]
	if len(b) < frameHeadBytes {
		return false
	}
	size := binary.BigEndian.Uint32(b[3:])
	return uint64(len(b)) >= FrameOverhead+uint64(size) || fr.check(Frame{Type: b[0]}, size) != nil
}

// Buffered returns the number of bytes read from the stream and not yet returned.
func (fr *FrameReader) Buffered() int { return fr.end - fr.start }

// need makes buf[start:start+n] available.
func (fr *FrameReader) need(n int) error {
	if fr.end-fr.start >= n {
		return nil
	}
	fr.makeRoom(n)
	for empty := 0; fr.end-fr.start < n; {
		room := fr.buf[fr.end:]
		got, err := 0, fr.err
		if fr.err = nil; err == nil {
			got, err = fr.r.Read(room)
		}
		if got < 0 || got > len(room) {
			return fmt.Errorf("read frame: reader returned %d bytes for a buffer of %d", got, len(room))
		}
		fr.end += got
		fr.adapt(got == len(room))
		if fr.end-fr.start >= n {
			fr.err = err
			return nil
		}
		switch {
		case err == io.EOF && fr.end > fr.start:
			return io.ErrUnexpectedEOF
		case err != nil:
			return err
		case got > 0:
			empty = 0
		default:
			if empty++; empty == readEmptyMax {
				return io.ErrNoProgress
			}
		}
	}
	return nil
}

// makeRoom moves what is buffered to the front of a buffer with space for n bytes.
func (fr *FrameReader) makeRoom(n int) {
	size := max(len(fr.buf), readBufferMin)
	if fr.sparse == readShrinkAfter {
		fr.sparse = 0
		size = max(size/2, readBufferMin)
	}
	for size < n { // so that size also exceeds what is held, which is less than n
		size *= 2
	}
	if size > len(fr.buf) {
		size = min(size, max(n, readBufferAhead))
	}
	held := fr.buf[fr.start:fr.end]
	if size == len(fr.buf) {
		copy(fr.buf, held)
	} else {
		buf := make([]byte, size)
		copy(buf, held)
		fr.buf = buf
	}
	fr.start, fr.end = 0, len(held)
}

// adapt notes how much of the buffer a read used, and grows it for a stream that
// fills it. filled says that the read took all the room there was.
func (fr *FrameReader) adapt(filled bool) {
	switch {
	case filled && len(fr.buf) < readBufferAhead:
		buf := make([]byte, min(2*len(fr.buf), readBufferAhead))
		copy(buf, fr.buf[fr.start:fr.end])
		fr.start, fr.end, fr.buf = 0, fr.end-fr.start, buf
		fr.sparse = 0
	case fr.end > len(fr.buf)/4:
		fr.sparse = 0
	case fr.sparse < readShrinkAfter:
		fr.sparse++
	}
}
