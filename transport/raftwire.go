package transport

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/hashicorp/raft"
)

// Types of Raft requests. The numbers are part of the format.
const (
	rpcAppend     = 1
	rpcVote       = 2
	rpcPreVote    = 3
	rpcTimeoutNow = 4
	rpcSnapshot   = 5
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

// Flags of an entry.
const (
	entryStamped = 1 << 0 // it has a time
	entrySummed  = 1 << 1 // it has the checksum of its data
)

// entries appends the heads of entries to b, then their data, which is not copied where it is large.
func (c raftCodec) entries(b []byte, logs []*raft.Log, sum Checksum) pieces {
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

// headLenBytes is what the length of an append's head takes.
const headLenBytes = 4

// requestBytes is room for a request without entries.
const requestBytes = 128

// request encodes a request; it returns its type. sum, which may be nil, knows checksums of entries.
func (c raftCodec) request(cmd any, sum Checksum) (pieces, uint8, error) {
	if a, ok := cmd.(*raft.AppendEntriesRequest); ok {
		return c.appendRequest(a, sum), rpcAppend, nil
	}
	b, rpc, err := c.plainRequest(make([]byte, 0, requestBytes), cmd)
	return pieces{b}, rpc, err
}

func (c raftCodec) appendRequest(r *raft.AppendEntriesRequest, sum Checksum) pieces {
	b := c.header(make([]byte, headLenBytes, requestBytes+copied(r.Entries)), r.RPCHeader)
	b = binary.AppendUvarint(b, r.Term)
	b = c.bytes(b, r.Leader)
	b = binary.AppendUvarint(b, r.PrevLogEntry)
	b = binary.AppendUvarint(b, r.PrevLogTerm)
	b = binary.AppendUvarint(b, r.LeaderCommitIndex)
	b = binary.AppendUvarint(b, uint64(len(r.Entries)))
	p := c.entries(b, r.Entries, sum)
	binary.BigEndian.PutUint32(p[0], uint32(len(p[0])-headLenBytes))
	return p
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
		a, err := c.readAppend(pieces{b})
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

// response appends an encoded response of any kind.
func (c raftCodec) response(b []byte, resp any) ([]byte, error) {
	switch r := resp.(type) {
	case *appendAnswer:
		b = c.header(append(b, rpcAppend), r.RPCHeader)
		b = binary.AppendUvarint(b, r.Term)
		b = binary.AppendUvarint(b, r.LastLog)
		b = appendBool(appendBool(b, r.Success), r.NoRetryBackoff)
		return binary.AppendUvarint(b, r.turns), nil
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
