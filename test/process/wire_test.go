package process

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/warrenmq/warren/test/cluster"
	"github.com/warrenmq/warren/test/frames"
)

// wire is an AMQP connection that sends what it is told, right or wrong.
type wire struct {
	t    *testing.T
	conn net.Conn
	r    *bufio.Reader
}

func dialWire(t *testing.T, to target) *wire {
	t.Helper()
	u, err := url.Parse(to.url)
	if err != nil {
		t.Fatal(err)
	}
	conn, err := net.DialTimeout("tcp", u.Host, timeoutReply)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	w := &wire{t: t, conn: conn, r: bufio.NewReader(conn)}
	w.soon()
	return w
}

// soon bounds what is next read or written, and not all together.
func (w *wire) soon() { _ = w.conn.SetDeadline(time.Now().Add(timeoutReply)) } // fails when it is closed, as they do

const (
	frameMethod    = frames.TypeMethod
	frameHeader    = frames.TypeHeader
	frameBody      = frames.TypeBody
	frameHeartbeat = frames.TypeHeartbeat
	frameEnd       = frames.End
)

func (w *wire) send(data []byte) {
	w.t.Helper()
	w.soon()
	if _, err := w.conn.Write(data); err != nil {
		w.t.Fatalf("send: %v", err)
	}
}

func frame(kind byte, channel uint16, payload []byte) []byte {
	return frames.Frame(kind, channel, payload)
}

func method(channel, class, id uint16, args ...any) []byte {
	return frames.Method(channel, class, id, args...)
}

// read returns the next frame. A closed connection is io.EOF.
func (w *wire) read() (kind byte, channel uint16, payload []byte, err error) {
	head := make([]byte, 7)
	w.soon()
	if _, err := io.ReadFull(w.r, head); err != nil {
		return 0, 0, nil, err
	}
	payload = make([]byte, binary.BigEndian.Uint32(head[3:])+1)
	if _, err := io.ReadFull(w.r, payload); err != nil {
		return 0, 0, nil, err
	}
	if payload[len(payload)-1] != frameEnd {
		return 0, 0, nil, fmt.Errorf("frame of type %d ends with %#x", head[0], payload[len(payload)-1])
	}
	return head[0], binary.BigEndian.Uint16(head[1:]), payload[:len(payload)-1], nil
}

// expect reads up to the next method and checks which it is.
func (w *wire) expect(class, id uint16) []byte {
	w.t.Helper()
	for {
		kind, _, payload, err := w.read()
		if err != nil {
			w.t.Fatalf("waiting for method %d.%d: %v", class, id, err)
		}
		if kind == frameHeartbeat {
			continue
		}
		got := [2]uint16{binary.BigEndian.Uint16(payload), binary.BigEndian.Uint16(payload[2:])}
		if kind != frameMethod || got != [2]uint16{class, id} {
			w.t.Fatalf("got frame %d with method %v, want %d.%d", kind, got, class, id)
		}
		return payload[4:]
	}
}

// expectClose reads connection.close and checks code, text and the method it
// blames.
func (w *wire) expectClose(code uint16, text string, class, id uint16) {
	w.t.Helper()
	args := w.expect(10, 50)
	got := binary.BigEndian.Uint16(args)
	reason := string(args[3 : 3+args[2]])
	tail := args[3+args[2]:]
	blamed := [2]uint16{binary.BigEndian.Uint16(tail), binary.BigEndian.Uint16(tail[2:])}
	if got != code || !strings.Contains(reason, text) || blamed != [2]uint16{class, id} {
		w.t.Errorf("closed with %d %q for %v, want %d %q for %d.%d", got, reason, blamed, code, text, class, id)
	}
	w.send(method(0, 10, 51))
	w.expectEnd()
}

// expectEnd checks that the server ends the connection.
func (w *wire) expectEnd() {
	w.t.Helper()
	if _, err := io.Copy(io.Discard, w.r); err != nil && !isReset(err) {
		w.t.Errorf("the connection stays open: %v", err)
	}
}

func isReset(err error) bool {
	var op *net.OpError
	return errors.As(err, &op) && !op.Timeout()
}

var amqpHeader = []byte("AMQP\x00\x00\x09\x01")

// greet goes up to connection.tune. capabilities is the client-properties
// table.
func (w *wire) greet(mechanism, response string, properties []byte) {
	w.t.Helper()
	w.send(amqpHeader)
	w.expect(10, 10)
	w.send(method(0, 10, 11, properties, mechanism, []byte(response), "en_US"))
}

func (w *wire) tune(channels uint16, frameMax uint32) {
	w.t.Helper()
	w.expect(10, 30)
	w.send(method(0, 10, 31, channels, frameMax, uint16(0)))
}

// login opens the vhost "/" and channel 1.
func (w *wire) login() { w.loginFor(100) }

// loginFor is login with another channel_max.
func (w *wire) loginFor(channels uint16) {
	w.t.Helper()
	w.greet("PLAIN", "\x00guest\x00guest", nil)
	w.tune(channels, 131072)
	w.send(method(0, 10, 40, "/", "", byte(0)))
	w.expect(10, 41)
	w.send(method(1, 20, 10, ""))
	w.expect(20, 11)
}

// table with capabilities.authentication_failure_close = true.
var closeCapability = func() []byte {
	inner := []byte("\x1cauthentication_failure_closet\x01")
	outer := append([]byte("\x0ccapabilitiesF"), binary.BigEndian.AppendUint32(nil, uint32(len(inner)))...)
	return append(outer, inner...)
}()

func TestWire(t *testing.T) {
	t.Parallel()
	publish := method(1, 60, 40, uint16(0), "", "none", byte(0))
	header := func(class uint16, size uint32) []byte {
		p := binary.BigEndian.AppendUint16(nil, class)
		p = append(p, 0, 0, 0, 0, 0, 0)
		p = binary.BigEndian.AppendUint32(p, size)
		return frame(frameHeader, 1, append(p, 0, 0))
	}
	badEnd := bytes.Clone(method(1, 60, 10, uint32(0), uint16(1), byte(0)))
	badEnd[len(badEnd)-1] = 0

	for _, tc := range []struct {
		name       string
		send       [][]byte
		code       uint16
		text       string
		class, id  uint16
		warrenOnly bool
	}{
		{name: "bad frame end", send: [][]byte{badEnd}, code: 501, text: "FRAME_ERROR"},
		{name: "frame beyond the limit", send: [][]byte{frame(frameBody, 1, make([]byte, 140000))}, code: 501, text: "FRAME_ERROR"},
		{name: "huge frame announced", send: [][]byte{{frameBody, 0, 1, 0xff, 0xff, 0xff, 0xff}}, code: 501, text: "FRAME_ERROR"},
		{name: "unknown frame type", send: [][]byte{frame(7, 1, []byte("what"))}, code: 501, text: "FRAME_ERROR", warrenOnly: true},
		{name: "method that is cut short", send: [][]byte{frame(frameMethod, 1, []byte{0, 60, 0, 20, 0})}, code: 502, text: "SYNTAX_ERROR", class: 60, id: 20, warrenOnly: true},
		{name: "unknown method", send: [][]byte{method(1, 60, 99)}, code: 503, text: "COMMAND_INVALID", class: 60, id: 99, warrenOnly: true},
		{name: "body without header", send: [][]byte{publish, frame(frameBody, 1, []byte("b"))}, code: 505, text: "UNEXPECTED_FRAME", class: 60, id: 40},
		{name: "body out of the blue", send: [][]byte{frame(frameBody, 1, []byte("b"))}, code: 505, text: "UNEXPECTED_FRAME"},
		{name: "header out of the blue", send: [][]byte{header(60, 1)}, code: 505, text: "UNEXPECTED_FRAME"},
		{name: "header of another class", send: [][]byte{publish, header(50, 1)}, code: 505, text: "UNEXPECTED_FRAME", class: 60, id: 40},
		{name: "method in place of the header", send: [][]byte{publish, publish}, code: 505, text: "UNEXPECTED_FRAME", class: 60, id: 40},
		{name: "more body than announced", send: [][]byte{publish, header(60, 1), frame(frameBody, 1, []byte("two"))}, code: 505, text: "UNEXPECTED_FRAME", class: 60, id: 40, warrenOnly: true},
		{name: "heartbeat on a channel", send: [][]byte{frame(frameHeartbeat, 1, nil)}, code: 505, text: "UNEXPECTED_FRAME", warrenOnly: true},
		{name: "channel that is not open", send: [][]byte{method(2, 60, 10, uint32(0), uint16(1), byte(0))}, code: 504, text: "CHANNEL_ERROR - expected 'channel.open'", class: 60, id: 10},
		{name: "channel opened twice", send: [][]byte{method(1, 20, 10, "")}, code: 504, text: "CHANNEL_ERROR - second 'channel.open' seen", class: 20, id: 10},
	} {
		t.Run(tc.name, func(t *testing.T) {
			eachTarget(t, func(t *testing.T, to target) {
				if tc.warrenOnly && !to.warren {
					t.Skip("differs in this broker")
				}
				w := dialWire(t, to)
				w.login()
				for _, data := range tc.send {
					w.send(data)
				}
				w.expectClose(tc.code, tc.text, tc.class, tc.id)
			})
		})
	}
}

func TestWireHandshake(t *testing.T) {
	t.Parallel()
	eachTarget(t, func(t *testing.T, to target) {
		t.Run("login refused, with close", func(t *testing.T) {
			w := dialWire(t, to)
			w.greet("PLAIN", "\x00guest\x00wrong", closeCapability)
			w.expectClose(403, "ACCESS_REFUSED - Login was refused using authentication mechanism PLAIN", 0, 0)
		})
		t.Run("login refused, without", func(t *testing.T) {
			w := dialWire(t, to)
			w.greet("PLAIN", "\x00guest\x00wrong", nil)
			w.expectEnd()
		})
		t.Run("vhost", func(t *testing.T) {
			w := dialWire(t, to)
			w.greet("PLAIN", "\x00guest\x00guest", nil)
			w.tune(100, 131072)
			w.send(method(0, 10, 40, "nowhere", "", byte(0)))
			w.expectClose(530, "NOT_ALLOWED - vhost nowhere not found", 10, 40)
		})
		t.Run("frame_max too small", func(t *testing.T) {
			w := dialWire(t, to)
			w.greet("PLAIN", "\x00guest\x00guest", nil)
			w.tune(100, 1000)
			if !to.warren {
				w.expectEnd() // RabbitMQ 3 just hangs up before the connection is open
				return
			}
			w.expectClose(530, "NOT_ALLOWED - negotiated frame_max = 1000 is lower than the minimum allowed value (8192)", 10, 30)
		})
		t.Run("unknown mechanism", func(t *testing.T) {
			w := dialWire(t, to)
			w.greet("MAGIC", "please", nil)
			if !to.warren {
				w.expectEnd()
				return
			}
			w.expectClose(503, "COMMAND_INVALID - unknown authentication mechanism 'MAGIC'", 10, 11)
		})
		t.Run("more channels than negotiated", func(t *testing.T) {
			w := dialWire(t, to)
			w.greet("PLAIN", "\x00guest\x00guest", nil)
			w.tune(1, 131072)
			w.send(method(0, 10, 40, "/", "", byte(0)))
			w.expect(10, 41)
			w.send(method(7, 20, 10, ""))
			w.expect(20, 11)
			w.send(method(8, 20, 10, ""))
			w.expectClose(530, "NOT_ALLOWED - number of channels opened (1) has reached the negotiated channel_max (1)", 0, 0)
		})
		t.Run("client that leaves in the middle", func(t *testing.T) {
			for _, data := range [][]byte{amqpHeader, amqpHeader[:5]} {
				w := dialWire(t, to)
				w.send(data)
				w.conn.Close()
			}
		})
		newSession(t, to).queue("alive", nil)
	})
}

// TestGarbage sends what is not AMQP. The server answers with the header it
// wants, or just ends the connection, and others do not notice.
func TestGarbage(t *testing.T) {
	t.Parallel()
	eachTarget(t, func(t *testing.T, to target) {
		s := newSession(t, to)
		q := s.queue("q", nil)
		s.fill(q, "before")
		for name, garbage := range map[string]string{
			"http":           "GET / HTTP/1.1\r\nHost: here\r\n\r\n",
			"tls":            "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
			"zeros":          strings.Repeat("\x00", 4096),
			"other version":  "AMQP\x00\x00\x09\x09",
			"old version":    "AMQP\x01\x01\x00\x08",
			"text":           "hello, is anybody there?\r\n",
			"AMQP 1.0":       "AMQP\x00\x01\x00\x00",
			"MQTT":           "\x10\x10\x00\x04MQTT\x04\x02\x00\x3c\x00\x04name",
			"STOMP":          "CONNECT\naccept-version:1.2\nhost:/\n\n\x00",
			"after a header": string(amqpHeader) + strings.Repeat("\xff", 100),
		} {
			t.Run(name, func(t *testing.T) {
				w := dialWire(t, to)
				w.send([]byte(garbage))
				answer, err := io.ReadAll(io.LimitReader(w.r, 1<<16))
				if err != nil && !isReset(err) {
					t.Fatalf("the connection stays open: %v", err)
				}
				if len(answer) > 0 && !bytes.HasPrefix(answer, []byte("AMQP")) && answer[0] != frameMethod {
					t.Errorf("answer %q", answer)
				}
			})
		}
		s.fill(q, "after")
		s.holds(q, "before", "after")
	})
}

// TestHeartbeat lets the client fall silent: the server sends heartbeats, and
// ends the connection after two missed ones.
func TestHeartbeat(t *testing.T) {
	t.Parallel()
	eachTarget(t, func(t *testing.T, to target) {
		t.Parallel()
		w := dialWire(t, to)
		w.greet("PLAIN", "\x00guest\x00guest", nil)
		w.expect(10, 30)
		w.send(method(0, 10, 31, uint16(10), uint32(131072), uint16(1)))
		w.send(method(0, 10, 40, "/", "", byte(0)))
		w.expect(10, 41)
		began, beats := time.Now(), 0
		for {
			kind, channel, _, err := w.read()
			if err != nil {
				if errors.Is(err, io.EOF) || isReset(err) {
					break
				}
				t.Fatal(err)
			}
			if kind != frameHeartbeat || channel != 0 {
				t.Fatalf("frame %d on channel %d", kind, channel)
			}
			beats++
		}
		if took := time.Since(began); took < 1500*time.Millisecond || took > 20*time.Second || beats < 1 {
			t.Errorf("%d heartbeats came, the end after %v", beats, took)
		}
		for range 5 {
			conn, err := connectWith(to.url, amqp.Config{Heartbeat: time.Second})
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			began := time.Now()
			time.Sleep(2500 * time.Millisecond) // the client sends heartbeats
			if !conn.IsClosed() {
				return
			}
			if cluster.Stalled(began) < 500*time.Millisecond { // else it could not
				break
			}
		}
		t.Error("a client with heartbeats was cut off")
	})
}
