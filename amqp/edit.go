package amqp

import "encoding/binary"

// RawFields walks the fields of an encoded headers table that has been checked. The zero value
// has none; a copy walks on by itself.
type RawFields struct{ c cursor }

// Next returns the next field's name, and the bytes of the whole field, name and tag included. Both
// share the table's bytes. ok is false behind the last one.
func (f *RawFields) Next() (name, field []byte, ok bool) {
	start := f.c.pos
	if start == len(f.c.buf) {
		return nil, nil, false
	}
	name = f.c.shortstrBytes()
	f.c.skipValue(0)
	if f.c.fault != "" {
		return nil, nil, false
	}
	return name, f.c.buf[start:f.c.pos], true
}

// AppendEdited appends r to dst without the properties named in without, and with headers whose
// fields are what fields appends to the buffer it is given; old are those that r has. It decodes nothing, so that
// what is not edited keeps its bytes. An error is that of [RawProperties.Validate], and dst is returned as it was.
func (r RawProperties) AppendEdited(dst []byte, without PropertyFlags, fields func(dst []byte, old RawFields) []byte) ([]byte, error) {
	if err := r.Validate(); err != nil {
		return dst, err
	}
	present := r.Flags()
	dst = binary.BigEndian.AppendUint16(dst, uint16(present&^without|PropHeaders))
	c := cursor{buf: r, pos: min(2, len(r))}
	for bit := PropContentType; bit >= PropClusterID; bit >>= 1 {
		var v []byte
		if present&bit != 0 {
			v = c.propertyValue(bit)
		}
		switch {
		case bit == PropHeaders:
			var at int
			dst, at = beginContainer(dst)
			dst = EndContainer(fields(dst, RawFields{cursor{buf: v, pos: min(4, len(v))}}), at)
		case without&bit == 0:
			dst = append(dst, v...)
		}
	}
	return dst, nil
}

// What follows builds a table field by field without a [Table] in between: each field is a name and a
// value. The bytes are those of [AppendTable].

// AppendFieldName appends the name of a field.
func AppendFieldName(dst []byte, name string) []byte { return appendShortstr(dst, name) }

// AppendStringValue appends the value of a field or array of type S.
func AppendStringValue(dst []byte, v string) []byte { return appendLongstr(append(dst, 'S'), v) }

// AppendInt64Value appends the value of a field or array of type l.
func AppendInt64Value(dst []byte, v int64) []byte {
	return binary.BigEndian.AppendUint64(append(dst, 'l'), uint64(v))
}

// AppendTimestampValue appends the value of a field or array of type T.
func AppendTimestampValue(dst []byte, v Timestamp) []byte {
	return binary.BigEndian.AppendUint64(append(dst, 'T'), uint64(v))
}

// BeginTable begins a value that is a table: fields follow, and [EndContainer] with the mark.
func BeginTable(dst []byte) (out []byte, mark int) { return beginContainer(append(dst, 'F')) }

// BeginArray begins a value that is an array: values follow, and [EndContainer] with the mark.
func BeginArray(dst []byte) (out []byte, mark int) { return beginContainer(append(dst, 'A')) }

func beginContainer(dst []byte) (out []byte, mark int) {
	return append(dst, 0, 0, 0, 0), len(dst)
}

// EndContainer sets the length of the table or array that mark is of.
func EndContainer(dst []byte, mark int) []byte {
	binary.BigEndian.PutUint32(dst[mark:], uint32(len(dst)-mark-4))
	return dst
}
