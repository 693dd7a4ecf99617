package amqp

import (
	"errors"
	"io"
	"net"
	"testing"
	"time"

	wire "github.com/warrenmq/warren/amqp"
)

// rawClient speaks to the server frame by frame.
type rawClient struct {
	tb testing.TB
	nc net.Conn
	fr *wire.FrameReader
}

// connect opens a socket and sends nothing.
func (r *rig) connect(tb testing.TB) *rawClient {
	tb.Helper()
	nc, err := net.Dial("tcp", r.addr)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = nc.Close() })
	if err := nc.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
		tb.Fatal(err)
	}
	c := &rawClient{tb: tb, nc: nc, fr: wire.NewFrameReader(nc)}
	c.fr.SetMax(131072)
	return c
}

func allCapabilities() wire.Table {
	caps := wire.Table{}
	caps.Set("authentication_failure_close", true)
	caps.Set("connection.blocked", true)
	caps.Set("consumer_cancel_notify", true)
	t := wire.Table{}
	t.Set("capabilities", caps)
	t.Set("connection_name", "raw")
	return t
}

// greet sends the protocol header and takes connection.start.
func (c *rawClient) greet() *wire.ConnectionStart {
	c.tb.Helper()
	h := wire.Header091()
	c.bytes(h[:])
	return want[*wire.ConnectionStart](c, 0)
}

// login logs in and takes connection.tune.
func (c *rawClient) login(props wire.Table) *wire.ConnectionTune {
	c.tb.Helper()
	c.greet()
	c.send(0, &wire.ConnectionStartOk{ClientProperties: props, Mechanism: "PLAIN", Response: "\x00guest\x00guest", Locale: "en_US"})
	return want[*wire.ConnectionTune](c, 0)
}

// open goes through the whole handshake, without heartbeats.
func (r *rig) open(tb testing.TB) *rawClient {
	tb.Helper()
	c := r.connect(tb)
	c.handshake(allCapabilities(), wire.ConnectionTuneOk{ChannelMax: 2047, FrameMax: 131072})
	return c
}

func (c *rawClient) handshake(props wire.Table, tune wire.ConnectionTuneOk) {
	c.tb.Helper()
	c.login(props)
	c.send(0, &tune)
	c.send(0, &wire.ConnectionOpen{VirtualHost: "/"})
	want[*wire.ConnectionOpenOk](c, 0)
}

// channel opens a channel.
func (c *rawClient) channel(num uint16) {
	c.tb.Helper()
	c.send(num, &wire.ChannelOpen{})
	want[*wire.ChannelOpenOk](c, num)
}

func (c *rawClient) bytes(b []byte) {
	c.tb.Helper()
	if _, err := c.nc.Write(b); err != nil {
		c.tb.Fatalf("write: %v", err)
	}
}

func (c *rawClient) send(channel uint16, ms ...wire.Method) {
	c.tb.Helper()
	var b []byte
	for _, m := range ms {
		b = wire.AppendMethodFrame(b, channel, m)
	}
	c.bytes(b)
}

// publish sends a message to a queue.
func (c *rawClient) publish(channel uint16, m wire.BasicPublish, body string) {
	c.tb.Helper()
	b := m.AppendFrame(nil, channel)
	c.bytes(wire.AppendContent(b, channel, wire.ClassBasic, nil, []byte(body), 131072))
}

// next returns the next frame that is no heartbeat.
func (c *rawClient) next() (wire.Frame, error) {
	for {
		f, err := c.fr.Next()
		if err != nil || f.Type != wire.FrameHeartbeat {
			return f, err
		}
	}
}

// method returns the next method; content is read and returned as bytes.
func (c *rawClient) method() (channel uint16, m wire.Method, body []byte) {
	c.tb.Helper()
	f, err := c.next()
	if err != nil {
		c.tb.Fatalf("read: %v", err)
	}
	if f.Type != wire.FrameMethod {
		c.tb.Fatalf("frame of type %d, want a method", f.Type)
	}
	channel = f.Channel
	if m, err = wire.Decode(f.Payload); err != nil {
		c.tb.Fatal(err)
	}
	if info, _ := m.ID().Info(); info.Content {
		body = c.content(channel)
	}
	return channel, m, body
}

func (c *rawClient) content(channel uint16) []byte {
	c.tb.Helper()
	f, err := c.next()
	if err != nil || f.Type != wire.FrameHeader || f.Channel != channel {
		c.tb.Fatalf("want a header on channel %d: %+v, %v", channel, f, err)
	}
	h, err := wire.ParseContentHeader(f.Payload)
	if err != nil {
		c.tb.Fatal(err)
	}
	body := []byte{}
	for uint64(len(body)) < h.BodySize {
		f, err := c.next()
		if err != nil || f.Type != wire.FrameBody || f.Channel != channel {
			c.tb.Fatalf("want a body on channel %d: type %d channel %d, %v", channel, f.Type, f.Channel, err)
		}
		body = append(body, f.Payload...)
	}
	return body
}

// want takes the next method and requires its type.
func want[M wire.Method](c *rawClient, channel uint16) M {
	c.tb.Helper()
	m, _ := wantContent[M](c, channel)
	return m
}

func wantContent[M wire.Method](c *rawClient, channel uint16) (M, []byte) {
	c.tb.Helper()
	got, m, body := c.method()
	typed, ok := m.(M)
	if !ok || got != channel {
		var none M
		c.tb.Fatalf("got %s on channel %d (%+v), want %s on channel %d", m.Name(), got, m, none.Name(), channel)
	}
	return typed, body
}

// closed requires the end of the stream.
func (c *rawClient) closed() {
	c.tb.Helper()
	f, err := c.next()
	var op *net.OpError
	if err == nil || !errors.Is(err, io.EOF) && !errors.As(err, &op) || errors.As(err, &op) && op.Timeout() {
		c.tb.Fatalf("want the end of the stream, got %+v, %v", f, err)
	}
}

// alive requires that the connection answers on a fresh channel.
func (c *rawClient) alive(channel uint16) {
	c.tb.Helper()
	c.channel(channel)
	c.send(channel, &wire.ChannelClose{ReplyCode: 200, ReplyText: "OK"})
	want[*wire.ChannelCloseOk](c, channel)
}
