package amqp

import (
	"bytes"
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	wire "github.com/warrenmq/warren/amqp"
	"github.com/warrenmq/warren/broker"
)

// TestAssembly: room is never given beyond its bounds, nobody waits while there is room, and somebody can always go on.
func TestAssembly(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		const room = 1000
		a := newAssembly(room)
		conns := make([]*conn, 4)
		for i := range conns {
			conns[i] = &conn{}
		}
		held, waits := map[*conn][]int64{}, map[*conn]*assemblyWait{}
		settle := func() {
			for c, w := range waits {
				select {
				case <-w.room:
					delete(waits, c)
					if w.err == nil {
						held[c] = append(held[c], w.n)
						continue
					}
					for i, n := range held[c] { // its connection ends
						a.free(c, n, i == len(held[c])-1)
					}
					delete(held, c)
				default:
				}
			}
		}
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			c := conns[rapid.IntRange(0, len(conns)-1).Draw(t, "conn")]
			w, waiting := waits[c]
			switch {
			case waiting && rapid.Bool().Draw(t, "insists"):
				a.insist(w)
			case waiting && rapid.Bool().Draw(t, "leaves"):
				if !a.leave(w) {
					t.Fatal("a wait that has not ended was served")
				}
				delete(waits, c)
			case waiting:
			case len(held[c]) > 0 && rapid.Bool().Draw(t, "ends one"):
				n := held[c][0]
				held[c] = held[c][1:]
				a.free(c, n, len(held[c]) == 0)
			default:
				n := rapid.Int64Range(1, room+200).Draw(t, "bytes")
				if w := a.reserve(c, n); w != nil {
					waits[c] = w
				} else {
					held[c] = append(held[c], n)
				}
			}
			for range conns { // an end may serve another
				settle()
			}
			checkAssembly(t, a, conns, held, waits)
		}
	})
}

func checkAssembly(t *rapid.T, a *assembly, conns []*conn, held map[*conn][]int64, waits map[*conn]*assemblyWait) {
	var used int64
	holders, stuck, messages := 0, 0, 0
	for _, c := range conns {
		for _, n := range held[c] {
			used += n
			messages++
		}
		if len(held[c]) > 0 {
			holders++
			if waits[c] != nil {
				stuck++
			}
		}
	}
	if a.used != used || len(a.holders) != holders || len(a.more)+len(a.first) != len(waits) {
		t.Fatalf("%d bytes of %d, want %d of %d; %d+%d wait, want %d", a.used, len(a.holders), used, holders, len(a.more), len(a.first), len(waits))
	}
	if used > 2*a.max && messages > 1 {
		t.Fatalf("%d bytes of %d are held", used, a.max)
	}
	if holders > 0 && stuck == holders {
		t.Fatal("all that hold room wait")
	}
	if next := a.next(); next != nil && a.fits(next.n) {
		t.Fatal("the next waits although there is room")
	}
}

// begin sends what a client does of a message of size bytes but the rest.
func (c *rawClient) begin(num uint16, size, sent int) {
	c.tb.Helper()
	b := (&wire.BasicPublish{RoutingKey: "q"}).AppendFrame(nil, num)
	b = wire.AppendContentHeader(b, num, 60, nil, uint64(size))
	c.bytes(wire.AppendFrame(b, wire.FrameBody, num, make([]byte, sent)))
}

// TestAssemblyWaits: a connection that begins a large message waits for the room of others' and is served when one of them is complete; what it sends
// in the meantime waits with it.
func TestAssemblyWaits(t *testing.T) {
	t.Parallel()
	r := startServer(t, func(cfg *Config) {
		cfg.MessageBytesMax, cfg.AssemblyBytesMax, cfg.AssemblyBytesNodeMax = 100000, 100000, 100000
	})
	holds, waits := r.open(t), r.open(t)
	holds.channel(1)
	holds.send(1, &wire.QueueDeclare{Queue: "q"})
	want[*wire.QueueDeclareOk](holds, 1)
	waits.channel(1)
	holds.begin(1, 80000, 50000)
	eventually(t, "the first holds room", func() bool { return r.reserved() > 0 })
	waits.begin(1, 80000, 50000)
	waits.bytes(wire.AppendFrame(nil, wire.FrameBody, 1, make([]byte, 30000)))
	eventually(t, "the second waits", func() bool { return r.waiting() == 1 })
	if ready, _ := r.b.counts("q"); ready != 0 {
		t.Errorf("%d messages", ready)
	}
	holds.bytes(wire.AppendFrame(nil, wire.FrameBody, 1, make([]byte, 30000)))
	eventually(t, "both", func() bool { ready, _ := r.b.counts("q"); return ready == 2 })
	eventually(t, "no room is held", func() bool { return r.reserved() == 0 })
	// Who ends while it waits, or holds, leaves nothing.
	holds.begin(1, 80000, 50000)
	eventually(t, "the first holds room", func() bool { return r.reserved() > 0 })
	waits.begin(1, 80000, 50000)
	eventually(t, "the second waits", func() bool { return r.waiting() == 1 })
	r.s.closeWhere("enough", func(i *ConnectionInfo) bool { return i.Peer.String() == waits.nc.LocalAddr().String() })
	if m := want[*wire.ConnectionClose](waits, 0); m.ReplyCode != 320 {
		t.Errorf("%+v", m)
	}
	_ = holds.nc.Close()
	eventually(t, "nothing is left", func() bool { return r.reserved() == 0 && r.waiting() == 0 })
}

// TestAssemblyStalls: a message that its client does not continue keeps others waiting for the patience and no longer, of which an alarm takes nothing.
func TestAssemblyStalls(t *testing.T) {
	t.Parallel()
	r := startServer(t, func(cfg *Config) {
		cfg.MessageBytesMax, cfg.AssemblyBytesMax, cfg.AssemblyBytesNodeMax = 100000, 100000, 100000
		cfg.AssemblyPatience = 300 * time.Millisecond
	})
	stalls, waits := r.open(t), r.open(t)
	stalls.channel(1)
	waits.channel(1)
	waits.send(1, &wire.QueueDeclare{Queue: "q"})
	want[*wire.QueueDeclareOk](waits, 1)
	stalls.begin(1, 80000, 50000)
	eventually(t, "the first holds room", func() bool { return r.reserved() > 0 })
	r.s.SetBlocked("low on memory")
	want[*wire.ConnectionBlocked](stalls, 0)
	headers := wire.Table{}
	headers.Set("h", string(make([]byte, 10000))) // with such headers the room is taken before the body, and so before the alarm stops a new publisher
	p := wire.Properties{}
	p.SetHeaders(headers)
	waits.bytes(wire.AppendContent((&wire.BasicPublish{RoutingKey: "q"}).AppendFrame(nil, 1), 1, 60, p.AppendTo(nil), make([]byte, 80000), 131072))
	want[*wire.ConnectionBlocked](waits, 0)
	eventually(t, "the second waits", func() bool { return r.waiting() == 1 })
	time.Sleep(900 * time.Millisecond) // an alarm may hold for any time
	if r.reserved() == 0 || r.waiting() != 1 {
		t.Errorf("%d bytes are reserved and %d wait under the alarm", r.reserved(), r.waiting())
	}
	r.s.SetBlocked("")
	want[*wire.ConnectionUnblocked](stalls, 0)
	if m := want[*wire.ConnectionClose](stalls, 0); m.ReplyCode != 320 {
		t.Errorf("%+v", m)
	}
	eventually(t, "the other message", func() bool { ready, _ := r.b.counts("q"); return ready == 1 })
}

// TestAssemblyIsShared: whoever waits is served in the end, also while another connection always has more to send.
func TestAssemblyIsShared(t *testing.T) {
	t.Parallel()
	r := startServer(t, func(cfg *Config) {
		cfg.MessageBytesMax, cfg.AssemblyBytesMax, cfg.AssemblyBytesNodeMax = 100000, 100000, 100000
		cfg.AssemblyPatience = 300 * time.Millisecond
	})
	busy, waits := r.open(t), r.open(t)
	waits.channel(1)
	waits.send(1, &wire.QueueDeclare{Queue: "q"})
	want[*wire.QueueDeclareOk](waits, 1)
	for num := range uint16(3) {
		busy.channel(num + 1)
		busy.begin(num+1, 30000, 20000)
	}
	eventually(t, "all room is held", func() bool { return r.reserved() > 90000 })
	waits.begin(1, 80000, 50000)
	waits.bytes(wire.AppendFrame(nil, wire.FrameBody, 1, make([]byte, 30000)))
	deadline := time.Now().Add(30 * time.Second)
	for num := uint16(0); ; num++ { // one ends, and another begins
		b := wire.AppendFrame(nil, wire.FrameBody, num%3+1, make([]byte, 10000))
		b = (&wire.BasicPublish{RoutingKey: "elsewhere"}).AppendFrame(b, num%3+1)
		b = wire.AppendContentHeader(b, num%3+1, 60, nil, 30000)
		busy.bytes(wire.AppendFrame(b, wire.FrameBody, num%3+1, make([]byte, 20000)))
		if ready, _ := r.b.counts("q"); ready > 0 {
			return
		}
		if time.Now().After(deadline) {
			t.Fatal("the other message has not come")
		}
	}
}

func (r *rig) reserved() int64 {
	r.s.assembly.mu.Lock()
	defer r.s.assembly.mu.Unlock()
	return r.s.assembly.used
}

func (r *rig) waiting() int {
	r.s.assembly.mu.Lock()
	defer r.s.assembly.mu.Unlock()
	return len(r.s.assembly.more) + len(r.s.assembly.first)
}

func TestLargeBodies(t *testing.T) {
	r := startServer(t)
	c := r.open(t)
	c.channel(1)
	c.send(1, &wire.QueueDeclare{Queue: "q", NoWait: true}, &wire.BasicConsume{Queue: "q", NoAck: true, NoWait: true})
	for _, size := range []int{0, 1, refBytes - 1, refBytes, 131072 - 8, 131072 - 7, 300000, 3 << 20} {
		body := bytes.Repeat([]byte{byte(size)}, size)
		for i := range body {
			body[i] ^= byte(i >> 8)
		}
		done := make(chan error, 1)
		publish := wire.BasicPublish{RoutingKey: "q"}
		content := wire.AppendContent(publish.AppendFrame(nil, 1), 1, wire.ClassBasic, nil, body, 131072)
		go func() {
			_, err := c.nc.Write(content)
			done <- err
		}()
		m, got := wantContent[*wire.BasicDeliver](c, 1)
		if !bytes.Equal(got, body) {
			t.Errorf("%d bytes: %+v differs", size, m)
		}
		if err := <-done; err != nil {
			t.Fatal(err)
		}
	}
	// A body in odd pieces, with another channel's message in between.
	c.channel(2)
	frames := (&wire.BasicPublish{RoutingKey: "q"}).AppendFrame(nil, 1)
	frames = append(frames, header(60, 6)...)
	for i, piece := range []string{"", "a", "bcd", "", "e", "f"} {
		frames = wire.AppendFrame(frames, wire.FrameBody, 1, []byte(piece))
		other := wire.BasicPublish{RoutingKey: "q"}
		frames = other.AppendFrame(frames, 2)
		frames = wire.AppendContent(frames, 2, 60, nil, fmt.Appendf(nil, "other %d", i), 131072)
	}
	c.bytes(frames)
	seen := map[string]bool{}
	for range 7 {
		_, got := wantContent[*wire.BasicDeliver](c, 1)
		seen[string(got)] = true
	}
	if !seen["abcdef"] || len(seen) != 7 {
		t.Errorf("got %v", seen)
	}
}

// Headers count as bodies do, and a message that has begun makes a publisher, whom alarms stop.
func TestAssemblyIsBounded(t *testing.T) {
	t.Parallel()
	headers := wire.Table{}
	headers.Set("h", string(make([]byte, 100000)))
	p := wire.Properties{}
	p.SetHeaders(headers)
	for name, tc := range map[string]struct {
		props wire.RawProperties
		body  []byte
	}{"bodies": {nil, make([]byte, 100000)}, "headers": {p.AppendTo(nil), nil}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := startServer(t, func(cfg *Config) { cfg.MessageBytesMax, cfg.AssemblyBytesMax = 200000, 350000 })
			c := r.open(t)
			begin := func(num uint16) {
				b := (&wire.BasicPublish{}).AppendFrame(nil, num)
				b = wire.AppendContentHeader(b, num, 60, tc.props, 200000)
				if len(tc.body) > 0 {
					b = wire.AppendFrame(b, wire.FrameBody, num, tc.body)
				}
				c.bytes(b)
			}
			for num := range uint16(2) {
				c.channel(num + 1)
				begin(num + 1)
			}
			r.s.SetBlocked("low on memory")
			want[*wire.ConnectionBlocked](c, 0)
			r.s.SetBlocked("")
			want[*wire.ConnectionUnblocked](c, 0)
			for num := range uint16(2) {
				c.send(num+3, &wire.ChannelOpen{})
				want[*wire.ChannelOpenOk](c, num+3)
				begin(num + 3)
			}
			if m := want[*wire.ConnectionClose](c, 0); m.ReplyCode != 506 {
				t.Errorf("%+v", m)
			}
		})
	}
}

// What was counted for a message is forgotten with it, whether it is whole or its channel ends.
func TestAssemblyIsForgotten(t *testing.T) {
	t.Parallel()
	r := startServer(t, func(cfg *Config) {
		cfg.MessageBytesMax, cfg.AssemblyBytesMax, cfg.AssemblyBytesNodeMax = 50000, 70000, 70000
	})
	c := r.open(t)
	headers := wire.Table{}
	headers.Set("h", string(make([]byte, 20000)))
	p := wire.Properties{}
	p.SetHeaders(headers)
	c.channel(1)
	c.send(1, &wire.QueueDeclare{Queue: "q"})
	want[*wire.QueueDeclareOk](c, 1)
	for i := range 20 {
		b := (&wire.BasicPublish{RoutingKey: "q"}).AppendFrame(nil, 1)
		b = wire.AppendContent(b, 1, 60, p.AppendTo(nil), make([]byte, 40000), []uint32{131072, 30000}[i%2])
		if i%4 > 1 {
			c.channel(2)
			b = (&wire.BasicPublish{}).AppendFrame(b, 2)
			b = wire.AppendContentHeader(b, 2, 60, p.AppendTo(nil), 40000)
			b = wire.AppendFrame(b, wire.FrameBody, 2, make([]byte, 10000))
		}
		c.bytes(b)
		if i%4 > 1 {
			eventually(t, "publish", func() bool { ready, _ := r.b.counts("q"); return ready == i+1 })
			r.fail(2)
			want[*wire.ChannelClose](c, 2)
			c.send(2, &wire.ChannelCloseOk{})
		}
	}
	eventually(t, "publish", func() bool { ready, _ := r.b.counts("q"); return ready == 20 })
}

// fail ends a channel of the only connection as the broker does.
func (r *rig) fail(num uint16) {
	c := r.s.connections()[0]
	c.channelsMu.Lock()
	ch := c.channels[num]
	c.channelsMu.Unlock()
	ch.Failed(broker.Errorf(broker.PreconditionFailed, "too late"))
}
