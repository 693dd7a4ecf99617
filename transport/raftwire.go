package transport

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"slices"
	"time"

	"github.com/hashicorp/raft"
)

// Types of Raft requests. The numbers are part of the format.
const (
	rpcAppend     = 1
	rpcVote       = 2
	rpcPreVote    = 3
	rpcTimeoutNow = 4
	rpcSnapshot   = 5
	// rpcAppendApart is an append with the data of entries behind all else. Programs of level 1 do not know it.
	rpcAppendApart = 6
)

// entryBytesMin is the least an encoded log entry takes; it bounds what a claimed
// count may allocate.
const entryBytesMin = 6

// raftCodec encodes Raft's structures. Fields that repeat the sender's identity,
// which nearly all of them do, shrink to one byte.
type raftCodec struct {
	self []byte // the sender's NodeID
}

// bytes appends an optional byte string: 0 is the sender's identity, 1 nil, n+2 a
// string of n bytes.
func (c raftCodec) bytes(b, v []byte) []byte {
	switch {
	case v == nil:
		return append(b, 1)
	case len(c.self) > 0 && bytes.Equal(v, c.self):
		return append(b, 0)
	default:
		b = binary.AppendUvarint(b, uint64(len(v))+2)
		return append(b, v...)
	}
}

func (c raftCodec) readBytes(d *decoder) []byte {
	switch n := d.uvarint(); {
	case d.err != nil || n == 1:
		return nil
	case n == 0:
		return c.self
	default:
		return d.take(n - 2)
	}
}

func appendBool(b []byte, v bool) []byte {
	if v {
		return append(b, 1)
	}
	return append(b, 0)
}

func (d *decoder) bool() bool {
	v := d.u8()
	if v > 1 {
		d.fail("bad boolean")
	}
	return v == 1
}

func (c raftCodec) header(b []byte, h raft.RPCHeader) []byte {
	b = binary.AppendVarint(b, int64(h.ProtocolVersion))
	b = c.bytes(b, h.ID)
	return c.bytes(b, h.Addr)
}

func (c raftCodec) readHeader(d *decoder) raft.RPCHeader {
	return raft.RPCHeader{
		ProtocolVersion: raft.ProtocolVersion(d.varint()),
		ID:              c.readBytes(d),
		Addr:            c.readBytes(d),
	}
}

// entryBytes is an upper bound of the encoded size of an entry.
func entryBytes(l *raft.Log) int { return len(l.Data) + len(l.Extensions) + 48 }

// pieces are bytes that follow each other. They travel by reference where they are
// large, and must not change.
type pieces [][]byte

func (p pieces) bytes() int {
	n := 0
	for _, b := range p {
		n += len(b)
	}
	return n
}

// head returns the first n bytes of p, and the rest.
func (p pieces) head(n int) (first, rest pieces) {
	for i, b := range p {
		if len(b) > n {
			return append(p[:i:i], b[:n]), append(pieces{b[n:]}, p[i+1:]...)
		}
		n -= len(b)
	}
	return p, nil
}

// join copies all bytes into one slice.
func (p pieces) join() []byte { return slices.Concat(p...) }

// entries appends encoded entries to b, which is not full by now. Large data is not copied.
func (c raftCodec) entries(b []byte, logs []*raft.Log) pieces {
	var p pieces
	for _, l := range logs {
		b = binary.AppendUvarint(b, l.Index)
		b = binary.AppendUvarint(b, l.Term)
		b = append(b, byte(l.Type))
		if l.AppendedAt.IsZero() {
			b = append(b, 0)
		} else {
			b = append(b, 1)
			b = binary.AppendVarint(b, l.AppendedAt.UnixNano())
		}
		var none raftCodec
		if len(l.Data) > copyBytesMax {
			b = binary.AppendUvarint(b, uint64(len(l.Data))+2)
			p = append(p, b, l.Data)
			b = b[len(b):] // what follows lies behind it
		} else {
			b = none.bytes(b, l.Data)
		}
		b = none.bytes(b, l.Extensions)
	}
	return append(p, b)
}

// copied is an upper bound of the bytes of encoded entries that are copied.
func copied(logs []*raft.Log) int {
	n := 0
	for _, l := range logs {
		n += entryBytes(l)
		if len(l.Data) > copyBytesMax {
			n -= len(l.Data)
		}
	}
	return n
}

func readEntry(d *decoder, l *raft.Log) {
	l.Index, l.Term, l.Type = d.uvarint(), d.uvarint(), raft.LogType(d.u8())
	if d.bool() {
		l.AppendedAt = time.Unix(0, d.varint()).UTC()
	}
	var none raftCodec
	l.Data = none.readBytes(d)
	l.Extensions = none.readBytes(d)
}

// requestBytes is room for a request without entries.
const requestBytes = 128

// form is how an append is encoded.
type form struct {
	apart bool     // the heads of entries first, then their data
	sum   Checksum // what is known of checksums, nil if nothing
}

// request encodes a request; it returns its type.
func (c raftCodec) request(cmd any, f form) (pieces, uint8, error) {
	if a, ok := cmd.(*raft.AppendEntriesRequest); ok {
		if f.apart {
			return c.appendApart(a, f.sum), rpcAppendApart, nil
		}
		return c.entries(c.appendFields(make([]byte, 0, requestBytes+copied(a.Entries)), a), a.Entries), rpcAppend, nil
	}
	b, rpc, err := c.plainRequest(make([]byte, 0, requestBytes), cmd)
	return pieces{b}, rpc, err
}

// appendFields appends all of an append but its entries.
func (c raftCodec) appendFields(b []byte, r *raft.AppendEntriesRequest) []byte {
	b = c.header(b, r.RPCHeader)
	b = binary.AppendUvarint(b, r.Term)
	b = c.bytes(b, r.Leader)
	b = binary.AppendUvarint(b, r.PrevLogEntry)
	b = binary.AppendUvarint(b, r.PrevLogTerm)
	b = binary.AppendUvarint(b, r.LeaderCommitIndex)
	return binary.AppendUvarint(b, uint64(len(r.Entries)))
}

// plainRequest appends a request that has no entries.
func (c raftCodec) plainRequest(b []byte, cmd any) ([]byte, uint8, error) {
	switch r := cmd.(type) {
	case *raft.RequestVoteRequest:
		b = c.header(b, r.RPCHeader)
		b = binary.AppendUvarint(b, r.Term)
		b = c.bytes(b, r.Candidate)
		b = binary.AppendUvarint(b, r.LastLogIndex)
		b = binary.AppendUvarint(b, r.LastLogTerm)
		return appendBool(b, r.LeadershipTransfer), rpcVote, nil
	case *raft.RequestPreVoteRequest:
		b = c.header(b, r.RPCHeader)
		b = binary.AppendUvarint(b, r.Term)
		b = binary.AppendUvarint(b, r.LastLogIndex)
		return binary.AppendUvarint(b, r.LastLogTerm), rpcPreVote, nil
	case *raft.TimeoutNowRequest:
		return c.header(b, r.RPCHeader), rpcTimeoutNow, nil
	case *raft.InstallSnapshotRequest:
		b = c.header(b, r.RPCHeader)
		b = binary.AppendVarint(b, int64(r.SnapshotVersion))
		b = binary.AppendUvarint(b, r.Term)
		b = c.bytes(b, r.Leader)
		b = binary.AppendUvarint(b, r.LastLogIndex)
		b = binary.AppendUvarint(b, r.LastLogTerm)
		b = c.bytes(b, r.Peers)
		b = c.bytes(b, r.Configuration)
		b = binary.AppendUvarint(b, r.ConfigurationIndex)
		return binary.AppendVarint(b, r.Size), rpcSnapshot, nil
	default:
		return b, 0, fmt.Errorf("transport: no encoding for %T", cmd)
	}
}

// readRequest decodes a request of the given type. Byte fields alias b.
func (c raftCodec) readRequest(rpc uint8, b []byte) (any, error) {
	d := &decoder{b: b}
	var cmd any
	switch rpc {
	case rpcAppend:
		cmd = c.readAppend(d)
	case rpcAppendApart:
		a, err := c.readApart(pieces{b})
		if err != nil {
			return nil, err
		}
		a.join()
		return a.req, nil
	case rpcVote:
		r := &raft.RequestVoteRequest{RPCHeader: c.readHeader(d), Term: d.uvarint(), Candidate: c.readBytes(d)}
		r.LastLogIndex, r.LastLogTerm, r.LeadershipTransfer = d.uvarint(), d.uvarint(), d.bool()
		cmd = r
	case rpcPreVote:
		r := &raft.RequestPreVoteRequest{RPCHeader: c.readHeader(d)}
		r.Term, r.LastLogIndex, r.LastLogTerm = d.uvarint(), d.uvarint(), d.uvarint()
		cmd = r
	case rpcTimeoutNow:
		cmd = &raft.TimeoutNowRequest{RPCHeader: c.readHeader(d)}
	case rpcSnapshot:
		r := &raft.InstallSnapshotRequest{RPCHeader: c.readHeader(d)}
		r.SnapshotVersion = raft.SnapshotVersion(d.varint())
		r.Term, r.Leader = d.uvarint(), c.readBytes(d)
		r.LastLogIndex, r.LastLogTerm = d.uvarint(), d.uvarint()
		r.Peers, r.Configuration = c.readBytes(d), c.readBytes(d)
		r.ConfigurationIndex, r.Size = d.uvarint(), d.varint()
		cmd = r
	default:
		return nil, fmt.Errorf("%w: raft request type %d", errMalformed, rpc)
	}
	return cmd, d.end()
}

// readAppendFields decodes all of an append but its entries, and their number.
func (c raftCodec) readAppendFields(d *decoder) (r *raft.AppendEntriesRequest, n uint64) {
	r = &raft.AppendEntriesRequest{RPCHeader: c.readHeader(d), Term: d.uvarint(), Leader: c.readBytes(d)}
	r.PrevLogEntry, r.PrevLogTerm, r.LeaderCommitIndex = d.uvarint(), d.uvarint(), d.uvarint()
	n = d.uvarint()
	if d.err == nil && n > uint64(len(d.b)/entryBytesMin) {
		d.fail("more entries than bytes")
	}
	return r, n
}

func (c raftCodec) readAppend(d *decoder) *raft.AppendEntriesRequest {
	r, n := c.readAppendFields(d)
	if d.err != nil || n == 0 {
		return r
	}
	slab := make([]raft.Log, n)
	r.Entries = make([]*raft.Log, n)
	for i := range slab {
		readEntry(d, &slab[i])
		r.Entries[i] = &slab[i]
	}
	return r
}

// response appends an encoded response of any kind.
func (c raftCodec) response(b []byte, resp any) ([]byte, error) {
	switch r := resp.(type) {
	case *appendAnswer:
		return c.appendAnswer(b, &r.AppendEntriesResponse, r.turns), nil
	case *raft.RequestVoteResponse:
		b = c.header(append(b, rpcVote), r.RPCHeader)
		b = binary.AppendUvarint(b, r.Term)
		return appendBool(c.bytes(b, r.Peers), r.Granted), nil
	case *raft.RequestPreVoteResponse:
		b = c.header(append(b, rpcPreVote), r.RPCHeader)
		return appendBool(binary.AppendUvarint(b, r.Term), r.Granted), nil
	case *raft.TimeoutNowResponse:
		return c.header(append(b, rpcTimeoutNow), r.RPCHeader), nil
	case *raft.InstallSnapshotResponse:
		b = c.header(append(b, rpcSnapshot), r.RPCHeader)
		return appendBool(binary.AppendUvarint(b, r.Term), r.Success), nil
	default:
		return b, fmt.Errorf("transport: no encoding for %T", resp)
	}
}

// appendAnswer appends the answer to an append.
func (c raftCodec) appendAnswer(b []byte, r *raft.AppendEntriesResponse, turns uint64) []byte {
	b = c.header(append(b, rpcAppend), r.RPCHeader)
	b = binary.AppendUvarint(b, r.Term)
	b = binary.AppendUvarint(b, r.LastLog)
	b = appendBool(appendBool(b, r.Success), r.NoRetryBackoff)
	return binary.AppendUvarint(b, turns)
}

// readResponse decodes into resp, whose type must be the one that was sent.
func (c raftCodec) readResponse(b []byte, resp any) error {
	d := &decoder{b: b}
	kind := d.u8()
	want := uint8(0)
	switch r := resp.(type) {
	case *appendAnswer:
		want = rpcAppend
		if kind == want {
			r.AppendEntriesResponse = raft.AppendEntriesResponse{RPCHeader: c.readHeader(d), Term: d.uvarint(), LastLog: d.uvarint(), Success: d.bool(), NoRetryBackoff: d.bool()}
			r.turns = d.uvarint()
		}
	case *raft.RequestVoteResponse:
		want = rpcVote
		if kind == want {
			*r = raft.RequestVoteResponse{RPCHeader: c.readHeader(d), Term: d.uvarint(), Peers: c.readBytes(d), Granted: d.bool()}
		}
	case *raft.RequestPreVoteResponse:
		want = rpcPreVote
		if kind == want {
			*r = raft.RequestPreVoteResponse{RPCHeader: c.readHeader(d), Term: d.uvarint(), Granted: d.bool()}
		}
	case *raft.TimeoutNowResponse:
		want = rpcTimeoutNow
		if kind == want {
			*r = raft.TimeoutNowResponse{RPCHeader: c.readHeader(d)}
		}
	case *raft.InstallSnapshotResponse:
		want = rpcSnapshot
		if kind == want {
			*r = raft.InstallSnapshotResponse{RPCHeader: c.readHeader(d), Term: d.uvarint(), Success: d.bool()}
		}
	}
	if kind != want {
		return fmt.Errorf("%w: response of type %d to a %T", errMalformed, kind, resp)
	}
	return d.end()
}

// verifiedCommit is the commit index a follower may take from r: nothing beyond
// the last entry that r itself compares or brings.
func verifiedCommit(r *raft.AppendEntriesRequest) uint64 {
	return min(r.LeaderCommitIndex, r.PrevLogEntry+uint64(len(r.Entries)))
}
