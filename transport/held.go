package transport

import (
	"io"

	"google.golang.org/grpc/mem"
)

// heldMin is the size from which a Raft frame stays in gRPC's buffers: the entries of an append are copied from them
// into the log, and nowhere else.
const heldMin = copyBytesMax

// cursor walks the bytes of one message, which lie in gRPC's buffers. A buffer is freed as soon as it is passed.
type cursor struct {
	bufs mem.BufferSlice // what is left; the first one from off on
	off  int
	left int
}

// walk makes the buffers of a message the cursor's.
func walk(bufs mem.BufferSlice) cursor { return cursor{bufs: bufs, left: bufs.Len()} }

// next returns what is left of the first buffer that has anything left, at most n bytes, and steps behind it. There are n bytes. If h is not nil, it gets
// a reference.
func (c *cursor) next(n int, h *held) []byte {
	for {
		buf := c.bufs[0]
		b := buf.ReadOnlyData()[c.off:]
		b = b[:min(n, len(b))]
		if h != nil && len(b) > 0 {
			buf.Ref()
			h.pieces, h.bufs = append(h.pieces, b), append(h.bufs, buf)
		}
		c.off += len(b)
		c.left -= len(b)
		if len(b) > 0 {
			return b
		}
		c.pass()
	}
}

// pass frees the first buffer.
func (c *cursor) pass() {
	c.bufs[0].Free()
	c.bufs[0] = nil
	c.bufs, c.off = c.bufs[1:], 0
}

// free frees what the cursor has not passed.
func (c *cursor) free() {
	for len(c.bufs) > 0 {
		c.pass()
	}
	c.left = 0
}

// ReadByte implements io.ByteReader.
func (c *cursor) ReadByte() (byte, error) {
	if c.left == 0 {
		return 0, io.EOF
	}
	return c.next(1, nil)[0], nil
}

// peek returns the next byte, of which there is one, and does not step behind it.
func (c *cursor) peek() byte {
	b := c.next(1, nil)[0]
	c.off--
	c.left++
	return b
}

// read fills b; it reports false if the message is shorter.
func (c *cursor) read(b []byte) bool {
	if len(b) > c.left {
		return false
	}
	for len(b) > 0 {
		b = b[copy(b, c.next(len(b), nil)):]
	}
	return true
}

// hold adds the next n bytes to h without copying them; it reports false if the message is shorter.
func (c *cursor) hold(n int, h *held) bool {
	if n > c.left {
		return false
	}
	h.bytes += n
	for n > 0 {
		n -= len(c.next(n, h))
	}
	return true
}

// held are bytes that lie in gRPC's buffers, in order, with a reference to each buffer.
type held struct {
	pieces pieces
	bufs   mem.BufferSlice
	bytes  int
}

// free gives the buffers back. Nobody may read the pieces any more.
func (h *held) free() {
	h.bufs.Free()
	*h = held{}
}

// skip returns p without its first n bytes, which there are.
func (p pieces) skip(n int) pieces {
	for len(p) > 0 && n >= len(p[0]) {
		n -= len(p[0])
		p = p[1:]
	}
	if n == 0 {
		return p
	}
	return append(pieces{p[0][n:]}, p[1:]...)
}

// first copies at most n bytes from the beginning of p; what lies in one piece is not copied.
func (p pieces) first(n int) []byte {
	if len(p) > 0 && len(p[0]) >= n {
		return p[0][:n:n]
	}
	b := make([]byte, 0, min(n, p.bytes()))
	for _, q := range p {
		b = append(b, q[:min(len(q), n-len(b))]...)
	}
	return b
}

// cut parts p into its first n bytes, which there are, and the rest, which takes p's place.
func (p pieces) cut(n int) (first, rest pieces) {
	if n == 0 {
		return nil, p
	}
	i := 0
	for n > len(p[i]) {
		n -= len(p[i])
		i++
	}
	if n == len(p[i]) {
		return p[: i+1 : i+1], p[i+1:]
	}
	first = append(p[:i:i], p[i][:n:n])
	p[i] = p[i][n:]
	return first, p[i:]
}
