package amqp

import (
	"bytes"
	"encoding/binary"
	"fmt"
)

// PropertyFlags is a set of properties, in the bits of the wire format.
type PropertyFlags uint16

// Flags returns the properties that are present.
func (p *Properties) Flags() PropertyFlags { return p.flags }

// DecodeProperties decodes the flags and values of a content header. Nothing
// aliases raw. The error is an [*Error] with [SyntaxError].
func DecodeProperties(raw []byte) (Properties, error) {
	c := cursor{buf: raw}
	p := Properties{flags: c.propertyFlags()}
	p.decode(&c)
	if err := c.finish(0); err != nil {
		return Properties{}, err
	}
	return p, nil
}

// propertyFlags reads the flag word. Bits that name no property are a fault,
// the continuation bit included: it would announce flags nobody has defined.
func (c *cursor) propertyFlags() PropertyFlags {
	flags := PropertyFlags(c.u16())
	if flags&^propsAll != 0 {
		c.fail("undefined property flags")
		return 0
	}
	return flags
}

// RawProperties are the properties of a message as they stand in its content
// header: flag word, then the present values. This is the form a broker stores and
// forwards. An empty slice is the same as a flag word of zero to all methods. The
// readers are meant for bytes that passed [RawProperties.Validate] once, and never
// fail worse than "absent" on others.
type RawProperties []byte

// Clone returns a copy that does not alias r.
func (r RawProperties) Clone() RawProperties { return bytes.Clone(r) }

// Flags returns the properties that r says are present.
func (r RawProperties) Flags() PropertyFlags {
	if len(r) < 2 {
		return 0
	}
	return PropertyFlags(binary.BigEndian.Uint16(r)) & propsAll
}

// Validate reports whether r decodes, tables included, without decoding it. The
// error is an [*Error] with [SyntaxError].
func (r RawProperties) Validate() error {
	if len(r) == 0 {
		return nil
	}
	c := cursor{buf: r}
	flags := c.propertyFlags()
	for bit := PropContentType; flags != 0 && bit != 0; bit >>= 1 {
		if flags&bit == 0 {
			continue
		}
		if bit&propsTable != 0 {
			c.skipTable(0)
		} else {
			c.propertyValue(bit)
		}
	}
	return c.finish(0)
}

// propertyValue steps over the value of one property and returns its bytes with
// the length prefix.
func (c *cursor) propertyValue(flag PropertyFlags) []byte {
	n, start := 1, c.pos
	switch {
	case flag&propsShortstr != 0:
		n = 1 + int(c.u8())
	case flag&propsTimestamp != 0:
		n = 8
	case flag&propsTable != 0:
		size := c.u32()
		if uint64(size) > uint64(len(c.buf)) {
			c.short()
			return nil
		}
		n = 4 + int(size)
	}
	if c.fault != "" {
		return nil
	}
	c.pos = start
	return c.take(n)
}

// value returns the bytes of one property with their length prefix, nil when it
// is absent or lies beyond a fault.
func (r RawProperties) value(flag PropertyFlags) []byte {
	present := r.Flags()
	if present&flag == 0 {
		return nil
	}
	c := cursor{buf: r, pos: 2}
	for bit := PropContentType; bit > flag; bit >>= 1 {
		if present&bit != 0 && c.propertyValue(bit) == nil {
			return nil
		}
	}
	return c.propertyValue(flag)
}

// Headers decodes the headers table; ok is false when there is none. The error is
// an [*Error] with [SyntaxError].
func (r RawProperties) Headers() (t Table, ok bool, err error) {
	b := r.value(PropHeaders)
	if b == nil {
		if r.Flags()&PropHeaders != 0 {
			return nil, false, &Error{Code: SyntaxError, Text: "malformed content: headers run past the end"}
		}
		return nil, false, nil
	}
	t, err = DecodeTable(b)
	return t, err == nil, err
}

// Header returns the first header of the given name, decoding only that one. ok
// is false when there is none or the headers are malformed before it.
func (r RawProperties) Header(name string) (v any, ok bool) {
	b := r.value(PropHeaders)
	if b == nil {
		return nil, false
	}
	return lookupRaw(b, name)
}

// Without returns r with the named properties absent: r itself when none of them
// is present, otherwise fresh bytes. Malformed properties are returned unchanged.
func (r RawProperties) Without(flags PropertyFlags) RawProperties {
	present := r.Flags()
	if present&flags == 0 {
		return r
	}
	out := make(RawProperties, 2, len(r))
	binary.BigEndian.PutUint16(out, uint16(present&^flags))
	c := cursor{buf: r, pos: 2}
	for bit := PropContentType; bit >= PropClusterID; bit >>= 1 {
		if present&bit == 0 {
			continue
		}
		v := c.propertyValue(bit)
		if v == nil {
			return r
		}
		if flags&bit == 0 {
			out = append(out, v...)
		}
	}
	return out
}

// Rewrite decodes raw, lets edit change the properties and returns their encoding
// in fresh bytes. The error is that of [DecodeProperties].
func Rewrite(raw RawProperties, edit func(*Properties)) (RawProperties, error) {
	return RewriteMore(raw, rewriteRoom, edit)
}

// rewriteRoom is for how many bytes more Rewrite has room at first.
const rewriteRoom = 64

// RewriteMore is Rewrite for an edit that adds about so many bytes.
func RewriteMore(raw RawProperties, more int, edit func(*Properties)) (RawProperties, error) {
	p := Properties{}
	if len(raw) > 0 {
		var err error
		if p, err = DecodeProperties(raw); err != nil {
			return nil, fmt.Errorf("rewrite properties: %w", err)
		}
	}
	edit(&p)
	return p.AppendTo(make([]byte, 0, len(raw)+more)), nil
}
