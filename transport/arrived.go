package transport

import (
	"encoding/binary"
	"fmt"
	"slices"
	"time"
	"unsafe"

	"github.com/hashicorp/raft"

	"github.com/warrenmq/warren/dirty"
)

// arrived is an append as it came from another node: the data of its entries is not in them yet.
type arrived struct {
	req    *raft.AppendEntriesRequest
	bodies []Body // of req.Entries
}

// Body is the data of an entry where it arrived.
type Body struct {
	// Pieces follow each other; they are valid until Raft has answered the request, and must not be changed. There are none if there is no data.
	Pieces [][]byte
	// Sum is the CRC-32C of the data as the sender's log has it, if Summed.
	Sum    uint32
	Summed bool
}

// levelApart is from which level on a program knows rpcAppendApart.
const levelApart = 2

// headLenBytes is what the length of an append's head takes.
const headLenBytes = 4

// Flags of an entry.
const (
	entryStamped = 1 << 0 // it has a time
	entrySummed  = 1 << 1 // it has the checksum of its data
)

// appendApart encodes an append: the heads of entries, then their data, which is not copied where it is large.
func (c raftCodec) appendApart(r *raft.AppendEntriesRequest, sum Checksum) pieces {
	p := apartEntries(c.appendFields(make([]byte, headLenBytes, requestBytes+copied(r.Entries)), r), r.Entries, sum)
	binary.BigEndian.PutUint32(p[0], uint32(len(p[0])-headLenBytes))
	return p
}

// apartEntries appends the heads of entries to b, then their data.
func apartEntries(b []byte, logs []*raft.Log, sum Checksum) pieces {
	for _, l := range logs {
		b = appendEntryHead(b, l, sum)
	}
	p := pieces{b}
	b = b[len(b):]
	for _, l := range logs {
		if len(l.Data) > copyBytesMax {
			if len(b) > 0 {
				p = append(p, b)
				b = b[len(b):] // what follows lies behind it
			}
			p = append(p, l.Data)
		} else {
			b = append(b, l.Data...)
		}
	}
	if len(b) > 0 {
		p = append(p, b)
	}
	return p
}

// appendEntryHead appends all of an entry but its data.
func appendEntryHead(b []byte, l *raft.Log, sum Checksum) []byte {
	value, flags := uint32(0), byte(0)
	if sum != nil && len(l.Data) > 0 {
		if v, known := sum(l.Index, l.Term); known {
			value, flags = v, entrySummed
		}
	}
	if !l.AppendedAt.IsZero() {
		flags |= entryStamped
	}
	b = binary.AppendUvarint(b, l.Index)
	b = binary.AppendUvarint(b, l.Term)
	b = append(b, byte(l.Type), flags)
	if flags&entryStamped != 0 {
		b = binary.AppendVarint(b, l.AppendedAt.UnixNano())
	}
	if flags&entrySummed != 0 {
		b = binary.BigEndian.AppendUint32(b, value)
	}
	if l.Data == nil {
		b = append(b, 0)
	} else {
		b = binary.AppendUvarint(b, uint64(len(l.Data))+1)
	}
	var none raftCodec
	return none.bytes(b, l.Extensions)
}

// readApart decodes an append, which it takes apart. Its head is copied if it lies in several pieces, the data never.
func (c raftCodec) readApart(p pieces) (*arrived, error) {
	d := &decoder{b: p.first(headLenBytes)}
	n := d.u32()
	if d.err != nil || int64(n) > int64(p.bytes()-headLenBytes) {
		return nil, fmt.Errorf("%w: head of an append", errMalformed)
	}
	p = p.skip(headLenBytes)
	d.b, p = p.first(int(n)), p.skip(int(n))
	r, count := c.readAppendFields(d)
	if d.err != nil {
		return nil, d.err
	}
	a := &arrived{req: r}
	if rest := a.entries(d, int(count), p); rest > 0 {
		d.fail("bytes left over")
	}
	return a, d.end()
}

// entries decodes the heads of entries, whose data is p. It returns how many bytes of p are left.
func (a *arrived) entries(d *decoder, count int, p pieces) (left uint64) {
	left = uint64(p.bytes())
	if count == 0 {
		return left
	}
	slab := make([]raft.Log, count)
	a.req.Entries, a.bodies = make([]*raft.Log, count), make([]Body, count)
	for i := range slab {
		n := readEntryHead(d, &slab[i], &a.bodies[i])
		if n > left {
			d.fail("length beyond the end")
		}
		if d.err != nil {
			return left
		}
		left -= n
		a.bodies[i].Pieces, p = p.cut(int(n))
		a.req.Entries[i] = &slab[i]
	}
	return left
}

// readEntryHead reads all of an entry but its data, of which it returns the length. Data is nil if the entry has none, and empty otherwise.
func readEntryHead(d *decoder, l *raft.Log, body *Body) (n uint64) {
	l.Index, l.Term, l.Type = d.uvarint(), d.uvarint(), raft.LogType(d.u8())
	flags := d.u8()
	if flags&^(entryStamped|entrySummed) != 0 {
		d.fail("unknown flags of an entry")
	}
	if flags&entryStamped != 0 {
		l.AppendedAt = time.Unix(0, d.varint()).UTC()
	}
	if body.Summed = flags&entrySummed != 0; body.Summed {
		body.Sum = d.u32()
	}
	if n = d.uvarint(); n > 0 {
		l.Data = []byte{}
		n--
	}
	var none raftCodec
	l.Extensions = none.readBytes(d)
	return n
}

// join puts the data of entries into them; what lies in one piece is not copied.
func (a *arrived) join() {
	for i, l := range a.req.Entries {
		if p := pieces(a.bodies[i].Pieces); len(p) > 0 {
			l.Data = p.first(p.bytes())
		}
	}
}

// Checksum is the CRC-32C of the data of an entry that the replica's log has; ok is false if it cannot be told at once.
type Checksum func(index, term uint64) (sum uint32, ok bool)

// apart stands in an entry for its data, which is elsewhere. Nobody is to read it.
var apart = []byte("the data of this entry is apart")

// DataApart says that the replica's log takes the data of entries from where it arrived, see Arrived, and knows checksums of its own entries. It keeps
// nothing of what it is given: see CopiesEntries. DataApart is called before Raft starts.
//
// Raft only passes entries on: on a follower it reads the data of no command before it is committed, and then from the log.
func (rt *RaftTransport) DataApart(sum Checksum) {
	rt.apart.Store(&sum)
	rt.copies.Store(true)
}

// IsApart reports whether an entry that Raft stores is without its data, so that it must be stored with what Arrived says.
func IsApart(l *raft.Log) bool {
	return len(l.Data) == len(apart) && unsafe.SliceData(l.Data) == unsafe.SliceData(apart)
}

// Arrived returns where the data of entries is that Raft hands to the log while it handles a request of another node; nil if they are none of these.
// The log must have copied it when it answers.
func (rt *RaftTransport) Arrived(logs []*raft.Log) []Body {
	if len(logs) == 0 {
		return nil
	}
	rt.mu.Lock()
	defer rt.mu.Unlock()
	for _, r := range rt.arrived {
		all := r.data.req.Entries
		// Raft leaves out entries at the beginning, which it has.
		if n := len(all) - len(logs); n >= 0 && slices.Equal(all[n:], logs) {
			return r.data.bodies[n:]
		}
	}
	return nil
}

// ArrivedFrom returns where the data of entries from index on is that Raft got with requests which it has not answered.
func (rt *RaftTransport) ArrivedFrom(index uint64) (bodies []Body) {
	rt.mu.Lock()
	defer rt.mu.Unlock()
	for _, r := range rt.arrived {
		for i, l := range r.data.req.Entries {
			if l.Index >= index {
				bodies = append(bodies, r.data.bodies[i])
			}
		}
	}
	return bodies
}

// putData keeps the data of an append for Arrived, or puts it into the entries. rt.mu is held.
func (rt *RaftTransport) putData(r *inboundRPC) {
	if r.data == nil {
		return
	}
	if rt.apart.Load() == nil {
		r.data.join()
		r.data, r.held = nil, held{} // which is not returned: who knows what the log keeps
		return
	}
	for i, l := range r.data.req.Entries {
		p := pieces(r.data.bodies[i].Pieces)
		switch {
		case len(p) == 0:
		case l.Type == raft.LogCommand:
			l.Data = apart
		default: // which Raft reads
			l.Data = slices.Concat(p...)
		}
	}
	rt.arrived = append(rt.arrived, r)
}

// takeData forgets the data of an append. rt.mu is held.
func (rt *RaftTransport) takeData(r *inboundRPC) {
	rt.arrived = slices.DeleteFunc(rt.arrived, func(o *inboundRPC) bool { return o == r })
}

// over gives back the memory of a request that Raft has answered: it reads the request no more.
func (rt *RaftTransport) over(r *inboundRPC) {
	rt.mu.Lock()
	rt.takeData(r)
	rt.mu.Unlock()
	if rt.copies.Load() {
		r.held.free()
		dirty.Return(r.lent)
	}
}
