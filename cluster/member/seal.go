package member

import (
	"bufio"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
)

// The first bytes of what is sealed. Nothing of memberlist's begins with the first one: its packets and streams carry a
// label here, which begins with 244.
const (
	sealedFirst  = 0x57
	sealedPacket = 0x01
	sealedStream = 0x02

	saltBytes      = 16
	recordBytesMax = 32 << 10 // of plaintext
)

var packetHead = []byte{sealedFirst, sealedPacket}

// sealPacket returns what is sent in place of b.
func (r *ring) sealPacket(b []byte) []byte {
	return r.appendSealed(append(make([]byte, 0, len(packetHead)+len(b)+sealOverhead), packetHead...), b, packetHead)
}

// openPacket returns what a packet says; ok is false if it is to be dropped.
func (r *ring) openPacket(b []byte, from string) (plain []byte, ok bool) {
	if len(b) == 0 || b[0] != sealedFirst {
		return b, r.mode != EncryptionOn
	}
	if r.mode == EncryptionOff || len(b) < len(packetHead) || b[1] != sealedPacket {
		return nil, false
	}
	plain, err := r.open(b[len(packetHead):], packetHead)
	if err != nil {
		return nil, false
	}
	r.hears(from)
	return plain, true
}

// sealedConn is a stream of sealed records: two bytes with the length of the rest, nonce and ciphertext. Each record is bound to the
// stream by the salt that its opener has drawn, to its direction and to its place. One goroutine may read while another writes.
type sealedConn struct {
	net.Conn

	ring   *ring
	in     io.Reader
	greet  []byte // to be written before the first record, nil afterwards
	salt   []byte
	opener bool

	rest     []byte // of the record that is being read
	readSeq  uint64
	writeSeq uint64
}

// openSealed is the opener's end.
func (r *ring) openSealed(conn net.Conn) *sealedConn {
	greet := make([]byte, 2+saltBytes)
	greet[0], greet[1] = sealedFirst, sealedStream
	_, _ = rand.Read(greet[2:]) // never fails
	return &sealedConn{Conn: conn, ring: r, in: conn, greet: greet, salt: greet[2:], opener: true}
}

var errSealed = errors.New("malformed sealed stream")

// acceptSealed is the other end, of a stream whose first byte was seen to be sealedFirst.
func (r *ring) acceptSealed(conn net.Conn, in *bufio.Reader) (*sealedConn, error) {
	head := make([]byte, 2+saltBytes)
	if _, err := io.ReadFull(in, head); err != nil {
		return nil, err
	}
	if head[1] != sealedStream || r.mode == EncryptionOff {
		return nil, errSealed
	}
	c := &sealedConn{Conn: conn, ring: r, in: in, salt: head[2:]}
	// Who cannot seal a record is nobody.
	return c, c.fill()
}

// about is what is authenticated with a record.
func (c *sealedConn) about(fromOpener bool, seq uint64) []byte {
	b := append([]byte{sealedFirst, sealedStream}, c.salt...)
	if fromOpener {
		b = append(b, 1)
	} else {
		b = append(b, 0)
	}
	return binary.BigEndian.AppendUint64(b, seq)
}

// fill reads a record.
func (c *sealedConn) fill() error {
	var size [2]byte
	if _, err := io.ReadFull(c.in, size[:]); err != nil {
		return err // io.EOF is the end between two records
	}
	n := int(binary.BigEndian.Uint16(size[:]))
	if n < sealOverhead || n > recordBytesMax+sealOverhead {
		return fmt.Errorf("%w: record of %d bytes", errSealed, n)
	}
	b := make([]byte, n)
	if _, err := io.ReadFull(c.in, b); err != nil {
		return fmt.Errorf("%w: %w", errSealed, err)
	}
	plain, err := c.ring.open(b, c.about(!c.opener, c.readSeq))
	if err != nil {
		return err
	}
	c.readSeq++
	c.rest = plain
	return nil
}

// Read implements net.Conn.
func (c *sealedConn) Read(b []byte) (int, error) {
	for len(c.rest) == 0 {
		if len(b) == 0 {
			return 0, nil
		}
		if err := c.fill(); err != nil {
			return 0, err
		}
	}
	n := copy(b, c.rest)
	c.rest = c.rest[n:]
	return n, nil
}

// Write implements net.Conn.
func (c *sealedConn) Write(b []byte) (int, error) {
	done := 0
	for done < len(b) {
		part := b[done:min(len(b), done+recordBytesMax)]
		out := append([]byte(nil), c.greet...)
		out = binary.BigEndian.AppendUint16(out, uint16(len(part)+sealOverhead))
		out = c.ring.appendSealed(out, part, c.about(c.opener, c.writeSeq))
		if _, err := c.Conn.Write(out); err != nil {
			return done, err
		}
		c.greet = nil
		c.writeSeq++
		done += len(part)
	}
	return done, nil
}
