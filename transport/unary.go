package transport

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// unaryBytesMax bounds payloads of calls by address, both ways.
const unaryBytesMax = grpcBytesMax - 4096

// envelope is a call by address.
type envelope struct {
	cluster string
	from    NodeID
	method  uint8
	payload []byte
}

func (e envelope) encode() []byte {
	b := append([]byte{}, magic[:]...)
	b = append(b, protocolVersion)
	b = appendString(b, e.cluster)
	b = appendString(b, string(e.from))
	b = append(b, e.method)
	return append(b, e.payload...)
}

func decodeEnvelope(b []byte) (envelope, error) {
	version, d := openFirst(b)
	if d.err == nil && version != protocolVersion {
		return envelope{}, &RemoteError{Code: CodeVersion, Text: fmt.Sprintf("call of protocol %d, this is %d", version, protocolVersion)}
	}
	e := envelope{cluster: d.str(clusterIDBytesMax), from: NodeID(d.str(nodeIDBytesMax)), method: d.u8(), payload: d.rest()}
	return e, d.err
}

// CallAddr calls a method of whatever node listens at addr, over a connection of its
// own. It is for the time before node ids are known: it works between nodes
// without a cluster, and between those and members of one. The handler is the one
// HandleCall set, subject to Config.OpenCall.
func (m *Mesh) CallAddr(ctx context.Context, addr string, method uint8, req []byte) ([]byte, error) {
	if len(req) > unaryBytesMax {
		return nil, fmt.Errorf("call %s: %w: %d bytes", addr, ErrTooLarge, len(req))
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(m.ctx, cancel)()
	if _, ok := ctx.Deadline(); !ok {
		var done context.CancelFunc
		ctx, done = context.WithTimeout(ctx, m.cfg.CallTimeout)
		defer done()
	}
	conn, err := m.open(addr)
	if err != nil {
		return nil, fmt.Errorf("call %s: %w", addr, err)
	}
	defer conn.Close()
	var out rawMessage
	e := envelope{cluster: m.cfg.ClusterID(), from: m.cfg.Local, method: method, payload: req}
	if err := conn.Invoke(ctx, callMethod, rawBytes(e.encode()), &out); err != nil {
		switch {
		case m.ctx.Err() != nil:
			err = ErrClosed
		case ctx.Err() != nil:
			err = ctx.Err()
		case status.Code(err) == codes.Unavailable:
			err = fmt.Errorf("%w: %w", ErrPeerDown, conn.explain(err))
		}
		return nil, fmt.Errorf("call %s: %w", addr, err)
	}
	_, payload, err := decodeAnswer(out.take())
	return payload, err
}

// serveCall is the gRPC handler of a call by address.
func (m *Mesh) serveCall(stream grpc.ServerStream) error {
	var failed error
	req, err := m.first(stream, "no call", func(got chan<- []byte) {
		var msg rawMessage
		if failed = stream.RecvMsg(&msg); failed != nil {
			close(got)
			return
		}
		got <- msg.take()
	})
	switch {
	case err != nil:
		return err
	case req == nil:
		return failed
	}
	return stream.SendMsg(rawBytes(m.answerCall(stream.Context(), req)))
}

// answerCall makes a call and returns what is answered.
func (m *Mesh) answerCall(ctx context.Context, req []byte) []byte {
	payload, err := m.callByAddress(ctx, req)
	if err == nil && len(payload) > unaryBytesMax {
		err = fmt.Errorf("%w: answer of %d bytes", ErrTooLarge, len(payload))
	}
	if err != nil {
		re := remoteOf(err)
		return append(binary.AppendUvarint([]byte{0}, uint64(max(re.Code, 1))), re.Text...)
	}
	return append([]byte{0, 0}, payload...)
}

func (m *Mesh) callByAddress(ctx context.Context, req []byte) ([]byte, error) {
	e, err := decodeEnvelope(req)
	if errors.Is(err, errMalformed) {
		return nil, &RemoteError{Code: CodeMalformed, Text: err.Error()}
	}
	if err != nil {
		return nil, err
	}
	if err := m.admitCall(ctx, e); err != nil {
		return nil, err
	}
	select {
	case m.unary <- struct{}{}:
		defer func() { <-m.unary }()
	default:
		m.stats.callsBusy.Add(1)
		return nil, ErrBusy
	}
	return m.handleCall(ctx, e.from, e.method, e.payload)
}

// admitCall decides whether a caller may use a method by address.
func (m *Mesh) admitCall(ctx context.Context, e envelope) error {
	cluster, open := m.cfg.ClusterID(), m.cfg.OpenCall
	switch {
	case cluster != "" && e.cluster == cluster:
		known(ctx)
		return nil
	case cluster != "" && e.cluster != "" && open == nil:
		return &RemoteError{Code: CodeCluster, Text: fmt.Sprintf("node %s belongs to cluster %q, you belong to %q", m.cfg.Local, cluster, e.cluster)}
	case open != nil && !open(e.method):
		return &RemoteError{Code: CodeNotOpen, Text: fmt.Sprintf("method %d is not open to callers outside the cluster", e.method)}
	default:
		return nil
	}
}
