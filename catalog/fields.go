package catalog

import (
	"encoding/binary"
	"errors"
	"fmt"
	"strings"

	"github.com/warrenmq/warren/amqp"
)

// ErrMalformed is wrapped by errors about bytes that are no command, entry or
// snapshot of a known format.
var ErrMalformed = errors.New("malformed catalog bytes")

// Bounds of what the decoder accepts. They hold for encoding as well, because a
// command is checked before it is proposed.
const (
	stringBytesMax = 1 << 16
	listLenMax     = 1 << 10
)

// Bounds of a text for people. A longer one is cut, also by who reads it: older programs wrote refusals that repeat arguments of clients whole, which are
// shorter than longTextMax.
const (
	textBytesMax = 1 << 11
	longTextMax  = 1 << 20
)

// fields writes or reads the fields of a record, in the order of the calls. One
// description serves both directions, so that they cannot drift apart. Strings and
// byte runs have a varint length in front, numbers are varints, flags one byte.
type fields struct {
	buf     []byte // output, or the input left
	reading bool
	err     error // sticky; only when reading
}

func (f *fields) fail(format string, args ...any) {
	if f.err == nil {
		f.err = fmt.Errorf("%w: %s", ErrMalformed, fmt.Sprintf(format, args...))
	}
	f.buf = nil
}

// end reports the first error, or an error when input is left over.
func (f *fields) end() error {
	if f.err == nil && len(f.buf) > 0 {
		f.fail("%d bytes left over", len(f.buf))
	}
	return f.err
}

func (f *fields) u64(v *uint64) {
	if !f.reading {
		f.buf = binary.AppendUvarint(f.buf, *v)
		return
	}
	n, size := binary.Uvarint(f.buf)
	if size <= 0 {
		f.fail("number missing")
		return
	}
	*v, f.buf = n, f.buf[size:]
}

// optional is the last field of a record that had none before: 0 is not written.
func (f *fields) optional(v *uint64) {
	if *v != 0 && !f.reading || f.reading && len(f.buf) > 0 {
		if f.u64(v); *v == 0 {
			f.fail("0 where it is not written")
		}
	}
}

// late are the last fields of a declaration, which had none of them before: the size, who declares and who leads first, up to the last one that is
// not empty.
func (q *Queue) late(f *fields) {
	written := 0
	switch {
	case q.FirstLeader != "":
		written = 3
	case q.DeclaredBy != "":
		written = 2
	case q.Size > 0:
		written = 1
	}
	for i := 0; i < 3 && (f.reading && len(f.buf) > 0 || !f.reading && i < written); i++ {
		var empty bool
		switch i {
		case 0:
			f.u64(&q.Size)
			empty = q.Size == 0
		case 1:
			str(f, &q.DeclaredBy)
			empty = q.DeclaredBy == ""
		case 2:
			str(f, &q.FirstLeader)
			empty = q.FirstLeader == ""
		}
		if f.reading && len(f.buf) == 0 && empty {
			f.fail("nothing where it is not written")
		}
	}
}

// i64 is a number that may be negative: zigzag encoded.
func (f *fields) i64(v *int64) {
	n := uint64(*v)<<1 ^ uint64(*v>>63)
	f.u64(&n)
	if f.reading {
		*v = int64(n>>1) ^ -int64(n&1)
	}
}

func (f *fields) u32(v *uint32) {
	n := uint64(*v)
	f.u64(&n)
	if n > 1<<32-1 {
		f.fail("number %d too large", n)
		return
	}
	if f.reading { // what is written may be shared
		*v = uint32(n)
	}
}

func (f *fields) u16(v *uint16) {
	n := uint64(*v)
	f.u64(&n)
	if n > 1<<16-1 {
		f.fail("number %d too large", n)
		return
	}
	if f.reading {
		*v = uint16(n)
	}
}

func (f *fields) byte(v *byte) {
	if !f.reading {
		f.buf = append(f.buf, *v)
		return
	}
	if len(f.buf) == 0 {
		f.fail("byte missing")
		return
	}
	*v, f.buf = f.buf[0], f.buf[1:]
}

// version writes the version of a message, or refuses any other.
func (f *fields) version(v byte) {
	got := v
	f.byte(&got)
	if got != v {
		f.fail("version %d, want %d", got, v)
	}
}

// enum is a byte between 1 and last.
func enum[T ~uint8](f *fields, v *T, last T) {
	b := byte(*v)
	f.byte(&b)
	if !f.reading {
		return
	}
	if f.err == nil && (b == 0 || T(b) > last) {
		f.fail("value %d outside 1 to %d", b, last)
		return
	}
	*v = T(b)
}

func (f *fields) bool(v *bool) {
	var b byte
	if *v {
		b = 1
	}
	f.byte(&b)
	if b > 1 {
		f.fail("flag %d", b)
	}
	if f.reading {
		*v = b == 1
	}
}

// take reads n bytes.
func (f *fields) take(n, limit uint64) []byte {
	if n > limit || n > uint64(len(f.buf)) {
		f.fail("%d bytes announced, %d left, limit %d", n, len(f.buf), limit)
		return nil
	}
	b := f.buf[:n]
	f.buf = f.buf[n:]
	return b
}

func str[T ~string](f *fields, v *T) {
	n := uint64(len(*v))
	f.u64(&n)
	if f.reading {
		*v = T(f.take(n, stringBytesMax))
		return
	}
	f.buf = append(f.buf, *v...)
}

// text is a string that may be cut.
func (f *fields) text(v *string) {
	if !f.reading {
		cut := cutText(*v)
		str(f, &cut)
		return
	}
	var n uint64
	f.u64(&n)
	*v = cutText(string(f.take(n, longTextMax)))
}

// cutText is what is kept of a text, and nothing beside it.
func cutText(s string) string {
	if len(s) <= textBytesMax {
		return s
	}
	return strings.Clone(amqp.CutString(s, textBytesMax))
}

func list[T ~string](f *fields, v *[]T) {
	n := uint64(len(*v))
	f.u64(&n)
	if f.reading {
		// Each string takes at least its length byte.
		if n > listLenMax || n > uint64(len(f.buf)) {
			f.fail("list of %d", n)
			return
		}
		*v = nil
		if n > 0 {
			*v = make([]T, n)
		}
	}
	for i := range *v {
		str(f, &(*v)[i])
	}
}

func (f *fields) u64s(v *[]uint64) {
	n := uint64(len(*v))
	f.u64(&n)
	if f.reading {
		if n > listLenMax || n > uint64(len(f.buf)) {
			f.fail("list of %d", n)
			return
		}
		*v = nil
		if n > 0 {
			*v = make([]uint64, n)
		}
	}
	for i := range *v {
		f.u64(&(*v)[i])
	}
}

func processes(f *fields, v *[]Process) {
	n := uint64(len(*v))
	f.u64(&n)
	if f.reading {
		// Each takes at least two bytes.
		if n > listLenMax || 2*n > uint64(len(f.buf)) {
			f.fail("list of %d processes", n)
			return
		}
		*v = nil
		if n > 0 {
			*v = make([]Process, n)
		}
	}
	for i := range *v {
		str(f, &(*v)[i].Node)
		f.u64(&(*v)[i].Number)
	}
}

func (f *fields) table(v *amqp.Table) {
	var raw []byte
	if !f.reading && len(*v) > 0 {
		raw = amqp.AppendTable(nil, *v)
	}
	n := uint64(len(raw))
	f.u64(&n)
	if !f.reading {
		f.buf = append(f.buf, raw...)
		return
	}
	*v = nil
	if n == 0 || f.err != nil {
		return
	}
	raw = f.take(n, amqp.TableBytesMax+4)
	if f.err != nil {
		return
	}
	t, err := amqp.DecodeTable(raw)
	if err != nil {
		f.fail("table: %v", err)
		return
	}
	*v = t
}

func (f *fields) fixed(v []byte) {
	if f.reading {
		copy(v, f.take(uint64(len(v)), uint64(len(v))))
		return
	}
	f.buf = append(f.buf, v...)
}

// The records shared by commands and snapshots.

func (v *Vhost) fields(f *fields) {
	str(f, &v.Name)
	str(f, &v.Description)
	list(f, &v.Tags)
	str(f, &v.DefaultQueueType)
	v.Limits.fields(f)
	f.bool(&v.Tracing)
	f.bool(&v.Protected)
	f.u64(&v.Created)
}

func (x *Exchange) fields(f *fields) {
	str(f, &x.Vhost)
	str(f, &x.Name)
	enum(f, &x.Type, exchangeTypeMax)
	f.bool(&x.Durable)
	f.bool(&x.AutoDelete)
	f.bool(&x.Internal)
	f.table(&x.Arguments)
	f.u64(&x.Created)
	f.u64(&x.Renewed)
	f.u64(&x.DelayQueue)
}

func (b *Binding) fields(f *fields) {
	str(f, &b.Vhost)
	str(f, &b.Source)
	str(f, &b.Destination)
	f.bool(&b.ToExchange)
	str(f, &b.Key)
	f.table(&b.Arguments)
}

func (q *Queue) fields(f *fields) {
	f.u64(&q.ID)
	str(f, &q.Vhost)
	str(f, &q.Name)
	f.bool(&q.Durable)
	f.bool(&q.AutoDelete)
	f.bool(&q.Exclusive)
	str(f, &q.Owner.Node)
	f.u64(&q.Owner.Incarnation)
	f.u64(&q.Owner.Connection)
	f.table(&q.Arguments)
	enum(f, &q.Kind, Transient)
	enum(f, &q.State, Closing)
	list(f, &q.Members)
	str(f, &q.Preferred)
	f.u64(&q.Incarnation)
	f.u64(&q.Settings)
	str(f, &q.DelayOf)
}

func (n *Node) fields(f *fields) {
	str(f, &n.ID)
	str(f, &n.Name)
	f.u32(&n.Number)
	f.u64(&n.Incarnation)
	str(f, &n.ClusterAddr)
	str(f, &n.GossipAddr)
	str(f, &n.AMQPAddr)
	str(f, &n.HTTPAddr)
	str(f, &n.GRPCAddr)
	f.u64(&n.Process)
	f.u64(&n.Since)
	f.bool(&n.Superseded)
	if f.reading {
		n.State = NodeRegular
	}
}
