package fsm

import (
	"encoding/binary"
	"errors"
	"fmt"
	"unsafe"
)

// Errors of the decoders, wrapped with the place.
var (
	ErrMalformed = errors.New("malformed")
	ErrVersion   = errors.New("unknown version")
	ErrCommand   = errors.New("unknown command")
)

// reader walks encoded bytes. After the first error every read returns zero and
// the error stays. What it returns shares the bytes.
type reader struct {
	b   []byte
	pos int
	err error
}

func (r *reader) fail(err error, what string) {
	if r.err == nil {
		r.err = fmt.Errorf("%w: %s at byte %d", err, what, r.pos)
	}
}

func (r *reader) left() int { return len(r.b) - r.pos }

func (r *reader) byte() byte {
	if r.err != nil || r.pos >= len(r.b) {
		r.fail(ErrMalformed, "short")
		return 0
	}
	r.pos++
	return r.b[r.pos-1]
}

func (r *reader) uvarint() uint64 {
	if r.err != nil {
		return 0
	}
	if r.pos < len(r.b) && r.b[r.pos] < 0x80 {
		r.pos++
		return uint64(r.b[r.pos-1])
	}
	v, n := binary.Uvarint(r.b[r.pos:])
	if n <= 0 {
		r.fail(ErrMalformed, "number")
		return 0
	}
	r.pos += n
	return v
}

// varint reads a signed number in zigzag form.
func (r *reader) varint() int64 {
	v := r.uvarint()
	return int64(v>>1) ^ -int64(v&1)
}

func (r *reader) uint32() uint32 {
	v := r.uvarint()
	if v > 1<<32-1 {
		r.fail(ErrMalformed, "number above 32 bits")
		return 0
	}
	return uint32(v)
}

// count reads the number of elements that follow, of at least min bytes each.
func (r *reader) count(min int) int {
	v := r.uvarint()
	if v > uint64(r.left()/min) {
		r.fail(ErrMalformed, "count beyond the end")
		return 0
	}
	return int(v)
}

// bytes reads a length and that many bytes.
func (r *reader) bytes() []byte {
	n := r.count(1)
	if r.err != nil {
		return nil
	}
	r.pos += n
	return r.b[r.pos-n : r.pos : r.pos]
}

// string is bytes without a copy: the result lives and changes with the input,
// which nobody may modify.
func (r *reader) string() string {
	b := r.bytes()
	return unsafe.String(unsafe.SliceData(b), len(b))
}

func (r *reader) bool() bool {
	v := r.byte()
	if v > 1 {
		r.fail(ErrMalformed, "truth value")
	}
	return v == 1
}

// enum reads a byte that must be at most last.
func (r *reader) enum(last byte, what string) byte {
	v := r.byte()
	if v > last {
		r.fail(ErrMalformed, what)
		return 0
	}
	return v
}

func (r *reader) end() error {
	if r.err == nil && r.left() > 0 {
		r.fail(ErrMalformed, "bytes after the end")
	}
	return r.err
}

func appendUint(b []byte, v uint64) []byte { return binary.AppendUvarint(b, v) }
func appendInt(b []byte, v int64) []byte   { return binary.AppendVarint(b, v) }

func appendString(b []byte, s string) []byte {
	return append(appendUint(b, uint64(len(s))), s...)
}

func appendBytes(b, s []byte) []byte {
	return append(appendUint(b, uint64(len(s))), s...)
}

func appendBool(b []byte, v bool) []byte {
	if v {
		return append(b, 1)
	}
	return append(b, 0)
}

// uintSize is the encoded length of v.
func uintSize(v uint64) int {
	n := 1
	for ; v >= 0x80; v >>= 7 {
		n++
	}
	return n
}

func stringSize[S ~string | ~[]byte](s S) int { return uintSize(uint64(len(s))) + len(s) }
