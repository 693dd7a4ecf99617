package grpc

import (
	"errors"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// Bounds of what a large request becomes when it is decoded. An empty message takes two bytes on the wire and a hundred in memory: a request of 17 MiB could
// take a GiB.
const (
	// partsMax is how many parts a request may have: messages inside of it, texts and numbers of lists. One that publishes a message with ten headers has about 25.
	partsMax = 256 << 10
	// partBytes is about what a part takes.
	partBytes = 112
	// partsDepthMax bounds how deep they are inside of each other: a table in a table is three parts.
	partsDepthMax = 1000
)

var errParts = errors.New("the request has too many parts")

// partsOf counts the parts of an encoded message, without decoding it. What is no message is left to the decoder.
func partsOf(b []byte, d protoreflect.MessageDescriptor) (int, error) {
	c := partsCount{left: partsMax}
	err := c.message(b, d, 0)
	return partsMax - c.left, err
}

// partsCount counts down.
type partsCount struct{ left int }

func (c *partsCount) take(n int) error {
	if c.left -= n; c.left < 0 {
		return errParts
	}
	return nil
}

func (c *partsCount) message(b []byte, d protoreflect.MessageDescriptor, depth int) error {
	if depth > partsDepthMax {
		return errParts
	}
	for len(b) > 0 {
		number, kind, n := protowire.ConsumeTag(b)
		if n < 0 {
			return nil // the decoder says so
		}
		b = b[n:]
		if n = protowire.ConsumeFieldValue(number, kind, b); n < 0 {
			return nil
		}
		f := d.Fields().ByNumber(number)
		value := b[:n]
		b = b[n:]
		if f == nil || !f.IsList() && f.Message() == nil {
			continue // a field of its own, or one that is kept as it is
		}
		if err := c.field(value, kind, f, depth); err != nil {
			return err
		}
	}
	return nil
}

// field counts a message, or what is in a list.
func (c *partsCount) field(value []byte, kind protowire.Type, f protoreflect.FieldDescriptor, depth int) error {
	if kind != protowire.BytesType {
		return c.take(1)
	}
	inner, n := protowire.ConsumeBytes(value)
	switch {
	case n < 0:
		return nil
	case f.Message() != nil:
		if err := c.take(1); err != nil {
			return err
		}
		return c.message(inner, f.Message(), depth+1)
	case f.Kind() == protoreflect.StringKind || f.Kind() == protoreflect.BytesKind:
		return c.take(1)
	}
	return c.take(len(inner) / packedShare) // numbers, of a byte each at least
}

// packedShare is how many numbers of a list count as a part.
const packedShare = partBytes / 8

// spread waits for the room that the request takes when it is decoded, if that is more than its bytes. Whoever waits here has room for these already, and
// whoever has both waits for nothing.
func (r *request) spread(b []byte, d protoreflect.MessageDescriptor) error {
	parts, err := partsOf(b, d)
	if err != nil {
		return refuse(codes.ResourceExhausted, reasonInvalid, "a request has more than %d parts", partsMax)
	}
	n := int64(parts * partBytes)
	if n <= int64(len(b)) {
		return nil
	}
	if err := r.room.decoded.enter(r.ctx, n, r.ending()); err != nil {
		return err
	}
	if !r.keep(0, n) {
		r.room.decoded.free(n)
		return r.ctx.Err()
	}
	return nil
}
