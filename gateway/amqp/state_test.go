package amqp

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"slices"
	"testing"
	"time"

	wire "github.com/warrenmq/warren/amqp"
)

// script turns bytes into what a client does: valid methods and content frames,
// in any order, on a few channels.
type script struct {
	data []byte
	out  []byte
}

func (s *script) byte() byte {
	if len(s.data) == 0 {
		return 0
	}
	b := s.data[0]
	s.data = s.data[1:]
	return b
}

func (s *script) flag() bool { return s.byte()&1 != 0 }

func (s *script) name() string { return []string{"", "a", "b", "nope"}[s.byte()&3] }

func (s *script) exchange() string {
	return []string{"", "amq.direct", "amq.fanout", "e", "nope"}[s.byte()%5]
}

func (s *script) channel() uint16 { return []uint16{1, 1, 1, 2, 2, 3, 3, 0}[s.byte()&7] }

func (s *script) tag() uint64 { return uint64(s.byte() & 15) }

// usual are what clients send most, so that scripts get somewhere.
func (s *script) usual() wire.Method {
	switch s.byte() % 12 {
	case 0, 1:
		return &wire.ChannelOpen{}
	case 2:
		return &wire.QueueDeclare{Queue: s.name(), NoWait: s.flag(), Exclusive: s.byte()%8 == 7, AutoDelete: s.byte()%8 == 7}
	case 3:
		return &wire.BasicConsume{Queue: s.name(), ConsumerTag: fmt.Sprint(s.byte()), NoAck: s.flag(), NoWait: s.flag()}
	case 4:
		return &wire.BasicAck{DeliveryTag: s.tag(), Multiple: s.flag()}
	case 5:
		return &wire.BasicNack{DeliveryTag: s.tag(), Multiple: s.flag(), Requeue: s.flag()}
	case 6:
		return &wire.BasicReject{DeliveryTag: s.tag(), Requeue: s.flag()}
	case 7:
		return &wire.BasicGet{Queue: s.name(), NoAck: s.flag()}
	case 8:
		return &wire.ConfirmSelect{NoWait: s.flag()}
	case 9:
		return &wire.ChannelCloseOk{}
	case 10:
		return &wire.BasicQos{PrefetchCount: uint16(s.byte() & 3), Global: s.flag()}
	default:
		return &wire.BasicRecover{Requeue: s.byte()%8 != 7}
	}
}

// odd are the rest of the protocol, methods only a server may send included.
func (s *script) odd() wire.Method {
	all := []wire.Method{
		&wire.ExchangeDeclare{Exchange: s.exchange(), Type: "direct", Passive: s.flag()}, &wire.ExchangeDelete{Exchange: "e"},
		&wire.ExchangeBind{Source: s.exchange(), Destination: "e"}, &wire.ExchangeUnbind{Source: "e", Destination: "e"},
		&wire.QueueBind{Queue: s.name(), Exchange: s.exchange()}, &wire.QueueUnbind{Queue: s.name(), Exchange: s.exchange()},
		&wire.QueuePurge{Queue: s.name(), NoWait: s.flag()}, &wire.QueueDelete{Queue: s.name(), IfEmpty: s.flag(), IfUnused: s.flag()},
		&wire.BasicCancel{ConsumerTag: fmt.Sprint(s.byte()), NoWait: s.flag()}, &wire.BasicCancelOk{}, &wire.BasicRecoverAsync{Requeue: s.flag()},
		&wire.ChannelClose{ReplyCode: 200}, &wire.ChannelFlow{Active: s.byte()%8 != 7}, &wire.ChannelFlowOk{}, &wire.AccessRequest{},
		&wire.TxSelect{}, &wire.TxCommit{}, &wire.TxRollback{}, &wire.BasicPublish{},
		&wire.ConnectionClose{ReplyCode: 200}, &wire.ConnectionCloseOk{}, &wire.ConnectionOpen{}, &wire.ConnectionStartOk{}, &wire.ConnectionTuneOk{},
		&wire.ConnectionUpdateSecret{NewSecret: "guest"}, &wire.ConnectionBlocked{}, &wire.ConnectionSecureOk{},
		&wire.QueueDeclareOk{}, &wire.BasicDeliver{}, &wire.BasicReturn{}, &wire.BasicGetOk{}, &wire.BasicGetEmpty{}, &wire.ConfirmSelectOk{},
	}
	return all[int(s.byte())%len(all)]
}

// build returns the bytes of the whole script.
func (s *script) build() []byte {
	for len(s.data) > 0 && len(s.out) < 1<<20 {
		kind, ch := s.byte(), s.channel()
		switch {
		case kind < 140:
			s.out = s.usual().AppendFrame(s.out, ch)
		case kind < 200: // a whole publish
			m := wire.BasicPublish{Exchange: s.exchange(), RoutingKey: s.name(), Mandatory: s.flag(), Immediate: s.byte()%8 == 7}
			s.out = m.AppendFrame(s.out, ch)
			body := make([]byte, int(s.byte())*int(s.byte()))
			s.out = wire.AppendContent(s.out, ch, wire.ClassBasic, nil, body, 8192)
		case kind < 240:
			s.out = s.odd().AppendFrame(s.out, ch)
		case kind < 246:
			s.out = wire.AppendContentHeader(s.out, ch, wire.ClassBasic, nil, uint64(s.byte()))
		case kind < 252:
			s.out = wire.AppendFrame(s.out, wire.FrameBody, ch, make([]byte, int(s.byte())))
		case kind < 254:
			s.out = wire.AppendHeartbeat(s.out)
		default: // whatever follows, as the payload of a method
			n := min(int(s.byte()), len(s.data))
			s.out = wire.AppendFrame(s.out, wire.FrameMethod, ch, s.data[:n])
			s.data = s.data[n:]
		}
	}
	return s.out
}

// stateChecker watches what the server sends.
type stateChecker struct {
	tags    map[uint16]uint64 // delivery tag given out last
	closing map[uint16]bool   // channel.close was sent, the channel is silent
}

func (k *stateChecker) check(channel uint16, m wire.Method) error {
	info, _ := m.ID().Info()
	if !info.FromServer {
		return fmt.Errorf("a server must not send %s", info.Name)
	}
	if k.closing[channel] && m.ID() != wire.MethodChannelCloseOk && m.ID() != wire.MethodChannelOpenOk {
		return fmt.Errorf("%s on channel %d after its close", info.Name, channel)
	}
	tag := uint64(0)
	switch m := m.(type) {
	case *wire.ChannelOpenOk:
		k.tags[channel], k.closing[channel] = 0, false
	case *wire.ChannelClose:
		k.closing[channel] = true
		if m.ReplyText == "" || m.ClassID == 0 {
			return fmt.Errorf("undefined close: %+v", m)
		}
	case *wire.ChannelCloseOk:
		k.closing[channel] = true
	case *wire.BasicDeliver:
		tag = m.DeliveryTag
	case *wire.BasicGetOk:
		tag = m.DeliveryTag
	}
	if tag != 0 {
		if tag != k.tags[channel]+1 {
			return fmt.Errorf("delivery tag %d on channel %d after %d", tag, channel, k.tags[channel])
		}
		k.tags[channel] = tag
	}
	return nil
}

// runScript plays data on a fresh connection and requires that the server answers
// everything by the rules: at the end it opens one more channel, or it has closed
// the connection with a reply code.
func runScript(t testing.TB, r *rig, data []byte) {
	c := r.connect(t)
	defer c.nc.Close()
	c.handshake(allCapabilities(), wire.ConnectionTuneOk{ChannelMax: 100, FrameMax: 8192})
	const last = 99
	out := (&script{data: data}).build()
	out = (&wire.ChannelOpen{}).AppendFrame(out, last)
	go func() { _, _ = c.nc.Write(out) }() // ends with the connection
	k := &stateChecker{tags: map[uint16]uint64{}, closing: map[uint16]bool{}}
	for {
		f, err := c.next()
		if err != nil {
			// A reset may overtake the reason when the script goes on after its
			// own close.
			var op *net.OpError
			if errors.As(err, &op) && op.Timeout() {
				t.Fatalf("the server hangs: %v", err)
			}
			t.Fatalf("closed without a reason: %v", err)
		}
		if f.Type != wire.FrameMethod {
			continue
		}
		m, err := wire.Decode(f.Payload)
		if err != nil {
			t.Fatal(err)
		}
		switch x := m.(type) {
		case *wire.ConnectionClose:
			if wire.ReplyName(x.ReplyCode) == "" || wire.IsSoft(x.ReplyCode) || x.ReplyCode == wire.InternalError {
				t.Fatalf("undefined close: %+v", x)
			}
			c.bytesQuietly((&wire.ConnectionCloseOk{}).AppendFrame(nil, 0))
			return
		case *wire.ConnectionCloseOk:
			return // the script closed it
		case *wire.ChannelOpenOk:
			if f.Channel == last {
				return
			}
		}
		if err := k.check(f.Channel, m); err != nil {
			t.Fatal(err)
		}
	}
}

func (c *rawClient) bytesQuietly(b []byte) { _, _ = c.nc.Write(b) }

func fuzzServer(t testing.TB) *rig {
	return startServer(t, func(cfg *Config) {
		cfg.CloseTimeout = 50 * time.Millisecond
		cfg.MessageBytesMax = 40000
	})
}

func FuzzProtocolState(f *testing.F) {
	for seed := range uint64(8) {
		data := make([]byte, 400)
		_, _ = rand.NewChaCha8([32]byte{byte(seed)}).Read(data)
		f.Add(data)
	}
	r := fuzzServer(f)
	f.Fuzz(func(t *testing.T, data []byte) { runScript(t, r, data) })
}

// Random scripts, most of which open their channels first and live longer.
func TestProtocolState(t *testing.T) {
	t.Parallel()
	r := fuzzServer(t)
	rng := rand.NewChaCha8([32]byte{1})
	for i := range 300 {
		data := make([]byte, 30+i)
		_, _ = rng.Read(data)
		if i%4 != 0 {
			data = append([]byte{0, 0, 0, 0, 3, 0, 0, 5, 0}, data...)
		}
		runScript(t, r, data)
	}
	eventually(t, "end of connections", func() bool { return r.s.Stats().Connections == 0 })
	r.b.mu.Lock()
	defer r.b.mu.Unlock()
	if len(r.b.conns) != 0 || len(r.b.held) != 0 {
		t.Errorf("left behind: %d connections, %d deliveries", len(r.b.conns), len(r.b.held))
	}
}

// FuzzBytes sends anything at all: the server answers in AMQP or closes, and
// others are unharmed.
func FuzzBytes(f *testing.F) {
	h := wire.Header091()
	start := (&wire.ConnectionStartOk{Mechanism: "PLAIN", Response: "\x00guest\x00guest"}).AppendFrame(h[:], 0)
	tune := (&wire.ConnectionTuneOk{ChannelMax: 10, FrameMax: 8192}).AppendFrame(slices.Clip(start), 0)
	open := (&wire.ConnectionOpen{VirtualHost: "/"}).AppendFrame(slices.Clip(tune), 0)
	channel := (&wire.ChannelOpen{}).AppendFrame(slices.Clip(open), 1)
	for _, seed := range [][]byte{h[:], start, tune, open, channel, []byte("GET / HTTP/1.0\r\n\r\n")} {
		f.Add(seed)
	}
	r := fuzzServer(f)
	f.Fuzz(func(t *testing.T, data []byte) {
		c := r.connect(t)
		defer c.nc.Close()
		go func() {
			_, _ = c.nc.Write(data)
			_ = c.nc.(*net.TCPConn).CloseWrite()
		}()
		_, err := io.Copy(io.Discard, c.nc)
		var op *net.OpError
		if errors.As(err, &op) && op.Timeout() {
			t.Fatalf("the server hangs: %v", err)
		}
	})
}
