package amqp

import (
	"encoding/binary"
	"fmt"
	"unicode/utf8"
)

// notUTF8 is the fault of a short string that has to be text, in RabbitMQ's words.
const notUTF8 = "Malformed UTF-8 in shortstr"

// A cursor reads values one after the other and keeps the first fault; every
// read after a fault yields zero values. Decoders are straight lines because of
// it: they look at the fault once, at the end.
type cursor struct {
	buf   []byte
	pos   int    // 0 <= pos <= len(buf)
	fault string // what was wrong first; empty while all is well
	at    int    // pos at the first fault

	values int    // table values and array items met so far
	text   string // copy of buf, made when a table has to remember some of it
}

func (c *cursor) fail(fault string) {
	if c.fault == "" {
		c.fault, c.at = fault, c.pos
		c.pos = len(c.buf)
	}
}

// short is fail for a value that the buffer does not hold. It is kept out of line so
// that the readers below are small enough to be inlined; they need not look at the
// fault because fail leaves nothing to read.
//
//go:noinline
func (c *cursor) short() { c.fail("value runs past the end") }

// take returns the next n bytes without copying, nil when they are not there.
func (c *cursor) take(n int) []byte {
	end := c.pos + n
	if n < 0 || end > len(c.buf) {
		c.short()
		return nil
	}
	b := c.buf[c.pos:end:end]
	c.pos = end
	return b
}

func (c *cursor) u8() uint8 {
	if c.pos >= len(c.buf) {
		c.short()
		return 0
	}
	v := c.buf[c.pos]
	c.pos++
	return v
}

func (c *cursor) u16() uint16 {
	if b := c.take(2); b != nil {
		return binary.BigEndian.Uint16(b)
	}
	return 0
}

func (c *cursor) u32() uint32 {
	if b := c.take(4); b != nil {
		return binary.BigEndian.Uint32(b)
	}
	return 0
}

func (c *cursor) u64() uint64 {
	if b := c.take(8); b != nil {
		return binary.BigEndian.Uint64(b)
	}
	return 0
}

// shortstrBytes returns a short string's bytes in place.
func (c *cursor) shortstrBytes() []byte { return c.take(int(c.u8())) }

// longstrBytes returns a long string's bytes in place.
func (c *cursor) longstrBytes() []byte {
	n := c.u32()
	if uint64(n) > uint64(len(c.buf)-c.pos) {
		c.short()
		return nil
	}
	return c.take(int(n))
}

// shortstr stores a short string in s, keeping the old string if it is equal.
func (c *cursor) shortstr(s *string) {
	if b := c.shortstrBytes(); string(b) != *s {
		*s = string(b)
	}
}

// shorttext is shortstr for what has to be UTF-8, names for example: they are shown in JSON, which has no other text.
func (c *cursor) shorttext(s *string) {
	c.shortstr(s)
	if !utf8.ValidString(*s) {
		c.fail(notUTF8)
	}
}

// longstr stores a long string in s, keeping the old string if it is equal.
func (c *cursor) longstr(s *string) {
	if b := c.longstrBytes(); string(b) != *s {
		*s = string(b)
	}
}

// method reads the method number and reports an error unless it is want.
func (c *cursor) method(want MethodID) error {
	id := MethodID(c.u32())
	if c.fault != "" {
		return c.finish(0)
	}
	if id != want {
		return Errorf(UnexpectedFrame, id, "expected method %s", want)
	}
	return nil
}

// finish reports the first fault, or bytes left over, as a syntax error in the
// named method (0 for none), and text that is none as a frame error.
func (c *cursor) finish(id MethodID) error {
	if c.fault == "" && c.pos == len(c.buf) {
		return nil
	}
	return c.syntaxError(id)
}

func (c *cursor) syntaxError(id MethodID) error {
	if c.fault == "" {
		c.fail("bytes left over")
	}
	if c.fault == notUTF8 {
		return &Error{Code: FrameError, Text: notUTF8}
	}
	what := "malformed content"
	if id != 0 {
		what = "malformed " + id.String()
	}
	return &Error{
		Code: SyntaxError, ClassID: id.Class(), MethodID: id.Method(),
		Text: fmt.Sprintf("%s: %s at byte %d", what, c.fault, c.at),
	}
}

// appendShortstr appends s, cut at a rune boundary to 255 bytes.
func appendShortstr(dst []byte, s string) []byte {
	s = CutString(s, 255)
	dst = append(dst, byte(len(s)))
	return append(dst, s...)
}

func appendLongstr(dst []byte, s string) []byte {
	dst = binary.BigEndian.AppendUint32(dst, uint32(len(s)))
	return append(dst, s...)
}

// bit returns 1<<n if v holds.
func bit(v bool, n uint) byte {
	if v {
		return 1 << n
	}
	return 0
}
