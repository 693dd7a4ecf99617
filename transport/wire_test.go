package transport

import (
	"bytes"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/hashicorp/raft"
	"google.golang.org/grpc/mem"
	"pgregory.net/rapid"
)

const self = NodeID("node-a/0f")

// optional draws nil, empty, the sender's own identity or other bytes.
func optional(t *rapid.T, name string) []byte {
	switch rapid.IntRange(0, 3).Draw(t, name+" kind") {
	case 0:
		return nil
	case 1:
		return []byte{}
	case 2:
		return []byte(self)
	default:
		return rapid.SliceOfN(rapid.Byte(), 1, 40).Draw(t, name)
	}
}

func number(t *rapid.T, name string) uint64 { return rapid.Uint64().Draw(t, name) }

func header(t *rapid.T) raft.RPCHeader {
	return raft.RPCHeader{ProtocolVersion: raft.ProtocolVersion(rapid.IntRange(-1, 5).Draw(t, "version")), ID: optional(t, "id"), Addr: optional(t, "addr")}
}

func anyRequest(t *rapid.T) any {
	h := header(t)
	switch rapid.IntRange(0, 4).Draw(t, "type") {
	case 0:
		r := &raft.AppendEntriesRequest{
			RPCHeader: h, Term: number(t, "term"), Leader: optional(t, "leader"), PrevLogEntry: number(t, "prev"),
			PrevLogTerm: number(t, "prevTerm"), LeaderCommitIndex: number(t, "commit"),
		}
		for range rapid.IntRange(0, 5).Draw(t, "entries") {
			l := &raft.Log{
				Index: number(t, "index"), Term: number(t, "term"), Type: raft.LogType(rapid.Byte().Draw(t, "log type")),
				Data: optional(t, "data"), Extensions: optional(t, "ext"),
			}
			if rapid.Bool().Draw(t, "stamped") {
				l.AppendedAt = time.Unix(0, rapid.Int64().Draw(t, "at")).UTC()
			}
			r.Entries = append(r.Entries, l)
		}
		return r
	case 1:
		return &raft.RequestVoteRequest{
			RPCHeader: h, Term: number(t, "term"), Candidate: optional(t, "cand"), LastLogIndex: number(t, "last"),
			LastLogTerm: number(t, "lastTerm"), LeadershipTransfer: rapid.Bool().Draw(t, "transfer"),
		}
	case 2:
		return &raft.RequestPreVoteRequest{RPCHeader: h, Term: number(t, "term"), LastLogIndex: number(t, "last"), LastLogTerm: number(t, "lastTerm")}
	case 3:
		return &raft.TimeoutNowRequest{RPCHeader: h}
	default:
		return &raft.InstallSnapshotRequest{
			RPCHeader: h, SnapshotVersion: raft.SnapshotVersion(rapid.IntRange(0, 3).Draw(t, "sv")),
			Term: number(t, "term"), Leader: optional(t, "leader"), LastLogIndex: number(t, "last"), LastLogTerm: number(t, "lastTerm"),
			Peers: optional(t, "peers"), Configuration: optional(t, "conf"), ConfigurationIndex: number(t, "ci"), Size: rapid.Int64().Draw(t, "size"),
		}
	}
}

func anyResponse(t *rapid.T) any {
	h, term, yes := header(t), number(t, "term"), rapid.Bool().Draw(t, "yes")
	switch rapid.IntRange(0, 4).Draw(t, "type") {
	case 0:
		return &appendAnswer{raft.AppendEntriesResponse{RPCHeader: h, Term: term, LastLog: number(t, "last"), Success: yes, NoRetryBackoff: rapid.Bool().Draw(t, "nrb")}, number(t, "turns")}
	case 1:
		return &raft.RequestVoteResponse{RPCHeader: h, Term: term, Peers: optional(t, "peers"), Granted: yes}
	case 2:
		return &raft.RequestPreVoteResponse{RPCHeader: h, Term: term, Granted: yes}
	case 3:
		return &raft.TimeoutNowResponse{RPCHeader: h}
	default:
		return &raft.InstallSnapshotResponse{RPCHeader: h, Term: term, Success: yes}
	}
}

func TestRaftRequestsSurviveTheWire(t *testing.T) {
	c := raftCodec{self: []byte(self)}
	rapid.Check(t, func(t *rapid.T) {
		want := anyRequest(t)
		b, rpc, err := c.request(want, form{apart: rapid.Bool().Draw(t, "apart")})
		if err != nil {
			t.Fatal(err)
		}
		got, err := c.readRequest(rpc, b.join())
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Fatalf("got %+v, %v, want %+v", got, err, want)
		}
		if r, ok := want.(*raft.AppendEntriesRequest); ok {
			size := 256
			for _, l := range r.Entries {
				size += entryBytes(l)
			}
			if b.bytes() > size+4*(40+len(self)) {
				t.Fatalf("%d bytes encoded, estimated %d", b.bytes(), size)
			}
		}
	})
}

func TestRaftResponsesSurviveTheWire(t *testing.T) {
	c := raftCodec{self: []byte(self)}
	rapid.Check(t, func(t *rapid.T) {
		want := anyResponse(t)
		b, err := c.response(nil, want)
		if err != nil {
			t.Fatal(err)
		}
		got := reflect.New(reflect.TypeOf(want).Elem()).Interface()
		if err := c.readResponse(b, got); err != nil || !reflect.DeepEqual(got, want) {
			t.Fatalf("got %+v, %v, want %+v", got, err, want)
		}
	})
}

// TestEveryFieldOfRaftIsKept fails when a version of raft adds a field we do not
// carry.
func TestEveryFieldOfRaftIsKept(t *testing.T) {
	for _, c := range []struct {
		v      any
		fields int
	}{
		{raft.RPCHeader{}, 3},
		{raft.Log{}, 6},
		{raft.AppendEntriesRequest{}, 7},
		{raft.AppendEntriesResponse{}, 5},
		{raft.RequestVoteRequest{}, 6},
		{raft.RequestVoteResponse{}, 4},
		{raft.RequestPreVoteRequest{}, 4},
		{raft.RequestPreVoteResponse{}, 3},
		{raft.InstallSnapshotRequest{}, 10},
		{raft.InstallSnapshotResponse{}, 3},
		{raft.TimeoutNowRequest{}, 1},
		{raft.TimeoutNowResponse{}, 1},
	} {
		if n := reflect.TypeOf(c.v).NumField(); n != c.fields {
			t.Errorf("%T has %d fields, the format carries %d", c.v, n, c.fields)
		}
	}
}

func TestWrongTypesAreRefused(t *testing.T) {
	c := raftCodec{}
	if _, _, err := c.request(5, form{}); err == nil {
		t.Error("encoded an int as a request")
	}
	if _, err := c.response(nil, 5); err == nil {
		t.Error("encoded an int as a response")
	}
	b, _ := c.response(nil, &raft.RequestVoteResponse{})
	if err := c.readResponse(b, &appendAnswer{}); !errors.Is(err, errMalformed) {
		t.Errorf("read a vote as an append: %v", err)
	}
}

func TestHandshakeSurvivesTheWire(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.StringN(0, 50, 200)
		h := hello{versionMin: protocolVersionMin, version: protocolVersion, cluster: text.Draw(t, "cluster"), from: NodeID(text.Draw(t, "from")), to: NodeID(text.Draw(t, "to")), process: number(t, "process")}
		if got, err := decodeHello(h.encode()); err != nil || got != h {
			t.Fatalf("hello: %+v, %v", got, err)
		}
		w := welcome{version: protocolVersion, node: h.to, process: number(t, "p"), epoch: number(t, "epoch"), window: number(t, "window")}
		if got, err := decodeReply(w.encode()); err != nil || got != w {
			t.Fatalf("welcome: %+v, %v", got, err)
		}
		e := &RemoteError{Code: rapid.Uint16().Draw(t, "code"), Text: text.Draw(t, "text")}
		_, err := decodeReply(encodeRefusal(e))
		if got, ok := errors.AsType[*RemoteError](err); !ok || *got != *e {
			t.Fatalf("refusal: %+v", err)
		}
		env := envelope{cluster: h.cluster, from: h.from, method: rapid.Byte().Draw(t, "method"), payload: []byte(text.Draw(t, "payload"))}
		if got, err := decodeEnvelope(env.encode()); err != nil || !reflect.DeepEqual(got, env) {
			t.Fatalf("envelope: %+v, %v", got, err)
		}
	})
}

// TestLargeEntriesTravelByReference: their data is not copied into the request, and what lies between
// is not overwritten.
func TestLargeEntriesTravelByReference(t *testing.T) {
	c := raftCodec{self: []byte(self)}
	want := &raft.AppendEntriesRequest{RPCHeader: headerOf(self), Term: 3, Entries: slices.Concat(
		logs(1, 2, 10), logs(3, 1, copyBytesMax+1), logs(4, 3, copyBytesMax), logs(7, 2, 100<<10), logs(9, 1, 0))}
	for _, apart := range []bool{true, false} {
		c.checkReferences(t, want, apart)
	}
}

func (c raftCodec) checkReferences(t *testing.T, want *raft.AppendEntriesRequest, apart bool) {
	t.Helper()
	p, rpc, err := c.request(want, form{apart: apart})
	if err != nil {
		t.Fatal(err)
	}
	number, first, last := 7, 1, 5
	if apart {
		number, first, last = 6, 2, 5
	}
	if len(p) != number || &p[first][0] != &want.Entries[2].Data[0] || &p[last][0] != &want.Entries[7].Data[0] {
		t.Fatalf("%d pieces", len(p))
	}
	if n := copied(want.Entries); n > 4*(copyBytesMax+48) {
		t.Errorf("%d bytes are to be copied", n)
	}
	got, err := c.readRequest(rpc, p.join())
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Fatalf("got %+v, %v", got, err)
	}
	whole := p.join()
	for cut := range len(whole) / 1000 {
		first, rest := p.head(cut * 1000)
		if first.bytes() != cut*1000 || !bytes.Equal(append(first.join(), rest.join()...), whole) {
			t.Fatalf("cut at %d: %d bytes and the rest", cut*1000, first.bytes())
		}
	}
}

// TestMessagesAreReadInAnyPieces writes frames through an outbox and reads them back
// from buffers cut at arbitrary places, which are all given back.
func TestMessagesAreReadInAnyPieces(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		o := newOutbox(64<<20, new(bufferPool))
		var want [][]byte
		var lender countingPool
		for i := range rapid.IntRange(1, 5).Draw(t, "frames") {
			size := rapid.SampledFrom([]int{0, 1, 100, copyBytesMax, copyBytesMax + 1, runBytes, 300 << 10, messageBytesMax + 1, 3 << 20}).Draw(t, "size")
			body := bytes.Repeat([]byte{byte(i)}, size)
			fields := []byte{byte(i), 9}
			half := rapid.IntRange(0, size).Draw(t, "cut")
			kind := rapid.SampledFrom([]uint8{frameApp, frameRaft}).Draw(t, "kind")
			if err := o.put(laneRaft, kind, fields, body[:half], body[half:]); err != nil {
				t.Fatal(err)
			}
			want = append(want, append(fields, body...))
		}
		var frames []frame
		var got [][]byte
		q := messageSequence{epoch: 5, limit: 16 << 20}
		w := messageWriter{epoch: 5, send: func(m *rawMessage) error {
			b := m.data.Materialize()
			if len(b) > messageBytesMax+64 {
				t.Fatalf("message of %d bytes", len(b))
			}
			msg := &rawMessage{data: cut(t, b, &lender)}
			return q.each(msg, func(f frame) error { frames = append(frames, f); return nil })
		}}
		if err := w.drain(o); err != nil {
			t.Fatal(err)
		}
		for _, f := range frames {
			if f.held.bytes == 0 {
				got = append(got, f.body)
				continue
			}
			got = append(got, f.held.pieces.join())
			if f.held.bytes != len(got[len(got)-1]) || f.kind != frameRaft {
				t.Fatalf("frame of kind %d, %d bytes of %d", f.kind, len(got[len(got)-1]), f.held.bytes)
			}
			f.held.free()
		}
		if lender.out != 0 {
			t.Fatalf("%d buffers are not given back", lender.out)
		}
		if !reflect.DeepEqual(got, want) {
			t.Fatalf("%d frames read, %d written", len(got), len(want))
		}
	})
}

// countingPool counts the buffers that are lent, and makes what is given back unreadable.
type countingPool struct{ out int }

func (p *countingPool) Get(n int) *[]byte {
	p.out++
	b := make([]byte, n)
	return &b
}

func (p *countingPool) Put(b *[]byte) {
	p.out--
	for i := range *b {
		(*b)[i] = 0xDB
	}
}

func cut(t *rapid.T, b []byte, pool mem.BufferPool) (s mem.BufferSlice) {
	step := max(rapid.SampledFrom([]int{7, 1000, 16 << 10, 1 << 20}).Draw(t, "step"), len(b)/500)
	for len(b) > 0 {
		n := min(step, len(b))
		s = append(s, mem.Copy(b[:n], pool))
		b = b[n:]
	}
	return s
}

// TestAppendsAreReadInAnyPieces decodes an append wherever its bytes are cut, and finds the data of each entry.
func TestAppendsAreReadInAnyPieces(t *testing.T) {
	c := raftCodec{self: []byte(self)}
	sum := func(index, term uint64) (uint32, bool) { return uint32(100*index + term), index%2 == 0 }
	rapid.Check(t, func(t *rapid.T) {
		want := &raft.AppendEntriesRequest{RPCHeader: headerOf(self), Term: 3, Leader: []byte("l"), PrevLogEntry: 1, PrevLogTerm: 2, LeaderCommitIndex: 1}
		for i := range rapid.IntRange(0, 4).Draw(t, "entries") {
			size := rapid.SampledFrom([]int{0, 1, 100, copyBytesMax, copyBytesMax + 1, 40 << 10}).Draw(t, "size")
			want.Entries = append(want.Entries, logs(i+2, 1, size)...)
		}
		encoded, rpc, err := c.request(want, form{apart: true, sum: sum})
		if err != nil {
			t.Fatal(err)
		}
		whole := encoded.join()
		var p pieces
		for rest := whole; len(rest) > 0; {
			n := min(len(rest), rapid.SampledFrom([]int{1, 3, 50, 5000, 16 << 10}).Draw(t, "piece"))
			p, rest = append(p, rest[:n]), rest[n:]
		}
		a, err := c.readApart(p)
		if err != nil {
			t.Fatal(err)
		}
		for i, l := range want.Entries {
			b := a.bodies[i]
			if got := pieces(b.Pieces).join(); !bytes.Equal(got, l.Data) {
				t.Fatalf("entry %d has %d bytes, want %d", l.Index, len(got), len(l.Data))
			}
			if b.Summed != (l.Index%2 == 0 && len(l.Data) > 0) || b.Summed && b.Sum != uint32(100*l.Index+l.Term) {
				t.Fatalf("entry %d: sum %d, %v", l.Index, b.Sum, b.Summed)
			}
		}
		a.join()
		if !reflect.DeepEqual(a.req, want) {
			t.Fatalf("got %+v, want %+v", a.req, want)
		}
		for _, n := range []int{0, 3, 4, 9, len(whole) / 2, len(whole) - 1} {
			if got, err := c.readRequest(rpc, whole[:n]); !isMalformed(err) {
				t.Fatalf("%d of %d bytes: %+v, %v", n, len(whole), got, err)
			}
		}
	})
}

func FuzzMessage(f *testing.F) {
	f.Add(message(1, 1, appendHead(nil, framePing, make([]byte, 8), 0)))
	f.Add(message(1, 1, []byte{frameApp, 3, 1, 2, 3}, []byte{frameAnswer, 4, 1, 0, 5, 5}))
	f.Add(message(1, 1, []byte{framePart, 5, 0, 6, frameApp, 1, 2}, []byte{framePart, 5, 0, 6, 3, 4, 5}))
	f.Add(message(1, 1, []byte{framePart, 5, 0, 6, frameRaft, 1, 2}, []byte{framePart, 5, 0, 6, 3, 4, 5}))
	f.Add(message(1, 1, []byte{framePart, 4, 1, 0xff, 0x7f, 6}))
	f.Add(message(1, 1, []byte{frameApp, 0xff, 0xff, 0xff, 0xff, 0x0f}))
	f.Fuzz(func(t *testing.T, b []byte) {
		q := messageSequence{epoch: 1, limit: 1 << 20}
		total := 0
		err := q.each(rawBytes(b), func(fr frame) error {
			total += len(fr.body) + fr.held.bytes
			if fr.kind == frameAnswer {
				decodeAnswer(fr.body)
			}
			return nil
		})
		if kept := len(q.parts[0]) + len(q.parts[1]) + q.held[0].bytes + q.held[1].bytes; total+kept > len(b) {
			t.Fatalf("%d bytes of frames from %d bytes (%v)", total, len(b), err)
		}
	})
}

func FuzzRaftRequest(f *testing.F) {
	c := raftCodec{self: []byte(self)}
	for _, cmd := range []any{
		&raft.AppendEntriesRequest{RPCHeader: headerOf(self), Term: 3, PrevLogEntry: 1, Entries: logs(2, 2, 9)},
		&raft.RequestVoteRequest{RPCHeader: headerOf(self), Term: 1, LeadershipTransfer: true},
		&raft.RequestPreVoteRequest{RPCHeader: headerOf("x"), Term: 1},
		&raft.TimeoutNowRequest{RPCHeader: headerOf(self)},
		&raft.InstallSnapshotRequest{RPCHeader: headerOf(self), Size: 7, Configuration: []byte{1}},
	} {
		b, rpc, _ := c.request(cmd, form{})
		f.Add(rpc, b.join())
	}
	f.Add(uint8(rpcAppend), []byte{6, 0, 0, 1, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0x0f})
	apart, rpc, _ := c.request(&raft.AppendEntriesRequest{RPCHeader: headerOf(self), Term: 3, Entries: logs(2, 2, 9)}, form{apart: true})
	f.Add(rpc, apart.join())
	f.Fuzz(func(t *testing.T, rpc uint8, b []byte) {
		cmd, err := c.readRequest(rpc, b)
		if err != nil {
			return
		}
		again, kind, err := c.request(cmd, form{apart: rpc == rpcAppendApart})
		if err != nil || kind != rpc {
			t.Fatalf("type %d, %v", kind, err)
		}
		back, err := c.readRequest(rpc, again.join())
		if err != nil || !reflect.DeepEqual(back, cmd) {
			t.Fatalf("%+v became %+v, %v", cmd, back, err)
		}
	})
}

func FuzzRaftResponse(f *testing.F) {
	c := raftCodec{self: []byte(self)}
	all := func() []any {
		return []any{&appendAnswer{}, &raft.RequestVoteResponse{}, &raft.RequestPreVoteResponse{}, &raft.TimeoutNowResponse{}, &raft.InstallSnapshotResponse{}}
	}
	for _, r := range all() {
		b, _ := c.response(nil, r)
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		ok := 0
		for _, r := range all() {
			if c.readResponse(b, r) == nil {
				ok++
			}
		}
		if ok > 1 {
			t.Fatal("one response reads as two types")
		}
	})
}

func FuzzFirstMessages(f *testing.F) {
	f.Add(hello{versionMin: protocolVersionMin, version: protocolVersion, cluster: "c", from: "a/1", to: "b/1", process: 4}.encode())
	f.Add(welcome{version: 1, node: "b/1", epoch: 3, window: 9}.encode())
	f.Add(encodeRefusal(&RemoteError{Code: 5, Text: "no"}))
	f.Add(envelope{cluster: "c", from: "a/1", method: 3, payload: []byte("x")}.encode())
	b, _, _ := raftCodec{}.request(&raft.InstallSnapshotRequest{Size: 3}, form{})
	f.Add(snapshotHeader{cluster: "c", from: "a/1", to: "b/1", epoch: 1, group: 2, request: b.join()}.encode())
	f.Fuzz(func(t *testing.T, b []byte) {
		if h, err := decodeHello(b); err == nil && h.version == 1 && h.versionMin <= 1 {
			if again, err := decodeHello(h.encode()); err != nil || again != h {
				t.Fatalf("hello %+v became %+v, %v", h, again, err)
			}
		}
		decodeReply(b)
		decodeEnvelope(b)
		if _, req, err := decodeSnapshotHeader(b); err == nil && (req == nil || req.Size < 0) {
			t.Fatal("a snapshot header without a request")
		}
	})
}

// The check value is the CRC-32 of the replica's name and the group's number.
func TestTargetCheck(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		to, g := rapid.String().Draw(t, "replica"), rapid.Uint64().Draw(t, "group")
		want := crc32.ChecksumIEEE(binary.BigEndian.AppendUint64([]byte(to), g))
		if got := targetCheck(ReplicaID(to), GroupID(g)); got != want {
			t.Errorf("%08x, want %08x", got, want)
		}
	})
}
