package transport

import (
	"context"
	"encoding/binary"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hashicorp/raft"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
)

// rawLink is a hand-driven client of the link protocol.
type rawLink struct {
	t      *testing.T
	conn   *grpc.ClientConn
	stream grpc.ClientStream
	welcome
}

func dialRaw(t *testing.T, to *Mesh, from NodeID) *rawLink {
	t.Helper()
	return dialRawAs(t, to, from, 1)
}

// dialRawAs is dialRaw by a certain process.
func dialRawAs(t *testing.T, to *Mesh, from NodeID, process uint64) *rawLink {
	t.Helper()
	conn, err := grpc.NewClient("passthrough:///"+to.cfg.Listener.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.ForceCodecV2(rawCodec{})))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	stream, err := conn.NewStream(withTimeout(t, 30*time.Second), &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}, linkMethod)
	if err != nil {
		t.Fatal(err)
	}
	l := &rawLink{t: t, conn: conn, stream: stream}
	h := hello{versionMin: protocolVersionMin, version: protocolVersion, cluster: "c", from: from, to: to.cfg.Local, process: process}
	l.sendBytes(h.encode())
	if l.welcome, err = decodeReply(l.receive()); err != nil {
		t.Fatal(err)
	}
	return l
}

func (l *rawLink) sendBytes(b []byte) {
	if err := l.stream.SendMsg(rawBytes(b)); err != nil {
		l.t.Logf("send: %v", err)
	}
}

func (l *rawLink) receive() []byte {
	l.t.Helper()
	var msg rawMessage
	if err := l.stream.RecvMsg(&msg); err != nil {
		l.t.Fatal(err)
	}
	return msg.take()
}

// ended waits for the end of the stream.
func (l *rawLink) ended() error {
	for {
		var msg rawMessage
		if err := l.stream.RecvMsg(&msg); err != nil {
			return err
		}
	}
}

func message(epoch, seq uint64, frames ...[]byte) []byte {
	b := binary.AppendUvarint(binary.BigEndian.AppendUint64(nil, epoch), seq)
	for _, f := range frames {
		b = append(b, f...)
	}
	return b
}

func appendFrame(t *testing.T, to ReplicaID, g GroupID, req *raft.AppendEntriesRequest) []byte {
	t.Helper()
	b, rpc, err := raftCodec{}.request(req, form{})
	if err != nil {
		t.Fatal(err)
	}
	fields := append(appendTarget(binary.AppendUvarint(nil, 1), to, g), 0, rpc)
	return append(appendHead(nil, frameRaft, fields, b.bytes()), b.join()...)
}

// fenced is a node whose group 2 counts what it is given.
func fenced(t *testing.T) (*Mesh, *atomic.Int64) {
	m := startMesh(t, &directory{}, "b/1", nil)
	var seen atomic.Int64
	script(t, m, 2, func(cmd any) any { seen.Store(int64(cmd.(*raft.AppendEntriesRequest).Term)); return agreeable(cmd) })
	return m, &seen
}

func beatOf(t *testing.T, term uint64) []byte {
	return appendFrame(t, "b/1", 2, &raft.AppendEntriesRequest{RPCHeader: headerOf("a/1"), Term: term})
}

func TestForgedMessagesEndTheStream(t *testing.T) {
	cases := map[string]func(l *rawLink){
		"another epoch from the start": func(l *rawLink) { l.sendBytes(message(l.epoch+1, 1, beatOf(t, 9))) },
		"epoch of an older stream":     func(l *rawLink) { l.sendBytes(message(l.epoch, 1)); l.sendBytes(message(l.epoch-1, 2, beatOf(t, 9))) },
		"replayed":                     func(l *rawLink) { l.sendBytes(message(l.epoch, 1)); l.sendBytes(message(l.epoch, 1, beatOf(t, 9))) },
		"reordered":                    func(l *rawLink) { l.sendBytes(message(l.epoch, 2, beatOf(t, 9))) },
		"skipped":                      func(l *rawLink) { l.sendBytes(message(l.epoch, 1)); l.sendBytes(message(l.epoch, 3, beatOf(t, 9))) },
		"short":                        func(l *rawLink) { l.sendBytes([]byte{1, 2, 3}) },
		"frame beyond the message":     func(l *rawLink) { l.sendBytes(append(message(l.epoch, 1), frameApp, 0xff, 0x7f)) },
		"part of another frame": func(l *rawLink) {
			l.sendBytes(append(message(l.epoch, 1), framePart, 3, 0, 9, frameApp, framePart, 3, 0, 8, 1))
		},
		"part beyond its frame":     func(l *rawLink) { l.sendBytes(append(message(l.epoch, 1), framePart, 5, 0, 2, frameApp, 1, 1)) },
		"part of a part":            func(l *rawLink) { l.sendBytes(append(message(l.epoch, 1), framePart, 4, 0, 2, framePart, 1)) },
		"part of an unknown lane":   func(l *rawLink) { l.sendBytes(append(message(l.epoch, 1), framePart, 4, 7, 2, frameApp, 1)) },
		"unknown frame":             func(l *rawLink) { l.sendBytes(append(message(l.epoch, 1), 77, 0)) },
		"answer on the asking side": func(l *rawLink) { l.sendBytes(append(message(l.epoch, 1), frameAnswer, 2, 1, 0)) },
	}
	m, seen := fenced(t)
	for name, send := range cases {
		t.Run(name, func(t *testing.T) {
			l := dialRaw(t, m, "a/1")
			send(l)
			if err := l.ended(); err == nil {
				t.Fatal("the stream lives")
			}
			if got := seen.Load(); got != 0 {
				t.Fatalf("a frame of term %d was delivered", got)
			}
		})
	}
}

// TestNewerStreamFencesTheOlder sends on two streams of one node. Once the newer
// one has spoken, nothing of the older is delivered, and a greeting alone does not
// take over.
func TestNewerStreamFencesTheOlder(t *testing.T) {
	m, seen := fenced(t)
	old := dialRaw(t, m, "a/1")
	old.sendBytes(message(old.epoch, 1, beatOf(t, 1)))
	until(t, "the first frame arrives", func() bool { return seen.Load() == 1 })
	newer := dialRaw(t, m, "a/1")
	old.sendBytes(message(old.epoch, 2, beatOf(t, 2)))
	until(t, "the older stream still lives", func() bool { return seen.Load() == 2 })
	newer.sendBytes(message(newer.epoch, 1, beatOf(t, 3)))
	until(t, "the newer stream speaks", func() bool { return seen.Load() == 3 })
	old.sendBytes(message(old.epoch, 3, beatOf(t, 4)))
	if err := old.ended(); err == nil {
		t.Fatal("the older stream lives")
	}
	newer.sendBytes(message(newer.epoch, 2, beatOf(t, 5)))
	until(t, "the newer stream goes on", func() bool { return seen.Load() == 5 })
	// A stream opened before another and speaking after it is older, too.
	first, second := dialRaw(t, m, "a/1"), dialRaw(t, m, "a/1")
	second.sendBytes(message(second.epoch, 1, beatOf(t, 6)))
	until(t, "the second speaks", func() bool { return seen.Load() == 6 })
	first.sendBytes(message(first.epoch, 1, beatOf(t, 7)))
	if err := first.ended(); err == nil {
		t.Fatal("a late greeting took over")
	}
	if got := seen.Load(); got != 6 {
		t.Fatalf("frame of term %d was delivered", got)
	}
}

func TestMisdirectedFramesAreAnsweredWithAnError(t *testing.T) {
	m, seen := fenced(t)
	l := dialRaw(t, m, "a/1")
	for seq, f := range [][]byte{
		appendFrame(t, "b/2", 2, &raft.AppendEntriesRequest{Term: 1}), // another incarnation
		appendFrame(t, "c/1", 2, &raft.AppendEntriesRequest{Term: 1}),
	} {
		l.sendBytes(message(l.epoch, uint64(seq+1), f))
		in := messageSequence{epoch: l.epoch, last: uint64(seq), limit: 1 << 20}
		msg := rawBytes(l.receive())
		err := in.each(msg, func(f frame) error { _, _, err := decodeAnswer(f.body); return err })
		if re, ok := errors.AsType[*RemoteError](err); !ok || re.Code != CodeTarget {
			t.Errorf("answer %v, want code %d", err, CodeTarget)
		}
	}
	if seen.Load() != 0 || m.Stats().FramesMisdirected != 2 {
		t.Fatalf("delivered term %d, %+v", seen.Load(), m.Stats())
	}
}

func TestSnapshotOfAnOlderLinkIsRefused(t *testing.T) {
	m, _ := fenced(t)
	l := dialRaw(t, m, "a/1")
	l.sendBytes(message(l.epoch, 1))
	until(t, "the link is active", func() bool { return m.inboundEpoch("a/1") == l.epoch })
	b, _, err := raftCodec{self: []byte("a/1")}.request(&raft.InstallSnapshotRequest{RPCHeader: headerOf("a/1")}, form{})
	if err != nil {
		t.Fatal(err)
	}
	good := snapshotHeader{cluster: "c", from: "a/1", to: "b/1", epoch: l.epoch, group: 99, request: b.join()}
	change := func(f func(*snapshotHeader)) snapshotHeader { h := good; f(&h); return h }
	for name, c := range map[string]struct {
		h    snapshotHeader
		code uint16
	}{
		"older link":      {change(func(h *snapshotHeader) { h.epoch-- }), CodeStale},
		"no link":         {change(func(h *snapshotHeader) { h.from = "z/1" }), CodeStale},
		"another cluster": {change(func(h *snapshotHeader) { h.cluster = "x" }), CodeCluster},
		"another target":  {change(func(h *snapshotHeader) { h.to = "b/2" }), CodeTarget},
		"unknown group":   {good, CodeUnknownGroup},
	} {
		t.Run(name, func(t *testing.T) {
			s, err := l.conn.NewStream(withTimeout(t, 30*time.Second), &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}, snapshotMethod)
			if err != nil {
				t.Fatal(err)
			}
			if err := s.SendMsg(rawBytes(c.h.encode())); err != nil {
				t.Fatal(err)
			}
			var msg rawMessage
			if err := s.RecvMsg(&msg); err != nil {
				t.Fatal(err)
			}
			_, _, err = decodeAnswer(msg.take())
			if re, ok := errors.AsType[*RemoteError](err); !ok || re.Code != c.code {
				t.Fatalf("answer %v, want code %d", err, c.code)
			}
		})
	}
}

func TestBadGreetings(t *testing.T) {
	t.Parallel()
	m := startMesh(t, &directory{}, "b/1", func(c *Config) { c.DialTimeout = 3 * time.Second })
	greet := func(b []byte) error {
		conn, err := grpc.NewClient("passthrough:///"+m.cfg.Listener.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()),
			grpc.WithDefaultCallOptions(grpc.ForceCodecV2(rawCodec{})))
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		s, err := conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}, linkMethod)
		if err != nil {
			return err
		}
		if b != nil {
			if err := s.SendMsg(rawBytes(b)); err != nil {
				return err
			}
		}
		var msg rawMessage
		if err := s.RecvMsg(&msg); err != nil {
			return err
		}
		_, err = decodeReply(msg.take())
		return err
	}
	ok := hello{versionMin: protocolVersionMin, version: protocolVersion, cluster: "c", from: "a/1", to: "b/1"}
	if err := greet(ok.encode()); err != nil {
		t.Fatalf("good greeting: %v", err)
	}
	change := func(f func(*hello)) []byte { h := ok; f(&h); return h.encode() }
	for name, c := range map[string]struct {
		b    []byte
		code uint16 // 0: the stream just ends with an error
	}{
		"silence":         {nil, 0},
		"no magic":        {[]byte("hello there"), 0},
		"future version":  {change(func(h *hello) { h.versionMin, h.version = 9, 12 }), CodeVersion},
		"past version":    {change(func(h *hello) { h.versionMin, h.version = 0, 0 }), CodeVersion},
		"another cluster": {change(func(h *hello) { h.cluster = "d" }), CodeCluster},
		"virgin caller":   {change(func(h *hello) { h.cluster = "" }), CodeCluster},
		"another target":  {change(func(h *hello) { h.to = "b/9" }), CodeTarget},
		"our own name":    {change(func(h *hello) { h.from = "b/1" }), CodeMalformed},
		"nameless":        {change(func(h *hello) { h.from = "" }), CodeMalformed},
	} {
		err := greet(c.b)
		re, isRemote := errors.AsType[*RemoteError](err)
		if err == nil || isRemote != (c.code != 0) || (isRemote && re.Code != c.code) {
			t.Errorf("%s: %v, want code %d", name, err, c.code)
		}
	}
}

// TestFramesOfAnotherGeneration: what was meant for a replica that was removed does not reach the one that its node
// has now, and the other way round; the frames of a first generation are as they always were.
func TestFramesOfAnotherGeneration(t *testing.T) {
	b := startMesh(t, &directory{}, "b/1", nil)
	rt := b.Raft(2, 812)
	t.Cleanup(func() { rt.Close() })
	l := dialRaw(t, b, "a/1")
	for seq, to := range []ReplicaID{"b/1", "b/1#811", "b/1#8121"} {
		l.sendBytes(message(l.epoch, uint64(seq+1), appendFrame(t, to, 2, &raft.AppendEntriesRequest{Term: 1})))
		in := messageSequence{epoch: l.epoch, last: uint64(seq), limit: 1 << 20}
		err := in.each(rawBytes(l.receive()), func(f frame) error { _, _, err := decodeAnswer(f.body); return err })
		if re, ok := errors.AsType[*RemoteError](err); !ok || re.Code != CodeTarget {
			t.Errorf("a frame for %s: answer %v, want code %d", to, err, CodeTarget)
		}
	}
	if len(rt.Consumer()) != 0 || b.Stats().FramesMisdirected != 3 {
		t.Fatalf("%d delivered, %+v", len(rt.Consumer()), b.Stats())
	}
	l.sendBytes(message(l.epoch, 4, appendFrame(t, "b/1#812", 2, &raft.AppendEntriesRequest{Term: 5})))
	select {
	case rpc := <-rt.Consumer():
		rpc.Respond(agreeable(rpc.Command), nil)
	case <-time.After(30 * time.Second):
		t.Fatal("the frame for the present generation does not arrive")
	}
	if err := b.InjectAt(t.Context(), "b/1", 2); err == nil {
		t.Error("an election of the former replica was started")
	}
	if err := b.InjectAt(t.Context(), "b/1#812", 2); err != nil {
		t.Error(err)
	}
	h := snapshotHeader{cluster: "c", from: "a/1", to: "b/1", group: 2}
	if _, err := b.groups.install(t.Context(), h, &raft.InstallSnapshotRequest{}, nil); !errors.As(err, new(*RemoteError)) {
		t.Errorf("a snapshot for the former replica: %v", err)
	}
}

func TestReplicaID(t *testing.T) {
	for _, n := range []NodeID{"a/1", "n1/6f0c1f8e-0000-4000-8000-000000000000"} {
		for _, g := range []uint64{0, 1, 812, 1<<64 - 1} {
			r := Replica(n, g)
			if got, ok := r.Generation(); r.Node() != n || got != g || !ok {
				t.Errorf("%s: node %s, generation %d (%v)", r, r.Node(), got, ok)
			}
		}
		if targetCheck(Replica(n, 0), 7) != targetCheck(ReplicaID(n), 7) {
			t.Errorf("%s: the first generation has another check", n)
		}
	}
	for _, bad := range []ReplicaID{"a/1#", "a/1#0", "a/1#x", "a/1#01", "a/1#1#2", "a/1#18446744073709551616"} {
		if g, ok := bad.Generation(); ok {
			t.Errorf("%q has generation %d", bad, g)
		}
	}
}
