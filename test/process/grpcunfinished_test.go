package process

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"google.golang.org/protobuf/proto"

	warrenv1 "github.com/warrenmq/warren/api/warren/v1"
	"github.com/warrenmq/warren/test/cluster"
)

// rawRPC speaks HTTP/2 to a node: its calls may stop anywhere.
type rawRPC struct {
	*testing.T
	conn   net.Conn
	framer *http2.Framer
	stream uint32 // of the newest call

	mu      sync.Mutex
	initial int64 // window of a stream
	windows map[uint32]int64
	moved   chan struct{} // has one when a window has grown
}

// rawRPCAt connects. With reads it heeds what the node sends, else it reads nothing.
func rawRPCAt(t *testing.T, n *cluster.Node, reads bool) *rawRPC {
	t.Helper()
	conn, err := net.Dial("tcp", n.GRPCAddr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	r := &rawRPC{T: t, conn: conn, framer: http2.NewFramer(conn, conn), initial: 65535, windows: map[uint32]int64{0: 65535}, moved: make(chan struct{}, 1)}
	if _, err := io.WriteString(conn, http2.ClientPreface); err != nil {
		t.Fatal(err)
	}
	if err := r.framer.WriteSettings(); err != nil {
		t.Fatal(err)
	}
	if reads {
		go r.read() // ends with the connection
	}
	return r
}

func (r *rawRPC) read() {
	for {
		f, err := r.framer.ReadFrame()
		if err != nil {
			return
		}
		r.mu.Lock()
		switch f := f.(type) {
		case *http2.SettingsFrame:
			if v, ok := f.Value(http2.SettingInitialWindowSize); ok {
				r.initial = int64(v)
			}
			if !f.IsAck() {
				_ = r.framer.WriteSettingsAck() // what fails is told by the next frame
			}
		case *http2.WindowUpdateFrame:
			r.windows[f.StreamID] += int64(f.Increment)
		case *http2.PingFrame:
			if !f.IsAck() {
				_ = r.framer.WritePing(true, f.Data)
			}
		}
		r.mu.Unlock()
		select {
		case r.moved <- struct{}{}:
		default:
		}
	}
}

// call begins one as guest, and sends as much of its request as the node takes at once of all but so many bytes.
func (r *rawRPC) call(method string, req proto.Message, but int) {
	r.Helper()
	if err := r.begin(method, req, but); err != nil {
		r.Fatal(err)
	}
}

// begin does what call does, for any goroutine.
func (r *rawRPC) begin(method string, req proto.Message, but int) error {
	body, err := proto.Marshal(req)
	if err != nil {
		return err
	}
	message := append(binary.BigEndian.AppendUint32([]byte{0}, uint32(len(body))), body...)
	message = message[:len(message)-but]
	var block bytes.Buffer
	fields := hpack.NewEncoder(&block)
	for _, f := range [][2]string{
		{":method", "POST"},
		{":scheme", "http"},
		{":path", method},
		{":authority", "node"},
		{"content-type", "application/grpc"},
		{"te", "trailers"},
		{"authorization", "Basic " + base64.StdEncoding.EncodeToString([]byte("guest:guest"))},
	} {
		if err := fields.WriteField(hpack.HeaderField{Name: f[0], Value: f[1], Sensitive: true}); err != nil {
			return err
		}
	}
	r.stream += 2
	id := r.stream - 1
	r.mu.Lock()
	r.windows[id] = r.initial
	err = r.framer.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: block.Bytes(), EndHeaders: true})
	r.mu.Unlock()
	for patience := time.After(time.Second); err == nil; {
		r.mu.Lock()
		n := min(int64(len(message)), r.windows[0], r.windows[id], 16<<10)
		if n > 0 {
			err = r.framer.WriteData(id, but == 0 && n == int64(len(message)), message[:n])
			message = message[n:]
			r.windows[0] -= n
			r.windows[id] -= n
		}
		r.mu.Unlock()
		if len(message) == 0 {
			return nil
		}
		if n > 0 {
			continue
		}
		select {
		case <-r.moved:
		case <-patience: // it takes no more
			return nil
		}
	}
	return err
}

// TestUnfinishedRequests: what many gRPC calls have half sent does not fill the memory of a node.
func TestUnfinishedRequests(t *testing.T) {
	t.Parallel()
	const connections, calls, size = 4, 10, 8 << 20
	n := smallNode(t, 100<<20)
	s := at(t, n)
	q := plainQueue(s, "q", nil)
	before := residentBytes(t, n.PID(), "RssAnon:")
	var all sync.WaitGroup
	var rude []*rawRPC
	for range connections {
		r := rawRPCAt(t, n, true)
		rude = append(rude, r)
		all.Go(func() {
			for range calls {
				if err := r.begin(warrenv1.PublishService_Publish_FullMethodName, &warrenv1.PublishRequest{Publication: forQueue(q, strings.Repeat("x", size))}, 1); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	all.Wait()
	if more := residentBytes(t, n.PID(), "RssAnon:") - before; more > 100<<20 {
		t.Errorf("the node has grown by %d MiB", more>>20)
	}
	s.publish("", q, message("over AMQP")) // there is no alarm
	rpc := rpcAt(t, n, "guest", "guest")
	rpc.fill(q, "small")
	for _, r := range rude {
		_ = r.conn.Close()
	}
	rpc.fill(q, strings.Repeat("x", size))
	s.ready(q, 3)
}

// TestUnreadResults: a client that publishes what fails and reads no results keeps others' large requests waiting for a while only.
func TestUnreadResults(t *testing.T) {
	t.Parallel()
	n := smallNode(t, 100<<20)
	s := at(t, n)
	q := plainQueue(s, "q", nil)
	list := make([]*warrenv1.Publication, 20_000) // that say nothing
	for i := range list {
		list[i] = &warrenv1.Publication{}
	}
	r := rawRPCAt(t, n, true) // of the window for results, which it never opens again, some hundred are more than it has room for
	r.call(warrenv1.PublishService_PublishStream_FullMethodName, &warrenv1.PublishStreamRequest{
		Open: &warrenv1.PublishOpen{}, Publications: append(list, forQueue(q, strings.Repeat("x", 12<<20))),
	}, 0)
	rpc := rpcAt(t, n, "guest", "guest")
	rpc.fill(q, strings.Repeat("x", 8<<20))
	s.ready(q, 1)
}

// TestUnreadResponses: what many calls have got or seen, and not read, does not fill the memory of a node.
func TestUnreadResponses(t *testing.T) {
	t.Parallel()
	const messages, size = 300, 1 << 20
	n := startCluster(t, 1).Node(0)
	s := at(t, n)
	q := plainQueue(s, "q", nil)
	for range messages {
		s.noError("publish", s.ch.Publish("", q, false, false, amqp.Publishing{Body: make([]byte, size), DeliveryMode: 2}))
	}
	s.ready(q, messages)
	before := residentBytes(t, n.PID(), "RssAnon:")
	r := rawRPCAt(t, n, false)
	for range messages {
		r.call(warrenv1.MessageService_Peek_FullMethodName, &warrenv1.PeekRequest{Queue: q, BodyBytesMax: proto.Uint32(size)}, 0)
		r.call(warrenv1.ConsumeService_Get_FullMethodName, &warrenv1.GetRequest{Queue: q}, 0)
	}
	rpc := rpcAt(t, n, "guest", "guest")
	other := rpc.queue(s.name("other"), nil)
	rpc.fill(other, "a")
	if resp, err := rpc.consume.Get(rpc.ctx, &warrenv1.GetRequest{Queue: other}); err != nil || len(resp.GetDeliveries()) != 1 {
		t.Errorf("from another queue: %v, %v", resp, err)
	}
	for taken := 0; ; {
		d, err := s.ch.QueueDeclarePassive(q, true, false, false, false, nil)
		s.noError("declare", err)
		if now := messages - d.Messages; now > 0 && now == taken {
			break
		} else {
			taken = now
		}
		time.Sleep(time.Second)
	}
	if more := residentBytes(t, n.PID(), "RssAnon:") - before; more > 200<<20 {
		t.Errorf("the node has grown by %d MiB", more>>20)
	}
	// They are disconnected when others want to have something.
	if resp, err := rpc.consume.Get(rpc.ctx, &warrenv1.GetRequest{Queue: q}); err != nil || len(resp.GetDeliveries()) != 1 {
		t.Errorf("from the same queue: %d, %v", len(resp.GetDeliveries()), err)
	}
	s.noError("set a deadline", r.conn.SetDeadline(time.Now().Add(timeoutReply)))
	if _, err := io.Copy(io.Discard, r.conn); err != nil && !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("who reads nothing is still connected: %v", err)
	}
}
