package transport

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/hashicorp/raft"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// snapshotChunkBytes is the size of the messages that carry a snapshot.
const snapshotChunkBytes = 256 << 10

// snapshotHeader opens a snapshot stream. Epoch is the one of the sender's link, so
// that a snapshot of a lost link, or of a former run of the sender, is refused.
type snapshotHeader struct {
	cluster string
	from    NodeID
	to      ReplicaID
	epoch   uint64
	group   GroupID
	catalog uint64
	request []byte
}

func (h snapshotHeader) encode() []byte {
	b := append([]byte{}, magic[:]...)
	b = append(b, protocolVersion)
	b = appendString(b, h.cluster)
	b = appendString(b, string(h.from))
	b = appendString(b, string(h.to))
	b = binary.BigEndian.AppendUint64(b, h.epoch)
	b = binary.AppendUvarint(b, uint64(h.group))
	b = binary.AppendUvarint(b, h.catalog)
	return append(b, h.request...)
}

func decodeSnapshotHeader(b []byte) (snapshotHeader, *raft.InstallSnapshotRequest, error) {
	version, d := openFirst(b)
	var h snapshotHeader
	if d.err == nil && version != protocolVersion {
		return h, nil, &RemoteError{Code: CodeVersion, Text: fmt.Sprintf("snapshot of protocol %d, this is %d", version, protocolVersion)}
	}
	h.cluster = d.str(clusterIDBytesMax)
	h.from, h.to = NodeID(d.str(nodeIDBytesMax)), ReplicaID(d.str(replicaIDBytesMax))
	h.epoch, h.group, h.catalog = d.u64(), GroupID(d.uvarint()), d.uvarint()
	h.request = d.rest()
	if d.err != nil {
		return h, nil, d.err
	}
	cmd, err := raftCodec{self: []byte(h.from)}.readRequest(rpcSnapshot, h.request)
	if err != nil {
		return h, nil, err
	}
	req := cmd.(*raft.InstallSnapshotRequest)
	if req.Size < 0 {
		return h, nil, fmt.Errorf("%w: snapshot of %d bytes", errMalformed, req.Size)
	}
	return h, req, nil
}

// watchdog cancels something unless it is fed.
type watchdog struct {
	mu      sync.Mutex
	timer   *time.Timer
	pause   time.Duration
	barked  bool
	stopped bool
}

func newWatchdog(pause time.Duration, bark func()) *watchdog {
	w := &watchdog{pause: pause}
	w.timer = time.AfterFunc(pause, func() {
		w.mu.Lock()
		w.barked = !w.stopped
		w.mu.Unlock()
		bark()
	})
	return w
}

func (w *watchdog) feed(pause time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.stopped && !w.barked {
		w.timer.Reset(pause)
	}
}

// stop ends the watch; it reports whether the dog had barked.
func (w *watchdog) stop() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.stopped = true
	w.timer.Stop()
	return w.barked
}

// snapshotSlots bound the snapshots that go one way. Those of the catalog have their own: a node without it is no use,
// and large queues take theirs for as long as they are filled.
type snapshotSlots struct{ queues, catalog chan struct{} }

func newSnapshotSlots(n int) snapshotSlots {
	return snapshotSlots{queues: make(chan struct{}, n), catalog: make(chan struct{}, n)}
}

func (s snapshotSlots) of(g GroupID) chan struct{} {
	if g == CatalogGroup {
		return s.catalog
	}
	return s.queues
}

// sendSnapshot streams one snapshot.
func (rt *RaftTransport) sendSnapshot(to ReplicaID, args *raft.InstallSnapshotRequest, resp *raft.InstallSnapshotResponse, data io.Reader) error {
	p, err := rt.m.peer(to.Node())
	if err != nil {
		return err
	}
	slots := rt.m.snapOut.of(rt.group)
	select {
	case slots <- struct{}{}:
		defer func() { <-slots }()
	case <-rt.done:
		return ErrClosed
	}
	timer := time.NewTimer(rt.m.cfg.StreamWait)
	defer timer.Stop()
	sess, err := p.await(rt.done, timer.C, false)
	if err != nil {
		return err
	}
	conn, err := p.dial()
	if err != nil {
		return err
	}
	defer conn.Close()
	ctx, cancel := context.WithCancel(rt.m.ctx)
	defer cancel()
	dog := newWatchdog(rt.m.cfg.SnapshotStall, cancel)
	stopWatch := rt.cancelOnClose(ctx, cancel, sess)
	err = rt.stream(ctx, conn, sess, dog, to, args, resp, data)
	stopWatch()
	if dog.stop() && err != nil {
		return fmt.Errorf("%w: snapshot made no progress: %w", ErrTimeout, err)
	}
	return err
}

// cancelOnClose ends a snapshot when its group closes or its link is lost. One that is made anew for new certificates is not lost if the next one
// leads to the same process: a large snapshot may take longer than certificates live.
func (rt *RaftTransport) cancelOnClose(ctx context.Context, cancel context.CancelFunc, sess *session) (stop func()) {
	over := make(chan struct{})
	rt.m.spawn(func() {
		for next := sess; next != nil && next.process == sess.process; {
			select {
			case <-rt.done:
				next = nil
			case <-next.done:
				next = rt.renewed(ctx, next)
			case <-ctx.Done():
				next = nil
			case <-over:
				return
			}
		}
		cancel()
	})
	return func() { close(over) }
}

// renewed waits for the link in the place of one that has ended, nil if that was not ended to be made anew.
func (rt *RaftTransport) renewed(ctx context.Context, sess *session) *session {
	if !errors.Is(sess.cause, errRenewed) {
		return nil
	}
	timer := time.NewTimer(rt.m.cfg.StreamWait)
	defer timer.Stop()
	next, err := sess.p.await(ctx.Done(), timer.C, false)
	if err != nil {
		return nil
	}
	return next
}

func (rt *RaftTransport) stream(ctx context.Context, conn *dialled, sess *session, dog *watchdog, to ReplicaID, args *raft.InstallSnapshotRequest, resp *raft.InstallSnapshotResponse, data io.Reader) error {
	req, _, err := rt.codec.plainRequest(nil, args)
	if err != nil {
		return err
	}
	s, err := conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}, snapshotMethod)
	if err != nil {
		return conn.explain(err)
	}
	h := snapshotHeader{
		cluster: rt.m.cfg.ClusterID(), from: rt.m.cfg.Local, to: to, epoch: sess.epoch,
		group: rt.group, catalog: rt.m.cfg.CatalogIndex(), request: req,
	}
	if err := s.SendMsg(rawBytes(h.encode())); err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	pace := rt.m.cfg.Fill
	if rt.group == CatalogGroup {
		pace = nil // a node without the catalog is no use
	}
	if err := sendChunks(s, dog, rt.m.cfg.SnapshotStall, pace, io.LimitReader(data, args.Size)); err != nil {
		return err
	}
	dog.feed(rt.m.cfg.SnapshotAnswerWait)
	var msg rawMessage
	if err := s.RecvMsg(&msg); err != nil {
		return err
	}
	_, payload, err := decodeAnswer(msg.take())
	if err != nil {
		return err
	}
	return sess.codec.readResponse(payload, resp)
}

// sendChunks sends data and closes the sending side. When the receiver has ended
// the stream early its answer is still to be read, so that is no error here.
func sendChunks(s grpc.ClientStream, dog *watchdog, stall time.Duration, pace *Pace, data io.Reader) error {
	for {
		chunk := make([]byte, snapshotChunkBytes) // gRPC may still be sending the one before
		n, err := io.ReadFull(data, chunk)
		if n > 0 {
			if !pace.Take(n, s.Context().Done()) {
				return s.Context().Err()
			}
			if err := s.SendMsg(rawBytes(chunk[:n])); errors.Is(err, io.EOF) {
				return nil
			} else if err != nil {
				return err
			}
			dog.feed(stall)
		}
		switch {
		case err == nil:
		case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
			return s.CloseSend()
		default:
			return fmt.Errorf("read snapshot: %w", err)
		}
	}
}

// serveSnapshot is the gRPC handler of one incoming snapshot.
func (m *Mesh) serveSnapshot(stream grpc.ServerStream) error {
	pr, pw := io.Pipe()
	// Raft's reading ends with an error once this handler has returned.
	defer pr.CloseWithError(ErrClosed)
	first, err := m.openSnapshot(stream, pw)
	if err != nil {
		return err
	}
	h, req, err := decodeSnapshotHeader(first)
	if err == nil {
		err = m.admitSnapshot(h)
	}
	if err != nil {
		return answerSnapshot(stream, nil, err)
	}
	known(stream.Context())
	slots := m.snapIn.of(h.group)
	select {
	case slots <- struct{}{}:
		defer func() { <-slots }()
	default:
		return answerSnapshot(stream, nil, ErrBusy)
	}
	resp, err := m.groups.install(stream.Context(), h, req, pr)
	if err == nil {
		m.stats.snapshotsReceived.Add(1)
	}
	return answerSnapshot(stream, resp, err)
}

// openSnapshot returns the header of a stream, whose chunks go to pw from then on. Only the header says whose slot the
// snapshot is to have; until then it is a handshake like others.
func (m *Mesh) openSnapshot(stream grpc.ServerStream, pw *io.PipeWriter) ([]byte, error) {
	return m.first(stream, "no snapshot header", func(header chan<- []byte) { m.receiveSnapshot(stream, header, pw) })
}

// first returns the first message of a stream, which read receives on a goroutine of its own. missing is said if it does not come in time.
func (m *Mesh) first(stream grpc.ServerStream, missing string, read func(chan<- []byte)) ([]byte, error) {
	select {
	case m.greetings <- struct{}{}:
		defer func() { <-m.greetings }()
	default:
		return nil, status.Error(codes.ResourceExhausted, "too many handshakes at a time")
	}
	header := make(chan []byte, 1)
	if !m.spawn(func() { read(header) }) {
		return nil, status.Error(codes.Unavailable, "closing")
	}
	timer := time.NewTimer(m.cfg.DialTimeout)
	defer timer.Stop()
	select {
	case first := <-header:
		return first, nil
	case <-timer.C:
		return nil, status.Error(codes.DeadlineExceeded, missing)
	case <-stream.Context().Done():
		return nil, stream.Context().Err()
	}
}

// admitSnapshot checks that the snapshot is for this node and from the newest link
// of its sender.
func (m *Mesh) admitSnapshot(h snapshotHeader) error {
	switch {
	case h.cluster == "" || h.cluster != m.cfg.ClusterID():
		return &RemoteError{Code: CodeCluster, Text: fmt.Sprintf("snapshot from cluster %q", h.cluster)}
	case h.to.Node() != m.cfg.Local:
		return &RemoteError{Code: CodeTarget, Text: fmt.Sprintf("this is node %s, the snapshot is for %s", m.cfg.Local, h.to)}
	case h.epoch == 0 || m.inboundEpoch(h.from) != h.epoch:
		m.stats.framesFenced.Add(1)
		return &RemoteError{Code: CodeStale, Text: fmt.Sprintf("snapshot of an older link of node %s", h.from)}
	}
	return nil
}

// receiveSnapshot moves chunks from the stream to the pipe until either ends. A
// stalled sender breaks the pipe, so that Raft does not wait for ever.
func (m *Mesh) receiveSnapshot(stream grpc.ServerStream, header chan<- []byte, pw *io.PipeWriter) {
	var msg rawMessage
	if err := stream.RecvMsg(&msg); err != nil {
		pw.CloseWithError(err)
		return
	}
	header <- msg.take()
	for {
		dog := newWatchdog(m.cfg.SnapshotStall, func() {
			pw.CloseWithError(fmt.Errorf("%w: no snapshot data", ErrTimeout))
		})
		err := stream.RecvMsg(&msg)
		dog.stop()
		if err != nil {
			if errors.Is(err, io.EOF) {
				err = nil
			}
			pw.CloseWithError(err)
			return
		}
		if _, err := pw.Write(msg.take()); err != nil {
			return
		}
	}
}

func answerSnapshot(stream grpc.ServerStream, payload []byte, err error) error {
	b := []byte{0} // no call id
	if err != nil {
		re := remoteOf(err)
		b = binary.AppendUvarint(b, uint64(re.Code))
		b = append(b, re.Text...)
	} else {
		b = append(append(b, 0), payload...)
	}
	return stream.SendMsg(rawBytes(b))
}

// install passes a snapshot to the group's Raft and waits for its answer. A group
// that does not run here refuses: its leader sends an append first, which starts it.
func (t *groupTable) install(ctx context.Context, h snapshotHeader, req *raft.InstallSnapshotRequest, data io.Reader) ([]byte, error) {
	t.mu.RLock()
	rt := t.open[h.group]
	t.mu.RUnlock()
	switch {
	case rt == nil:
		return nil, t.unknown(h.group)
	case rt.self != h.to:
		return nil, t.m.misdirected(h.group)
	}
	ch := make(chan raft.RPCResponse, 1)
	rpc := raft.RPC{Command: req, Reader: &exactReader{r: data, left: req.Size}, RespChan: ch}
	select {
	case rt.consumer <- rpc:
	case <-rt.done:
		return nil, ErrClosed
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	select {
	case resp := <-ch:
		if resp.Error != nil {
			return nil, &RemoteError{Code: CodeRaft, Text: resp.Error.Error()}
		}
		return rt.codec.response(nil, resp.Response)
	case <-rt.done:
		return nil, ErrClosed
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// exactReader reads left bytes and fails when there are fewer.
type exactReader struct {
	r    io.Reader
	left int64
}

func (e *exactReader) Read(p []byte) (int, error) {
	if e.left == 0 {
		return 0, io.EOF
	}
	n, err := e.r.Read(p[:min(int64(len(p)), e.left)])
	e.left -= int64(n)
	if err == io.EOF && e.left > 0 {
		err = io.ErrUnexpectedEOF
	}
	return n, err
}
