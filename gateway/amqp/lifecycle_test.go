package amqp

import (
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	amqp091 "github.com/rabbitmq/amqp091-go"

	wire "github.com/warrenmq/warren/amqp"
	"github.com/warrenmq/warren/broker"
)

func TestHeartbeats(t *testing.T) {
	t.Parallel()
	r := startServer(t)
	c := r.connect(t)
	start := time.Now() // what the server hears of the client, it hears later
	c.handshake(nil, wire.ConnectionTuneOk{ChannelMax: 1, FrameMax: 8192, Heartbeat: 2})
	beats := 0
	for {
		f, err := c.fr.Next()
		if err != nil {
			break
		}
		if f.Type == wire.FrameHeartbeat && f.Channel == 0 {
			beats++
		}
	}
	if d := time.Since(start); d < 3900*time.Millisecond || d > patience || beats < 2 {
		t.Errorf("silent client: %d heartbeats, closed after %v", beats, d)
	}
	if n := r.s.Stats().HeartbeatsMissed; n != 1 {
		t.Errorf("heartbeats missed: %d", n)
	}
}

func TestHeartbeatsKeepAConnection(t *testing.T) {
	t.Parallel()
	r := startServer(t)
	c, err := amqp091.DialConfig(r.url(), amqp091.Config{Heartbeat: 2 * time.Second, Locale: "en_US"})
	if err != nil {
		t.Fatal(err)
	}
	closed := c.NotifyClose(make(chan *amqp091.Error, 1))
	select {
	case err := <-closed:
		t.Errorf("closed: %v", err)
	case <-time.After(7 * time.Second):
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
}

func TestHandshakeTimeout(t *testing.T) {
	t.Parallel()
	const limit = 5 * time.Second // a starved machine can shake hands in it
	r := startServer(t, func(cfg *Config) { cfg.HandshakeTimeout = limit })
	for name, do := range map[string]func(c *rawClient){
		"silent":      func(*rawClient) {},
		"half header": func(c *rawClient) { c.bytes([]byte("AMQ")) },
		"no login":    func(c *rawClient) { c.greet() },
		"no open":     func(c *rawClient) { c.login(nil) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := r.connect(t)
			do(c)
			if _, err := io.Copy(io.Discard, c.nc); err != nil {
				t.Error(err)
			}
		})
	}
	t.Run("done", func(t *testing.T) {
		t.Parallel()
		c := r.open(t)
		time.Sleep(limit + limit/10)
		c.alive(1)
	})
}

func TestBlocked(t *testing.T) {
	t.Parallel()
	r := startServer(t)
	publisher, consumer, late := r.open(t), r.open(t), r.open(t)
	for _, c := range []*rawClient{publisher, consumer, late} {
		c.channel(1)
		c.send(1, &wire.QueueDeclare{Queue: "q"})
		want[*wire.QueueDeclareOk](c, 1)
	}
	publisher.publish(1, wire.BasicPublish{RoutingKey: "q"}, "before")
	eventually(t, "publish", func() bool { ready, _ := r.b.counts("q"); return ready == 1 })
	r.s.SetBlocked("low on memory & disk")
	if m := want[*wire.ConnectionBlocked](publisher, 0); m.Reason != "low on memory & disk" {
		t.Errorf("%+v", m)
	}
	r.s.SetBlocked("low on memory") // still blocked: not told again
	late.publish(1, wire.BasicPublish{RoutingKey: "q"}, "under alarm")
	want[*wire.ConnectionBlocked](late, 0)
	late.send(1, &wire.QueueDeclare{Queue: "late"})
	consumer.send(1, &wire.BasicGet{Queue: "q", NoAck: true})
	want[*wire.BasicGetOk](consumer, 1)
	r.b.mu.Lock()
	_, read := r.b.queues["late"]
	r.b.mu.Unlock()
	if read {
		t.Error("a blocked connection was read")
	}
	r.s.SetBlocked("")
	want[*wire.ConnectionUnblocked](publisher, 0)
	want[*wire.ConnectionUnblocked](late, 0)
	want[*wire.QueueDeclareOk](late, 1)
	publisher.alive(2)
	// A blocked connection can be closed by the server.
	r.s.SetBlocked("low on memory")
	want[*wire.ConnectionBlocked](publisher, 0)
}

func TestShutdown(t *testing.T) {
	t.Parallel()
	r := startServer(t, func(cfg *Config) { cfg.CloseTimeout = patience })
	c := r.open(t)
	silent := r.open(t) // never answers
	early := r.connect(t)
	early.greet()
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Second)
	defer cancel()
	done := make(chan error, 1)
	go func() { _, err := r.s.Shutdown(ctx, ShutdownOptions{}); done <- err }()
	for _, x := range []*rawClient{c, early, silent} {
		m := want[*wire.ConnectionClose](x, 0)
		checkClose(t, rule{code: 320, text: "CONNECTION_FORCED - broker forced connection closure with reason 'shutdown'"},
			m.ReplyCode, m.ReplyText, m.ClassID, m.MethodID)
	}
	c.send(0, &wire.ConnectionCloseOk{})
	c.closed()
	if err := receive(t, done, "shutdown"); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("shutdown with a silent client: %v", err)
	}
	silent.closed()
	if nc, err := net.Dial("tcp", r.addr); err == nil {
		_ = nc.Close()
		t.Error("still listening")
	}
	if err := r.s.Serve(failingListener{}); !errors.Is(err, ErrServerClosed) {
		t.Errorf("serve after shutdown: %v", err)
	}
}

type failingListener struct{ net.Listener }

func (failingListener) Close() error { return nil }

func TestKick(t *testing.T) {
	t.Parallel()
	r := startServer(t)
	for _, tc := range []struct {
		name string
		err  *broker.Error
		code uint16
		text string
	}{
		{"operator", broker.Errorf(broker.ConnectionForced, "CONNECTION_FORCED by hand"), 320, "CONNECTION_FORCED - CONNECTION_FORCED by hand"},
		{"vhost gone", broker.Errorf(broker.ConnectionForced, "vhost '/' is deleted"), 320, "CONNECTION_FORCED - vhost '/' is deleted"},
		{"node lost its place", broker.Errorf(broker.Internal, "node left the cluster"), 541, "INTERNAL_ERROR - node left the cluster"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := r.open(t)
			c.channel(1)
			r.b.mu.Lock()
			var conns []*memConn
			for m := range r.b.conns {
				conns = append(conns, m)
			}
			r.b.mu.Unlock()
			for _, m := range conns {
				m.info.Kick(tc.err)
				m.info.Kick(broker.Errorf(broker.Internal, "only the first counts"))
			}
			m := want[*wire.ConnectionClose](c, 0)
			if m.ReplyCode != tc.code || m.ReplyText != tc.text {
				t.Errorf("%+v", m)
			}
			c.send(0, &wire.ConnectionCloseOk{})
			c.closed()
			eventually(t, "release", func() bool { r.b.mu.Lock(); defer r.b.mu.Unlock(); return len(r.b.conns) == 0 })
		})
	}
}

// The broker may end a channel at any time, even while the client ends it.
func TestFailedByBroker(t *testing.T) {
	t.Parallel()
	r := startServer(t)
	c := r.open(t)
	c.channel(1)
	c.channel(2)
	fill(c, 1, "q", 2)
	c.send(1, &wire.BasicConsume{Queue: "q", NoWait: true})
	deliveries(c, 1, 2)
	var ch *memChannel
	r.b.mu.Lock()
	for _, h := range r.b.held {
		ch = h.ch
	}
	r.b.mu.Unlock()
	ch.sink.Failed(broker.Errorf(broker.PreconditionFailed, "delivery acknowledgement on channel 1 timed out"))
	ch.sink.Failed(broker.Errorf(broker.PreconditionFailed, "only the first counts"))
	if m := want[*wire.ChannelClose](c, 1); m.ReplyText != "PRECONDITION_FAILED - delivery acknowledgement on channel 1 timed out" {
		t.Errorf("%+v", m)
	}
	c.send(1, &wire.BasicAck{DeliveryTag: 1}, &wire.BasicGet{Queue: "nope"}, &wire.ChannelCloseOk{})
	c.alive(1)
	if ready, unacked := r.b.counts("q"); ready != 2 || unacked != 0 {
		t.Errorf("%d ready, %d unacked", ready, unacked)
	}
	c.send(2, &wire.BasicConsume{Queue: "q", NoWait: true})
	deliveries(c, 2, 2)
	r.b.mu.Lock()
	for _, h := range r.b.held {
		ch = h.ch
	}
	r.b.mu.Unlock()
	ch.sink.Failed(broker.Errorf(broker.Internal, "node left the cluster"))
	if m := want[*wire.ConnectionClose](c, 0); m.ReplyCode != 541 {
		t.Errorf("%+v", m)
	}
}

func TestConnectionLimit(t *testing.T) {
	t.Parallel()
	r := startServer(t, func(cfg *Config) { cfg.ConnectionsMax = 2 })
	a, b := r.open(t), r.open(t)
	c := r.connect(t)
	if _, err := io.Copy(io.Discard, c.nc); err != nil && !strings.Contains(err.Error(), "reset") {
		t.Error(err)
	}
	_ = a.nc.Close()
	eventually(t, "a free place", func() bool { return r.s.Stats().Connections == 1 })
	r.open(t)
	b.alive(1)
	if n := r.s.Stats().Refused; n != 1 {
		t.Errorf("refused: %d", n)
	}
}

// A client that asks and does not read the answers is not read any more; what it
// is owed stays bounded, and others go on.
func TestClientThatDoesNotRead(t *testing.T) {
	t.Parallel()
	r := startServer(t, func(cfg *Config) {
		cfg.WriteBufferBytes = 64 << 10
		cfg.WriteTimeout = time.Second
	})
	c := r.open(t)
	c.channel(1)
	if err := c.nc.SetWriteDeadline(time.Now().Add(5 * time.Second)); err != nil {
		t.Fatal(err)
	}
	b := (&wire.BasicPublish{RoutingKey: "nowhere", Mandatory: true}).AppendFrame(nil, 1)
	b = wire.AppendContent(b, 1, wire.ClassBasic, nil, make([]byte, 100000), 131072)
	sent := 0
	for sent < 1<<30 {
		n, err := c.nc.Write(b)
		sent += n
		if err != nil {
			break // the server stopped reading and then gave up
		}
	}
	if sent > 64<<20 {
		t.Errorf("the server took %d bytes from a client that does not read", sent)
	}
	other := r.open(t)
	other.alive(1)
	eventually(t, "end of the stalled connection", func() bool { return r.s.Stats().Connections == 1 })
}

// Deliveries to a client that does not read wait as references, bounded by the
// consumer's window, while the queue's other consumers go on.
// A client that consumes and closes again and again without reading is not served
// beyond a bound.
func TestChannelsThatAreNotRead(t *testing.T) {
	t.Parallel()
	r := startServer(t)
	c := r.open(t)
	c.channel(1)
	c.send(1, &wire.QueueDeclare{Queue: "q", NoWait: true})
	const messages, size = 1000, 8 << 10
	for range messages {
		c.publish(1, wire.BasicPublish{RoutingKey: "q"}, strings.Repeat("x", size))
	}
	eventually(t, "publishes", func() bool { ready, _ := r.b.counts("q"); return ready == messages })
	var turn []byte
	turn = (&wire.ChannelOpen{}).AppendFrame(turn, 2)
	turn = (&wire.BasicConsume{Queue: "q"}).AppendFrame(turn, 2)
	turn = (&wire.ChannelClose{ReplyCode: 200}).AppendFrame(turn, 2)
	const turns = 100 // each would leave 8 MiB behind
	go func() {
		for range turns {
			if _, err := c.nc.Write(turn); err != nil {
				return
			}
		}
	}()
	var most int
	waiting := func() int {
		for _, x := range r.s.connections() {
			x.out.mu.Lock()
			most = max(most, x.out.delivering())
			x.out.mu.Unlock()
		}
		return most
	}
	eventually(t, "the bound", func() bool { return waiting() > deliveredMax })
	for range 50 {
		time.Sleep(2 * time.Millisecond)
		waiting()
	}
	if limit := deliveredMax + 2*messages*(size+contentOverhead); most > limit {
		t.Errorf("%d bytes wait for a client that does not read, want at most %d", most, limit)
	}
	for closed := 0; closed < turns; { // it reads again, and everything comes
		if _, m, _ := c.method(); m.ID() == wire.MethodChannelCloseOk {
			closed++
		}
	}
	c.alive(3)
}

func TestConsumerThatDoesNotRead(t *testing.T) {
	t.Parallel()
	r := startServer(t)
	lazy, eager := r.open(t), r.open(t)
	lazy.channel(1)
	lazy.send(1, &wire.QueueDeclare{Queue: "q", NoWait: true}, &wire.BasicConsume{Queue: "q", NoAck: true})
	want[*wire.BasicConsumeOk](lazy, 1)
	p := r.open(t)
	p.channel(1)
	p.send(1, &wire.ConfirmSelect{})
	want[*wire.ConfirmSelectOk](p, 1)
	eager.channel(1)
	eager.send(1, &wire.BasicConsume{Queue: "q", NoAck: true})
	want[*wire.BasicConsumeOk](eager, 1)
	const n = 12000 // each 8 KiB: far more than sockets and windows hold
	go func() {
		b := (&wire.BasicPublish{RoutingKey: "q"}).AppendFrame(nil, 1)
		b = wire.AppendContent(b, 1, wire.ClassBasic, nil, make([]byte, 8<<10), 131072)
		for range n {
			if _, err := p.nc.Write(b); err != nil {
				return
			}
		}
	}()
	got := 0
	for got < n/2 {
		want[*wire.BasicDeliver](eager, 1)
		got++
	}
	_ = lazy.nc.Close()
	_ = p.nc.Close()
}

// Immediate messages whose verdict does not come are bounded, too.
func TestImmediateMessagesAreBounded(t *testing.T) {
	t.Parallel()
	r := startServer(t)
	c := r.open(t)
	c.channel(1)
	c.send(1, &wire.QueueDeclare{Queue: "q"})
	want[*wire.QueueDeclareOk](c, 1)
	r.b.freeze(true)
	b := (&wire.BasicPublish{RoutingKey: "q", Immediate: true}).AppendFrame(nil, 1)
	b = wire.AppendContent(b, 1, wire.ClassBasic, nil, make([]byte, 100000), 131072)
	if err := c.nc.SetWriteDeadline(time.Now().Add(time.Second)); err != nil {
		t.Fatal(err)
	}
	sent := 0
	for sent < 1<<30 {
		n, err := c.nc.Write(b)
		sent += n
		if err != nil {
			break
		}
	}
	r.b.mu.Lock()
	held := len(r.b.pending)
	r.b.mu.Unlock()
	if held > heldMax/100000+2 {
		t.Errorf("%d messages held", held)
	}
	r.b.freeze(false)
	for range held {
		want[*wire.BasicReturn](c, 1)
	}
}

func TestConfigValidate(t *testing.T) {
	cfg := Default()
	if err := cfg.Validate(); err != nil {
		t.Errorf("default: %v", err)
	}
	err := (&Config{}).Validate()
	if err == nil {
		t.Fatal("empty config is valid")
	}
	for _, part := range []string{"product", "mechanism", "frame_max minimum", "channel_max", "message size", "write buffer", "connection limit", "handshake timeout", "logger"} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("%q is missing in %v", part, err)
		}
	}
	if _, err := New(Config{}, nil); err == nil {
		t.Error("New took an empty config")
	}
}

// What tools see of a connection, and how an operator ends it.
func TestRegistry(t *testing.T) {
	t.Parallel()
	r := startServer(t)
	early := r.connect(t)
	early.greet()
	first, second := r.open(t), r.open(t)
	first.channel(1)
	first.channel(7)
	list := r.s.Connections()
	if len(list) != 2 {
		t.Fatalf("%d connections, want the 2 that are open", len(list))
	}
	info := list[0]
	if want := first.nc.LocalAddr().String() + " -> " + r.addr; info.Name != want {
		t.Errorf("name %q, want %q", info.Name, want)
	}
	if info.User != "guest" || info.VHost != "/" || info.ClientName != "raw" || info.Mechanism != "PLAIN" ||
		info.ChannelMax != 2047 || info.FrameMax != 131072 || info.Channels != 2 || info.Blocked != "" ||
		info.ReceivedBytes == 0 || info.WrittenBytes == 0 || time.Since(info.Opened) > time.Minute {
		t.Errorf("%+v", info)
	}
	if r.s.CloseConnection("nobody", "x") {
		t.Error("closed a connection that is not there")
	}
	if !r.s.CloseConnection(info.Name, "closed for the night") {
		t.Fatal("not found by its name")
	}
	m := want[*wire.ConnectionClose](first, 0)
	checkClose(t, rule{code: 320, text: "CONNECTION_FORCED - closed for the night"}, m.ReplyCode, m.ReplyText, m.ClassID, m.MethodID)
	first.send(0, &wire.ConnectionCloseOk{})
	first.closed()
	second.alive(1)
	eventually(t, "the end", func() bool { return len(r.s.Connections()) == 1 })
	// A text of any length fits.
	r.s.CloseConnection(r.s.Connections()[0].Name, strings.Repeat("x", 1000))
	if m := want[*wire.ConnectionClose](second, 0); len(m.ReplyText) > 255 || !strings.HasPrefix(m.ReplyText, "CONNECTION_FORCED - xxx") {
		t.Errorf("%d bytes: %q", len(m.ReplyText), m.ReplyText)
	}
}
