package transport

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"unsafe"

	"github.com/warrenmq/warren/dirty"
)

// protocolVersion is the version of snapshot streams and of calls by address. In the handshake of a link the
// versions that are offered are levels of the cluster, from the active one to Config.Level, and none is below
// protocolVersionMin.
const (
	protocolVersion    = 1
	protocolVersionMin = 1
)

// Bounds of the handshake.
const (
	nodeIDBytesMax    = 512
	clusterIDBytesMax = 512
	replicaIDBytesMax = nodeIDBytesMax + 21 // mark and generation
	messageBytesMax   = 1 << 20             // coalescing stops here
	frameOverheadMax  = 64                  // header bytes of any frame beside its payload
)

// magic opens every first message so that a stray client is recognised.
var magic = [4]byte{'W', 'R', 'N', 'L'}

// Kinds of frames. The numbers are part of the format.
const (
	framePing   = 1 // u64 stamp of the sender's clock
	framePong   = 2 // the stamp, returned, u64 clock of the answerer and its turns from the asker
	frameCredit = 3 // uvarint bytes of application payload consumed
	frameRaft   = 4 // call id, group, check, catalog index, rpc type, request
	frameApp    = 5 // kind, payload
	frameCall   = 6 // call id, method, timeout in ms, payload
	frameInject = 7 // call id, group, check
	frameAnswer = 8 // call id, code, payload or text
	framePart   = 9 // lane, total, piece of a frame that exceeds a message
)

// Kinds of first messages.
const (
	helloMessage   = 1
	welcomeMessage = 2
	refusalMessage = 3
)

var errMalformed = errors.New("malformed bytes")

// decoder reads a byte slice with one sticky error. Slices it returns alias the
// input.
type decoder struct {
	b   []byte
	err error
}

func (d *decoder) fail(what string) {
	if d.err == nil {
		d.err = fmt.Errorf("%w: %s", errMalformed, what)
	}
}

func (d *decoder) u8() uint8 {
	if d.err != nil || len(d.b) < 1 {
		d.fail("missing byte")
		return 0
	}
	v := d.b[0]
	d.b = d.b[1:]
	return v
}

func (d *decoder) u32() uint32 {
	if d.err != nil || len(d.b) < 4 {
		d.fail("missing 32-bit number")
		return 0
	}
	v := binary.BigEndian.Uint32(d.b)
	d.b = d.b[4:]
	return v
}

func (d *decoder) u64() uint64 {
	if d.err != nil || len(d.b) < 8 {
		d.fail("missing 64-bit number")
		return 0
	}
	v := binary.BigEndian.Uint64(d.b)
	d.b = d.b[8:]
	return v
}

func (d *decoder) uvarint() uint64 {
	if d.err != nil {
		return 0
	}
	v, n := binary.Uvarint(d.b)
	if n <= 0 {
		d.fail("bad varint")
		return 0
	}
	d.b = d.b[n:]
	return v
}

func (d *decoder) varint() int64 {
	if d.err != nil {
		return 0
	}
	v, n := binary.Varint(d.b)
	if n <= 0 {
		d.fail("bad varint")
		return 0
	}
	d.b = d.b[n:]
	return v
}

func (d *decoder) take(n uint64) []byte {
	if d.err != nil || n > uint64(len(d.b)) {
		d.fail("length beyond the end")
		return nil
	}
	v := d.b[:n:n]
	d.b = d.b[n:]
	return v
}

// str reads a counted string of at most limit bytes.
func (d *decoder) str(limit uint64) string {
	n := d.uvarint()
	if n > limit {
		d.fail("string too long")
		return ""
	}
	return string(d.take(n))
}

// rest returns what is left.
func (d *decoder) rest() []byte {
	if d.err != nil {
		return nil
	}
	v := d.b
	d.b = nil
	return v
}

// end reports the sticky error, or an error when bytes are left over.
func (d *decoder) end() error {
	if d.err == nil && len(d.b) > 0 {
		d.fail("bytes left over")
	}
	return d.err
}

func appendString(b []byte, s string) []byte {
	b = binary.AppendUvarint(b, uint64(len(s)))
	return append(b, s...)
}

// hello opens a stream: who calls, from which cluster, and whom it wants.
type hello struct {
	versionMin, version uint16
	cluster             string
	from, to            NodeID
	process             uint64 // drawn at start of the calling process
}

func (h hello) encode() []byte {
	b := append([]byte{}, magic[:]...)
	b = append(b, helloMessage)
	b = binary.BigEndian.AppendUint16(b, h.versionMin)
	b = binary.BigEndian.AppendUint16(b, h.version)
	b = appendString(b, h.cluster)
	b = appendString(b, string(h.from))
	b = appendString(b, string(h.to))
	return binary.BigEndian.AppendUint64(b, h.process)
}

// welcome accepts a stream and gives it its epoch.
type welcome struct {
	version uint16
	node    NodeID
	process uint64
	epoch   uint64 // never repeats within the process that issued it
	window  uint64 // bytes of application payload that may be undelivered
}

func (w welcome) encode() []byte {
	b := append([]byte{}, magic[:]...)
	b = append(b, welcomeMessage)
	b = binary.BigEndian.AppendUint16(b, w.version)
	b = appendString(b, string(w.node))
	b = binary.BigEndian.AppendUint64(b, w.process)
	b = binary.BigEndian.AppendUint64(b, w.epoch)
	return binary.AppendUvarint(b, w.window)
}

// encodeRefusal is the other answer to a hello.
func encodeRefusal(e *RemoteError) []byte {
	b := append([]byte{}, magic[:]...)
	b = append(b, refusalMessage)
	b = binary.BigEndian.AppendUint16(b, e.Code)
	return append(b, e.Text...)
}

func openFirst(b []byte) (kind uint8, d *decoder) {
	d = &decoder{b: b}
	if got := d.take(4); d.err != nil || [4]byte(got) != magic {
		d.fail("no magic")
		return 0, d
	}
	return d.u8(), d
}

func (d *decoder) u16() uint16 { return uint16(d.u8())<<8 | uint16(d.u8()) }

func decodeHello(b []byte) (hello, error) {
	kind, d := openFirst(b)
	if d.err == nil && kind != helloMessage {
		d.fail("not a hello")
	}
	var h hello
	h.versionMin, h.version = d.u16(), d.u16()
	if d.err == nil && h.version < protocolVersionMin {
		// The rest of a foreign version's hello is not ours to read.
		return h, nil
	}
	h.cluster = d.str(clusterIDBytesMax)
	h.from, h.to = NodeID(d.str(nodeIDBytesMax)), NodeID(d.str(nodeIDBytesMax))
	h.process = d.u64()
	return h, d.end()
}

// decodeReply reads the answer to a hello: a welcome, or the refusal as an error.
func decodeReply(b []byte) (welcome, error) {
	kind, d := openFirst(b)
	var w welcome
	switch {
	case d.err != nil:
	case kind == welcomeMessage:
		w.version = d.u16()
		w.node = NodeID(d.str(nodeIDBytesMax))
		w.process, w.epoch, w.window = d.u64(), d.u64(), d.uvarint()
	case kind == refusalMessage:
		code := d.u16()
		text := d.rest()
		if d.err == nil {
			return w, &RemoteError{Code: code, Text: string(text[:min(len(text), errorTextBytesMax)])}
		}
	default:
		d.fail("neither welcome nor refusal")
	}
	return w, d.end()
}

// targetCheck is carried by frames whose misdelivery could do harm. It names the
// replica and the group the sender meant.
func targetCheck(to ReplicaID, g GroupID) uint32 {
	sum := ^crc32.ChecksumIEEE(unsafe.Slice(unsafe.StringData(string(to)), len(to))) // which only reads it
	for shift := 56; shift >= 0; shift -= 8 {
		sum = crc32.IEEETable[byte(sum)^byte(g>>shift)] ^ sum>>8
	}
	return ^sum
}

// frame is one decoded frame of a message.
type frame struct {
	kind uint8
	// body is the frame's own memory, except for pings, pongs and credits, whose
	// body is valid until the next frame is read.
	body []byte
	// lent is the memory of a body, from its first byte on; whoever is the last to read it may return it.
	lent []byte
	// held is what the frame has in place of body, if it is a large Raft frame. Whoever has it frees it.
	held held
}

// messageReader walks the frames of one message.
type messageReader struct {
	r       cursor
	limit   int // largest body accepted; a message bounds it as well
	part    int // bytes of the part that next has come to and nobody has read
	scratch [16]byte
}

// header reads epoch and sequence of the message.
func (m *messageReader) header() (epoch, seq uint64, err error) {
	if !m.r.read(m.scratch[:8]) {
		return 0, 0, fmt.Errorf("%w: message header", errMalformed)
	}
	epoch = binary.BigEndian.Uint64(m.scratch[:8])
	if seq, err = binary.ReadUvarint(&m.r); err != nil {
		return 0, 0, fmt.Errorf("%w: message sequence", errMalformed)
	}
	return epoch, seq, nil
}

// next returns the next frame, or io.EOF at the end of the message. Of a part it returns the
// kind only: partHead and read are to follow.
func (m *messageReader) next() (frame, error) {
	if m.r.left == 0 {
		return frame{}, io.EOF
	}
	kind, err := m.r.ReadByte()
	if err != nil {
		return frame{}, fmt.Errorf("%w: frame kind", errMalformed)
	}
	n, err := binary.ReadUvarint(&m.r)
	if err != nil {
		return frame{}, fmt.Errorf("%w: frame length", errMalformed)
	}
	if n > uint64(m.r.left) || n > uint64(m.limit) {
		return frame{}, fmt.Errorf("%w: frame of %d bytes, %d left, limit %d", errMalformed, n, m.r.left, m.limit)
	}
	f := frame{kind: kind}
	switch {
	case kind == framePart:
		m.part = int(n)
		return f, nil
	case kind == frameRaft && n >= heldMin:
		m.r.hold(int(n), &f.held)
		return f, nil
	case kind <= frameCredit && n <= uint64(len(m.scratch)):
		f.body = m.scratch[:n]
	default:
		f.lent = dirty.Lend(int(n))
		f.body = f.lent
	}
	return f, m.read(f.body)
}

func (m *messageReader) read(b []byte) error {
	if !m.r.read(b) {
		return fmt.Errorf("%w: frame body", errMalformed)
	}
	return nil
}

// partHead reads what a part begins with; n is how many bytes of the frame follow.
func (m *messageReader) partHead() (ln uint8, total uint64, n int, err error) {
	before := m.r.left
	if ln, err = m.r.ReadByte(); err == nil {
		total, err = binary.ReadUvarint(&m.r)
	}
	n = m.part - (before - m.r.left)
	if err != nil || n < 0 {
		return 0, 0, 0, fmt.Errorf("%w: head of a part", errMalformed)
	}
	return ln, total, n, nil
}

// decodeAnswer reads the body of a frameAnswer. An error that is not malformed bytes
// is the answer itself.
func decodeAnswer(b []byte) (call uint64, payload []byte, err error) {
	d := decoder{b: b}
	call = d.uvarint()
	code := d.uvarint()
	payload = d.rest()
	if d.err != nil {
		return 0, nil, d.err
	}
	if code > 1<<16-1 {
		return 0, nil, fmt.Errorf("%w: error code %d", errMalformed, code)
	}
	if code != 0 {
		return call, nil, &RemoteError{Code: uint16(code), Text: string(payload)}
	}
	return call, payload, nil
}

func isMalformed(err error) bool { return errors.Is(err, errMalformed) }
