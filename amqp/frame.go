package amqp

import "encoding/binary"

const (
	// FrameOverhead is what a frame adds to its payload, in bytes: type, channel,
	// size and end.
	FrameOverhead = 8
	// FrameMaxInitial is the largest frame, in bytes with overhead, that a
	// [FrameReader] accepts before [FrameReader.SetMax].
	FrameMaxInitial uint32 = 8192
	// FrameMaxOffered is the largest frame that a node offers to clients.
	FrameMaxOffered uint32 = 131072
	// PropertiesMax bounds the properties of a message that comes by another protocol, so that its header is one frame for clients of AMQP, also
	// when deaths and counts are added to it.
	PropertiesMax = int(FrameMaxOffered) - 8<<10
	// FrameMaxLimit bounds [FrameReader.SetMax], in bytes.
	FrameMaxLimit uint32 = 16 << 20

	frameHeadBytes   = 7
	contentHeadBytes = 12 // class, weight and body size in front of the properties
)

// A Frame is one frame as read. Payload aliases the buffer of its reader.
type Frame struct {
	Type    uint8
	Channel uint16
	Payload []byte
}

// AppendFrame appends a frame around payload.
func AppendFrame(dst []byte, typ uint8, channel uint16, payload []byte) []byte {
	dst = AppendFrameHead(dst, typ, channel, uint32(len(payload)))
	dst = append(dst, payload...)
	return append(dst, FrameEnd)
}

// AppendFrameHead appends the seven bytes in front of a payload of the given size.
// The caller appends the payload and [FrameEnd], or writes them from elsewhere.
func AppendFrameHead(dst []byte, typ uint8, channel uint16, size uint32) []byte {
	return append(dst, typ, byte(channel>>8), byte(channel), byte(size>>24), byte(size>>16), byte(size>>8), byte(size))
}

// appendFrameStart opens a frame whose size closeFrame fills in.
func appendFrameStart(dst []byte, typ uint8, channel uint16) []byte {
	return AppendFrameHead(dst, typ, channel, 0)
}

// closeFrame ends the frame that was opened at offset at.
func closeFrame(dst []byte, at int) []byte {
	binary.BigEndian.PutUint32(dst[at+3:], uint32(len(dst)-at-frameHeadBytes))
	return append(dst, FrameEnd)
}

// AppendMethodFrame appends a method frame. On hot paths call AppendFrame of the
// concrete method instead, which spares an allocation.
func AppendMethodFrame(dst []byte, channel uint16, m Method) []byte {
	return m.AppendFrame(dst, channel)
}

// AppendHeartbeat appends a heartbeat frame.
func AppendHeartbeat(dst []byte) []byte {
	return append(dst, FrameHeartbeat, 0, 0, 0, 0, 0, 0, FrameEnd)
}

// AppendContent appends the content that follows a method of the class: the header
// frame and as many body frames as frameMax asks for. See [AppendContentHeader]
// and [AppendBody].
func AppendContent(dst []byte, channel, classID uint16, raw RawProperties, body []byte, frameMax uint32) []byte {
	dst = AppendContentHeader(dst, channel, classID, raw, uint64(len(body)))
	return AppendBody(dst, channel, body, frameMax)
}

// AppendContentHeader appends a content header frame. The protocol cannot split
// it, so a peer with a smaller frame-max than the publisher's may have to take a
// larger frame; see [ContentHeaderFits]. An empty raw stands for no properties.
func AppendContentHeader(dst []byte, channel, classID uint16, raw RawProperties, bodyBytes uint64) []byte {
	at := len(dst)
	dst = appendFrameStart(dst, FrameHeader, channel)
	dst = append(dst, byte(classID>>8), byte(classID), 0, 0)
	dst = binary.BigEndian.AppendUint64(dst, bodyBytes)
	if len(raw) == 0 {
		dst = append(dst, 0, 0)
	} else {
		dst = append(dst, raw...)
	}
	return closeFrame(dst, at)
}

// ContentHeaderFits reports whether a header frame with these properties stays
// within frameMax bytes; 0 means no limit.
func ContentHeaderFits(raw RawProperties, frameMax uint32) bool {
	return frameMax == 0 || max(len(raw), 2) <= ContentHeaderRoom(frameMax)
}

// ContentHeaderRoom is how many bytes of properties a header frame of frameMax bytes has room for.
func ContentHeaderRoom(frameMax uint32) int { return int(frameMax) - FrameOverhead - contentHeadBytes }

// AppendBody appends body frames of at most frameMax bytes each with overhead, none
// for an empty body. A frameMax of 0 means no limit; one below [FrameMinSize] counts
// as that.
func AppendBody(dst []byte, channel uint16, body []byte, frameMax uint32) []byte {
	chunk := BodyChunk(frameMax)
	for len(body) > 0 {
		n := min(len(body), chunk)
		dst = AppendFrame(dst, FrameBody, channel, body[:n])
		body = body[n:]
	}
	return dst
}

// BodyChunk returns how many body bytes fit a frame under the negotiated frameMax.
func BodyChunk(frameMax uint32) int {
	if frameMax == 0 || frameMax > FrameMaxLimit {
		frameMax = FrameMaxLimit
	}
	return int(max(frameMax, FrameMinSize)) - FrameOverhead
}

// ContentSize returns the number of bytes [AppendContent] appends.
func ContentSize(raw RawProperties, bodyBytes int, frameMax uint32) int {
	chunk := BodyChunk(frameMax)
	frames := (bodyBytes + chunk - 1) / chunk
	return FrameOverhead + contentHeadBytes + max(len(raw), 2) + bodyBytes + frames*FrameOverhead
}

// A ContentHeader is the payload of a header frame. Properties alias it and are
// not checked; see [RawProperties.Validate].
type ContentHeader struct {
	ClassID    uint16
	BodySize   uint64
	Properties RawProperties
}

// ParseContentHeader reads the payload of a header frame. The error is an
// [*Error] with [SyntaxError].
func ParseContentHeader(payload []byte) (ContentHeader, error) {
	c := cursor{buf: payload}
	h := ContentHeader{ClassID: c.u16()}
	if weight := c.u16(); weight != 0 {
		c.fail("weight is not zero")
	}
	h.BodySize = c.u64()
	if len(c.buf)-c.pos < 2 {
		c.fail("property flags are missing")
	}
	if c.fault != "" {
		return ContentHeader{}, c.syntaxError(NewMethodID(h.ClassID, 0))
	}
	h.Properties = RawProperties(c.buf[c.pos:])
	return h, nil
}
