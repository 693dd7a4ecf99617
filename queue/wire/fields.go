package wire

import (
	"encoding/binary"

	"github.com/warrenmq/warren/fsm"
)

// reader keeps the first error, so that message readers are straight lines.
type reader struct {
	b   []byte
	err error
}

func (d *reader) fail() {
	if d.err == nil {
		d.err = ErrMalformed
	}
	d.b = nil
}

func (d *reader) u64() uint64 {
	v, n := binary.Uvarint(d.b)
	if n <= 0 {
		d.fail()
		return 0
	}
	d.b = d.b[n:]
	return v
}

func (d *reader) i64() int64 {
	v, n := binary.Varint(d.b)
	if n <= 0 {
		d.fail()
		return 0
	}
	d.b = d.b[n:]
	return v
}

func (d *reader) u32() uint32 {
	v := d.u64()
	if v > 1<<32-1 {
		d.fail()
		return 0
	}
	return uint32(v)
}

func (d *reader) bool() bool {
	v := d.u64()
	if v > 1 {
		d.fail()
	}
	return v == 1
}

func (d *reader) bytes() []byte {
	n := d.u64()
	if n > uint64(len(d.b)) {
		d.fail()
		return nil
	}
	v := d.b[:n:n]
	d.b = d.b[n:]
	return v
}

// count reads a length of a list whose elements take at least one byte each.
func (d *reader) count() int {
	n := d.u64()
	if n > uint64(len(d.b)) {
		d.fail()
		return 0
	}
	return int(n)
}

func (d *reader) origin() fsm.Origin {
	return fsm.Origin{Node: d.u32(), Incarnation: d.u64()}
}

func putU(b []byte, vs ...uint64) []byte {
	for _, v := range vs {
		b = binary.AppendUvarint(b, v)
	}
	return b
}

// putAscending writes each number as the distance from the one before.
func putAscending(b []byte, list []uint64) []byte {
	b = putU(b, uint64(len(list)))
	last := uint64(0)
	for _, v := range list {
		b = putU(b, v-last)
		last = v
	}
	return b
}

func (d *reader) ascending() (list []uint64) {
	last := uint64(0)
	for range d.count() {
		v := last + d.u64()
		if v <= last {
			d.fail()
			return nil
		}
		list = append(list, v)
		last = v
	}
	return list
}

func putBool(b []byte, v bool) []byte {
	if v {
		return append(b, 1)
	}
	return append(b, 0)
}

func putBytes(b, v []byte) []byte {
	b = binary.AppendUvarint(b, uint64(len(v)))
	return append(b, v...)
}

func putOrigin(b []byte, o fsm.Origin) []byte {
	return putU(b, uint64(o.Node), o.Incarnation)
}

// command embeds one machine command as an entry of its own, so that the
// machine's codec stays the only one for commands.
func putCommand(b []byte, c fsm.Command) []byte {
	return fsm.EncodeEntry(b, &fsm.Entry{Commands: []fsm.Command{c}})
}

func readCommand[C fsm.Command](d *reader) (c C) {
	if d.err != nil {
		return c
	}
	e, err := fsm.DecodeEntry(d.b)
	d.b = nil
	if err != nil || len(e.Commands) != 1 {
		d.fail()
		return c
	}
	c, ok := e.Commands[0].(C)
	if !ok {
		d.fail()
	}
	return c
}
