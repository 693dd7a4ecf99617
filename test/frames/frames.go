// Package frames puts frames of AMQP 0-9-1 together by hand, right ones and wrong ones, for tests of what a broker answers to them. It shares no code with
// the product's package amqp, which would make the same mistakes on both sides.
package frames

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// Types of frames, and the byte that ends each (AMQP 0-9-1, 4.2.3).
const (
	TypeMethod    = 1
	TypeHeader    = 2
	TypeBody      = 3
	TypeHeartbeat = 8
	End           = 0xce
)

// Frame is a frame with a payload.
func Frame(kind byte, channel uint16, payload []byte) []byte {
	b := binary.BigEndian.AppendUint16([]byte{kind}, channel)
	b = binary.BigEndian.AppendUint32(b, uint32(len(payload)))
	return append(append(b, payload...), End)
}

// Method is a frame with a method: strings are short, slices of bytes long ones or tables. It panics for arguments of other types than AMQP has.
func Method(channel, class, id uint16, args ...any) []byte {
	p := binary.BigEndian.AppendUint16(nil, class)
	p = binary.BigEndian.AppendUint16(p, id)
	for _, a := range args {
		switch a := a.(type) {
		case byte:
			p = append(p, a)
		case uint16:
			p = binary.BigEndian.AppendUint16(p, a)
		case uint32:
			p = binary.BigEndian.AppendUint32(p, a)
		case uint64:
			p = binary.BigEndian.AppendUint64(p, a)
		case string:
			p = append(append(p, byte(len(a))), a...)
		case []byte:
			p = append(binary.BigEndian.AppendUint32(p, uint32(len(a))), a...)
		default:
			panic(fmt.Sprintf("argument %T", a))
		}
	}
	return Frame(TypeMethod, channel, p)
}

// Header is a frame with the header of a message. props are its flags and what they announce; none: no property.
func Header(channel uint16, size uint64, props ...byte) []byte {
	return header(channel, 60, 0, size, props...)
}

// Table is the payload of a table, without its length: names and values in turn. It panics for values of other types than it knows.
func Table(pairs ...any) []byte {
	var t []byte
	for i := 0; i < len(pairs); i += 2 {
		name := pairs[i].(string)
		t = append(append(t, byte(len(name))), name...)
		t = field(t, pairs[i+1])
	}
	return t
}

// field appends a value of a table. Slices of bytes are tables in it.
func field(t []byte, value any) []byte {
	switch v := value.(type) {
	case nil:
		return append(t, 'V')
	case bool:
		if v {
			return append(t, 't', 1)
		}
		return append(t, 't', 0)
	case string:
		t = binary.BigEndian.AppendUint32(append(t, 'S'), uint32(len(v)))
		return append(t, v...)
	case []byte:
		t = binary.BigEndian.AppendUint32(append(t, 'F'), uint32(len(v)))
		return append(t, v...)
	case int32:
		return binary.BigEndian.AppendUint32(append(t, 'I'), uint32(v))
	case int64:
		return binary.BigEndian.AppendUint64(append(t, 'l'), uint64(v))
	case []any:
		var list []byte
		for _, e := range v {
			list = field(list, e)
		}
		t = binary.BigEndian.AppendUint32(append(t, 'A'), uint32(len(list)))
		return append(t, list...)
	}
	panic(fmt.Sprintf("value %T", value))
}

// Read reads a frame. A protocol header, which has no form of a frame, is an error.
func Read(r io.Reader) (kind byte, channel uint16, payload []byte, err error) {
	head := make([]byte, 7)
	if _, err = io.ReadFull(r, head); err != nil {
		return 0, 0, nil, err
	}
	if string(head[:4]) == "AMQP" {
		return 0, 0, nil, ErrProtocol
	}
	payload = make([]byte, binary.BigEndian.Uint32(head[3:])+1)
	if _, err = io.ReadFull(r, payload); err != nil {
		return 0, 0, nil, err
	}
	return head[0], binary.BigEndian.Uint16(head[1:]), payload[:len(payload)-1], nil
}

// ErrProtocol is what Read returns for the header by which a broker refuses a protocol.
var ErrProtocol = errors.New("the header of a protocol in place of a frame")
