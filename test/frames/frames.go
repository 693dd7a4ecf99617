// Package frames puts frames of AMQP 0-9-1 together by hand, right ones and wrong ones, for tests of what a broker answers to them. It shares no code with
// the product's package amqp, which would make the same mistakes on both sides.
package frames

import (
	"encoding/binary"
	"fmt"
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
