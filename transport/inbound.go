package transport

import (
	"context"
	"encoding/binary"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// inbound is a stream another node opened. The goroutine of the gRPC handler
// writes; a reader goroutine reads and hands frames on.
type inbound struct {
	m       *Mesh
	stream  context.Context //nolint:containedctx // that of the stream
	epoch   uint64
	from    NodeID
	process uint64
	codec   raftCodec
	out     *outbox
	apps    *dispatcher
	calls   callContext

	// mu is held while a message is handed on, so that after kill has returned no
	// frame of this stream is delivered any more.
	mu   sync.Mutex
	dead bool

	active bool // it was the newest stream of from once; the reader's own
	gone   bool // its handler has returned; guarded by the mesh's mutex

	done     chan struct{}
	ended    error        // written before done is closed
	heard    atomic.Int64 // time of the newest message, nanoseconds since m.began
	undone   atomic.Int64 // application bytes received and not yet handled
	consumed atomic.Int64 // handled, not yet returned as credit
	reply    chan verdict // reader -> writer: the answer to the hello
}

// verdict is the answer to a hello.
type verdict struct {
	message []byte
	refusal *RemoteError // nil when welcome
}

// serveLink is the gRPC handler of one stream.
func (m *Mesh) serveLink(stream grpc.ServerStream) error {
	select {
	case m.greetings <- struct{}{}:
	default:
		return status.Error(codes.ResourceExhausted, "too many handshakes at a time")
	}
	in := &inbound{
		m: m, stream: stream.Context(), done: make(chan struct{}), reply: make(chan verdict, 1),
		out: newOutbox(4*m.cfg.QueueBytesMax+m.cfg.FrameBytesMax, m.pool), calls: newCallContext(m.ctx),
	}
	if !m.spawn(func() { in.kill(in.read(stream)) }) {
		<-m.greetings
		return status.Error(codes.Unavailable, "closing")
	}
	defer m.unregister(in)
	err := in.write(stream)
	in.kill(err)
	return err
}

// kill ends the stream once. When it returns nothing of it is delivered any more.
func (in *inbound) kill(cause error) {
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.dead {
		return
	}
	in.dead = true
	in.ended = cause
	in.out.kill()
	close(in.done)
	in.calls.cancel()
}

// write answers the hello, then sends answers until the stream ends.
func (in *inbound) write(stream grpc.ServerStream) error {
	err := in.greet(stream)
	<-in.m.greetings
	if err != nil {
		return err
	}
	silence := 2 * in.m.cfg.SilenceMax
	ticker := time.NewTicker(silence / 2)
	defer ticker.Stop()
	w := messageWriter{epoch: in.epoch, send: func(msg *rawMessage) error { in.m.stats.messagesOut.Add(1); return stream.SendMsg(msg) }}
	for {
		if err := w.drain(in.out); err != nil {
			return err
		}
		select {
		case <-in.out.wake:
			if !in.out.hasUrgent() { // a starved process would come back to it seconds later
				runtime.Gosched() // let those who are ready join the message
			}
		case <-ticker.C:
			if time.Since(in.m.began)-time.Duration(in.heard.Load()) > silence {
				return status.Error(codes.DeadlineExceeded, "no pings")
			}
		case <-in.done:
			return in.ended
		case <-in.m.done:
			return status.Error(codes.Unavailable, "closing")
		}
	}
}

// greet answers the hello. An error ends the stream.
func (in *inbound) greet(stream grpc.ServerStream) error {
	greeting := time.NewTimer(in.m.cfg.DialTimeout)
	defer greeting.Stop()
	select {
	case v := <-in.reply:
		if err := stream.SendMsg(rawBytes(v.message)); err != nil {
			return err
		}
		if v.refusal != nil {
			return status.Error(codes.FailedPrecondition, v.refusal.Text)
		}
	case <-greeting.C:
		return status.Error(codes.DeadlineExceeded, "no hello")
	case <-in.done:
		return in.ended
	case <-in.m.done:
		return status.Error(codes.Unavailable, "closing")
	}
	return nil
}

// read shakes hands and hands frames on until the stream ends.
func (in *inbound) read(stream grpc.ServerStream) error {
	var msg rawMessage
	if err := stream.RecvMsg(&msg); err != nil {
		return err
	}
	h, err := decodeHello(msg.take())
	if err != nil {
		return status.Error(codes.InvalidArgument, err.Error())
	}
	v := in.judge(h)
	in.reply <- v
	if v.refusal != nil {
		in.m.refused(h, v.refusal)
		<-in.done
		return nil
	}
	in.heard.Store(int64(time.Since(in.m.began)))
	seq := messageSequence{epoch: in.epoch, limit: in.m.cfg.FrameBytesMax}
	for {
		if err := stream.RecvMsg(&msg); err != nil {
			return err
		}
		in.m.stats.messagesIn.Add(1)
		in.heard.Store(int64(time.Since(in.m.began)))
		if err := in.handOn(&seq, &msg); err != nil {
			in.m.cfg.Logger.Warn("dropping link from peer", "peer", string(in.from), "err", err)
			return status.Error(codes.InvalidArgument, err.Error())
		}
	}
}

// handOn delivers the frames of one message unless the stream is over. The first
// message proves that the caller is alive now and not a greeting that lay in a
// buffer since before its process died: it carries the epoch we answered with.
// Only then does the stream replace an older one.
func (in *inbound) handOn(seq *messageSequence, msg *rawMessage) error {
	if !in.active {
		if err := peekEpoch(msg, in.epoch); err != nil {
			return err
		}
		if err := in.m.activate(in); err != nil {
			return err
		}
		known(in.stream)
		in.active = true
	}
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.dead {
		msg.data.Free()
		in.m.stats.framesFenced.Add(1)
		return &RemoteError{Code: CodeStale, Text: "a newer stream of the node has taken over"}
	}
	return seq.each(msg, in.receive)
}

// peekEpoch checks the epoch of a message without consuming it.
func peekEpoch(msg *rawMessage, want uint64) error {
	var b [8]byte
	if n := msg.data.CopyTo(b[:]); n < len(b) {
		return fmt.Errorf("%w: message header", errMalformed)
	}
	if got := binary.BigEndian.Uint64(b[:]); got != want {
		return &RemoteError{Code: CodeStale, Text: fmt.Sprintf("first message of epoch %d on a stream of epoch %d", got, want)}
	}
	return nil
}

// judge decides about a hello and prepares in for it.
func (in *inbound) judge(h hello) verdict {
	refuse := func(code uint16, format string, args ...any) verdict {
		e := &RemoteError{Code: code, Text: fmt.Sprintf(format, args...)}
		return verdict{message: encodeRefusal(e), refusal: e}
	}
	m := in.m
	cluster := m.cfg.ClusterID()
	switch {
	case int(h.versionMin) > m.cfg.Level || h.version < protocolVersionMin:
		return refuse(CodeVersion, "node %s speaks protocol %d to %d, you speak %d to %d", m.cfg.Local, protocolVersionMin, m.cfg.Level, h.versionMin, h.version)
	case h.from == "" || h.from == m.cfg.Local:
		return refuse(CodeMalformed, "%q is no name for a peer of node %s", h.from, m.cfg.Local)
	case cluster == "":
		return refuse(CodeVirgin, "node %s belongs to no cluster yet", m.cfg.Local)
	case h.cluster != cluster:
		return refuse(CodeCluster, "node %s belongs to cluster %q, you belong to %q", m.cfg.Local, cluster, h.cluster)
	case int(h.version) < m.cfg.LevelMin():
		return refuse(CodeVersion, "the cluster is at level %d, the program of node %s knows level %d", m.cfg.LevelMin(), h.from, h.version)
	case h.to != m.cfg.Local:
		return refuse(CodeTarget, "this is node %s, you want %s", m.cfg.Local, h.to)
	}
	apps, ok := m.dispatcherOf(h.from)
	if !ok {
		return refuse(CodeBusy, "node %s has met too many different nodes", m.cfg.Local)
	}
	in.from, in.process, in.apps = h.from, h.process, apps
	in.codec = raftCodec{self: []byte(h.from)}
	in.epoch = m.epochs.Add(1)
	w := welcome{version: min(h.version, uint16(m.cfg.Level)), node: m.cfg.Local, process: m.process, epoch: in.epoch, window: uint64(m.cfg.WindowBytes)}
	return verdict{message: w.encode()}
}

// receive handles one frame. It runs on the reader with in.mu held and never waits.
func (in *inbound) receive(f frame) error {
	in.m.stats.framesIn.Add(1)
	switch f.kind {
	case framePing:
		pong := binary.BigEndian.AppendUint64(slices.Clone(f.body), uint64(in.m.Clock()))
		pong = binary.AppendUvarint(pong, in.m.supports.of(in.from))
		if !in.out.putUrgent(framePong, pong) {
			return fmt.Errorf("%w: the peer does not read its answers", ErrBacklog)
		}
		return nil
	case frameRaft:
		return in.m.receiveRaft(in, f)
	case frameApp:
		return in.receiveApp(f.body)
	case frameCall:
		return in.receiveCall(f.body)
	case frameInject:
		return in.receiveInject(f.body)
	default:
		return fmt.Errorf("%w: frame kind %d from the asking side", errMalformed, f.kind)
	}
}

// answer sends the result of a request. A peer that reads none of its answers
// loses its link.
func (in *inbound) answer(call uint64, payload []byte, err error) {
	var buf [2 * binary.MaxVarintLen64]byte
	fields := binary.AppendUvarint(buf[:0], call)
	if err != nil {
		re := remoteOf(err)
		fields = binary.AppendUvarint(fields, uint64(max(re.Code, 1)))
		payload = []byte(re.Text)
	} else {
		fields = append(fields, 0)
	}
	if len(payload) > in.m.cfg.FrameBytesMax-frameOverheadMax {
		in.answer(call, nil, fmt.Errorf("%w: answer of %d bytes", ErrTooLarge, len(payload)))
		return
	}
	in.m.stats.framesOut.Add(1)
	if err := in.out.put(laneRaft, frameAnswer, fields, payload); err != nil {
		// Not kill: the reader may be the caller and holds the mutex.
		in.m.spawn(func() { in.kill(fmt.Errorf("the peer does not read its answers: %w", err)) })
	}
}

// returnCredit gives the sender its window back in quarters.
func (in *inbound) returnCredit(n int64) {
	in.undone.Add(-n)
	if in.consumed.Add(n) < int64(in.m.cfg.WindowBytes/4) {
		return
	}
	if n := in.consumed.Swap(0); n > 0 {
		in.out.putUrgent(frameCredit, binary.AppendUvarint(nil, uint64(n)))
	}
}
