package transport

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/warrenmq/warren/dirty"
)

func TestCallReachesHandlerAndErrorsKeepTheirCode(t *testing.T) {
	a, b := pair(t, nil)
	b.HandleCall(7, func(_ context.Context, from NodeID, req []byte) ([]byte, error) {
		if string(req) == "no" {
			return nil, fmt.Errorf("wrapped: %w", &RemoteError{Code: 4711, Text: "refused by test"})
		}
		return append([]byte(from+":"), req...), nil
	})
	a.HandleCall(7, func(context.Context, NodeID, []byte) ([]byte, error) { return []byte("local"), nil })
	ctx := withTimeout(t, 30*time.Second)
	got, err := a.Call(ctx, "b/1", 7, []byte("hi"))
	if err != nil || string(got) != "a/1:hi" {
		t.Fatalf("Call = %q, %v", got, err)
	}
	if got, err := a.Call(ctx, "a/1", 7, nil); err != nil || string(got) != "local" {
		t.Fatalf("local Call = %q, %v", got, err)
	}
	_, err = a.Call(ctx, "b/1", 7, []byte("no"))
	if re, ok := errors.AsType[*RemoteError](err); !ok || re.Code != 4711 || re.Text != "refused by test" {
		t.Fatalf("Call error = %#v", err)
	}
	_, err = a.Call(ctx, "b/1", 8, nil)
	if re, ok := errors.AsType[*RemoteError](err); !ok || re.Code != CodeUnknownMethod || !strings.Contains(re.Text, "node b/1 does not answer that yet: it starts") {
		t.Fatalf("unknown method = %#v", err)
	}
	big := bytes.Repeat([]byte("x"), 3<<20)
	if got, err := a.Call(ctx, "b/1", 7, big); err != nil || len(got) != len(big)+4 {
		t.Fatalf("big Call = %d bytes, %v", len(got), err)
	}
}

func TestCallEndsWithItsContext(t *testing.T) {
	a, b := pair(t, nil)
	ended := make(chan error, 10)
	b.HandleCall(1, func(ctx context.Context, _ NodeID, _ []byte) ([]byte, error) {
		<-ctx.Done()
		ended <- ctx.Err()
		return nil, ctx.Err()
	})
	for limit := 50 * time.Millisecond; ; limit *= 4 { // a call of a starved process may end before it is sent
		_, err := a.Call(withTimeout(t, limit), "b/1", 1, nil)
		if !errors.Is(err, context.DeadlineExceeded) {
			if re, ok := errors.AsType[*RemoteError](err); !ok || re.Code != CodeDeadline {
				t.Fatalf("Call = %v, want deadline exceeded", err)
			}
		}
		select {
		case err := <-ended:
			if !errors.Is(err, context.DeadlineExceeded) {
				t.Fatalf("handler's context ended with %v, want the caller's deadline", err)
			}
			return
		case <-time.After(4 * limit):
			if limit > 30*time.Second {
				t.Fatal("the handler's context does not end")
			}
		}
	}
}

func TestCallToDeadPeerFailsAtOnce(t *testing.T) {
	d := &directory{}
	a := startMesh(t, d, "a/1", nil)
	l := listen(t)
	d.set("", "b/1", l.Addr().String())
	l.Close()
	a.SetPeers([]NodeID{"b/1"})
	until(t, "the dial is refused", func() bool { return a.Peer("b/1").Refused })
	start := time.Now()
	_, err := a.Call(withTimeout(t, 30*time.Second), "b/1", 1, nil)
	if !errors.Is(err, ErrPeerDown) || time.Since(start) > 10*time.Second {
		t.Fatalf("Call = %v after %v, want ErrPeerDown at once", err, time.Since(start))
	}
	if err := a.Send("b/1", 1, nil); !errors.Is(err, ErrPeerDown) {
		t.Fatalf("Send = %v, want ErrPeerDown", err)
	}
	if _, err := a.Call(withTimeout(t, 30*time.Second), "nobody/0", 1, nil); !errors.Is(err, ErrUnresolved) {
		t.Fatalf("Call to an unknown node = %v, want ErrUnresolved", err)
	}
}

func TestMessagesKeepTheirOrder(t *testing.T) {
	a, b := pair(t, nil)
	const n = 20000
	for _, to := range []*Mesh{b, a} {
		next, done := 0, make(chan struct{})
		to.Handle(3, func(from NodeID, p []byte) {
			if got := int(binary.BigEndian.Uint32(p)); got != next {
				t.Errorf("message %d arrived, want %d", got, next)
			}
			if next++; next == n {
				close(done)
			}
		})
		for i := range n {
			p := binary.BigEndian.AppendUint32(make([]byte, 0, 512), uint32(i))
			for {
				err := a.Send(to.cfg.Local, 3, p[:4+i%500])
				if err == nil {
					break
				}
				if !errors.Is(err, ErrBacklog) {
					t.Fatal(err)
				}
				time.Sleep(100 * time.Microsecond)
			}
		}
		select {
		case <-done:
		case <-time.After(time.Minute):
			t.Fatalf("messages to %s are missing, the link was lost %d times", to.cfg.Local, a.Stats().LinksLost)
		}
	}
}

func TestMessagesAreNeverRepeatedOrReorderedOverReconnects(t *testing.T) {
	d := &directory{}
	a, b := startMesh(t, d, "a/1", nil), startMesh(t, d, "b/1", nil)
	addr, _ := d.resolver("")("b/1")
	p := startProxy(t, addr)
	d.set("a/1", "b/1", p.addr())
	var last atomic.Int64
	b.Handle(1, func(_ NodeID, payload []byte) {
		n := int64(binary.BigEndian.Uint64(payload))
		if prev := last.Swap(n); n <= prev {
			t.Errorf("message %d after %d", n, prev)
		}
	})
	a.SetPeers([]NodeID{"b/1"})
	sent := int64(0)
	send := func() error {
		sent++
		payload := binary.BigEndian.AppendUint64(make([]byte, 0, 1024), uint64(sent))
		return a.Send("b/1", 1, payload[:1024])
	}
	for range 8 {
		untilUp(t, a, "b/1")
		mark := last.Load()
		until(t, "messages flow", func() bool {
			for range 200 {
				send()
			}
			return last.Load() > mark
		})
		for range 500 {
			send()
		}
		lost := a.Stats().LinksLost
		p.cut(false)
		until(t, "the loss is seen", func() bool { return a.Stats().LinksLost > lost })
	}
	untilUp(t, a, "b/1")
	until(t, "the last message is taken", func() bool { return send() == nil })
	until(t, "the last message arrives", func() bool { return last.Load() == sent })
}

func TestBacklogIsBounded(t *testing.T) {
	a, b := pair(t, func(c *Config) { c.QueueBytesMax, c.WindowBytes = 256<<10, 64<<10 })
	hold := make(chan struct{})
	var got atomic.Int64
	b.Handle(1, func(NodeID, []byte) { <-hold; got.Add(1) })
	var once sync.Once
	free := func() { once.Do(func() { close(hold) }) }
	defer free()
	accepted := int64(0)
	until(t, "the backlog is full", func() bool {
		err := a.Send("b/1", 1, make([]byte, 16<<10))
		if err == nil {
			accepted++
		}
		return errors.Is(err, ErrBacklog)
	})
	if accepted*16 > 4096 {
		t.Fatalf("%d KiB accepted, want a bound", accepted*16)
	}
	// Calls and pings pass a full application queue.
	b.HandleCall(1, func(context.Context, NodeID, []byte) ([]byte, error) { return nil, nil })
	if _, err := a.Call(withTimeout(t, 30*time.Second), "b/1", 1, nil); err != nil {
		t.Fatalf("call beside a full queue: %v", err)
	}
	before := a.Peer("b/1").LastAnswered
	until(t, "pings are answered", func() bool { return a.Peer("b/1").LastAnswered.After(before) })
	free()
	until(t, "everything accepted is delivered", func() bool { return got.Load() == accepted })
}

// TestLargeFramesLetOthersPass sends frames far beyond message, window and queue
// over a slow link; a call made behind them is answered before them.
func TestLargeFramesLetOthersPass(t *testing.T) {
	d := &directory{}
	change := func(c *Config) {
		c.SilenceMax, c.QueueBytesMax, c.WindowBytes = 20*time.Second, 4<<20, 1<<20
	}
	a, b := startMesh(t, d, "a/1", change), startMesh(t, d, "b/1", change)
	p := startProxy(t, b.cfg.Listener.Addr().String())
	p.pace.Store(int64(time.Millisecond)) // for each 32 KiB
	d.set("a/1", "b/1", p.addr())
	a.SetPeers([]NodeID{"b/1"})
	untilUp(t, a, "b/1")
	want := make([]byte, 9<<20)
	for i := range want {
		want[i] = byte(i >> 10)
	}
	got := make(chan []byte, 2)
	b.Handle(1, func(_ NodeID, p []byte) { got <- p })
	b.HandleCall(1, func(_ context.Context, _ NodeID, req []byte) ([]byte, error) { return req, nil })
	b.HandleCall(2, func(context.Context, NodeID, []byte) ([]byte, error) { return nil, nil })
	if err := a.Send("b/1", 1, want); err != nil {
		t.Fatal(err)
	}
	if err := a.Send("b/1", 1, []byte("after")); err != nil && !errors.Is(err, ErrBacklog) {
		t.Fatal(err)
	}
	ctx := withTimeout(t, 30*time.Second)
	start := time.Now()
	if _, err := a.Call(ctx, "b/1", 2, nil); err != nil {
		t.Fatal(err)
	}
	small := time.Since(start)
	if p := <-got; !bytes.Equal(p, want) {
		t.Fatalf("%d bytes arrived", len(p))
	}
	if large := time.Since(start); small > large {
		t.Fatalf("a call took %v beside a message that took %v", small, large)
	}
	p.pace.Store(0)
	if resp, err := a.Call(ctx, "b/1", 1, want); err != nil || !bytes.Equal(resp, want) {
		t.Fatalf("large call: %d bytes, %v", len(resp), err)
	}
	if s := a.Stats(); s.LinksLost != 0 {
		t.Fatal("the link was lost")
	}
	if err := a.Send("b/1", 1, make([]byte, 200<<20)); !errors.Is(err, ErrTooLarge) {
		t.Fatalf("beyond the limit: %v", err)
	}
}

func TestForeignClustersAreRefusedBothWays(t *testing.T) {
	d := &directory{}
	of := func(id NodeID, cluster string) *Mesh {
		return startMesh(t, d, id, func(c *Config) {
			c.ClusterID = func() string { return cluster }
			c.DialTimeout = time.Minute // a handshake that is late is no refusal
		})
	}
	a, b, virgin := of("a/1", "c"), of("b/1", "other"), of("v/1", "")
	all := []NodeID{"a/1", "b/1", "v/1"}
	for _, m := range []*Mesh{a, b, virgin} {
		m.SetPeers(all)
	}
	refusal := func(m *Mesh, to NodeID, code uint16) {
		t.Helper()
		until(t, "a refusal", func() bool { _, ok := errors.AsType[*RemoteError](m.Peer(to).Err); return ok })
		_, err := m.Call(withTimeout(t, 30*time.Second), to, 1, nil)
		if re, ok := errors.AsType[*RemoteError](err); !ok || re.Code != code {
			t.Errorf("%s to %s: %v, want code %d", m.cfg.Local, to, err, code)
		}
		if m.Peer(to).Up || m.Peer(to).Refused {
			t.Errorf("%s to %s: %+v", m.cfg.Local, to, m.Peer(to))
		}
	}
	refusal(a, "b/1", CodeCluster)
	refusal(b, "a/1", CodeCluster)
	refusal(a, "v/1", CodeVirgin)
	if _, err := virgin.Call(withTimeout(t, 30*time.Second), "a/1", 1, nil); !errors.Is(err, ErrVirgin) {
		t.Errorf("virgin's call: %v, want ErrVirgin", err)
	}
	for _, m := range []*Mesh{a, b, virgin} {
		m.HandleCall(1, func(_ context.Context, from NodeID, _ []byte) ([]byte, error) { return []byte(from), nil })
	}
	byAddr := func(from, to *Mesh) error {
		got, err := from.CallAddr(withTimeout(t, 30*time.Second), to.cfg.Listener.Addr().String(), 1, nil)
		if err == nil && string(got) != string(from.cfg.Local) {
			t.Errorf("answer %q", got)
		}
		return err
	}
	for _, c := range [][2]*Mesh{{a, virgin}, {virgin, a}, {virgin, virgin}, {a, a}} {
		if err := byAddr(c[0], c[1]); err != nil {
			t.Errorf("%s to %s by address: %v", c[0].cfg.Local, c[1].cfg.Local, err)
		}
	}
	if re, ok := errors.AsType[*RemoteError](byAddr(a, b)); !ok || re.Code != CodeCluster {
		t.Errorf("foreign call by address was not refused")
	}
}

func TestOpenCallLimitsStrangers(t *testing.T) {
	d := &directory{}
	a := startMesh(t, d, "a/1", func(c *Config) { c.OpenCall = func(m uint8) bool { return m == 9 } })
	v := startMesh(t, d, "v/1", func(c *Config) { c.ClusterID = func() string { return "" } })
	for _, method := range []uint8{8, 9} {
		a.HandleCall(method, func(context.Context, NodeID, []byte) ([]byte, error) { return nil, nil })
	}
	ctx, addr := withTimeout(t, 30*time.Second), a.cfg.Listener.Addr().String()
	if _, err := v.CallAddr(ctx, addr, 9, nil); err != nil {
		t.Errorf("open method: %v", err)
	}
	if re, ok := errors.AsType[*RemoteError](func() error { _, err := v.CallAddr(ctx, addr, 8, nil); return err }()); !ok || re.Code != CodeNotOpen {
		t.Errorf("closed method was not refused")
	}
}

func TestAnotherIncarnationIsRefused(t *testing.T) {
	d := &directory{}
	a := startMesh(t, d, "a/1", nil)
	b := startMesh(t, d, "b/2", nil)
	d.set("", "b/1", b.cfg.Listener.Addr().String())
	a.SetPeers([]NodeID{"b/1"})
	until(t, "a refusal", func() bool {
		re, ok := errors.AsType[*RemoteError](a.Peer("b/1").Err)
		return ok && re.Code == CodeTarget
	})
}

func TestGarbageHarmsNobody(t *testing.T) {
	a, b := pair(t, nil)
	b.HandleCall(1, func(context.Context, NodeID, []byte) ([]byte, error) { return nil, nil })
	for _, garbage := range [][]byte{[]byte("GET / HTTP/1.0\r\n\r\n"), bytes.Repeat([]byte{0xff}, 70000), []byte("AMQP\x00\x00\x09\x01"), nil} {
		c, err := net.Dial("tcp", b.cfg.Listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		c.Write(garbage)
		if _, err := a.Call(withTimeout(t, 30*time.Second), "b/1", 1, nil); err != nil {
			t.Errorf("call beside garbage: %v", err)
		}
		c.Close()
	}
	if s := a.Stats(); s.LinksLost != 0 {
		t.Errorf("%d links lost", s.LinksLost)
	}
}

func TestLivenessReports(t *testing.T) {
	t.Parallel()
	d := &directory{}
	a, b := startMesh(t, d, "a/1", func(c *Config) { c.SilenceMax = 3 * time.Second }), startMesh(t, d, "b/1", nil)
	addr, _ := d.resolver("")("b/1")
	p := startProxy(t, addr)
	d.set("a/1", "b/1", p.addr())
	changes := make(chan PeerStatus, 100)
	a.OnPeerChange(func(s PeerStatus) { changes <- s })
	a.SetPeers([]NodeID{"b/1"})
	next := func(what string, ok func(PeerStatus) bool) {
		t.Helper()
		select {
		case s := <-changes:
			if !ok(s) {
				t.Fatalf("%s: %+v", what, s)
			}
		case <-time.After(30 * time.Second):
			t.Fatalf("no report: %s", what)
		}
	}
	next("up", func(s PeerStatus) bool { return s.Up && s.Node == "b/1" && s.Process == b.process })
	until(t, "a ping is answered", func() bool { return a.Peer("b/1").RTT > 0 })
	p.frozen.Store(true)
	next("down by silence", func(s PeerStatus) bool { return !s.Up && !s.Refused && errors.Is(s.Err, errSilent) })
	p.cut(false)
	next("up again", func(s PeerStatus) bool { return s.Up })
	d.set("a/1", "b/1", addr)
	p.cut(true)
	next("down", func(s PeerStatus) bool { return !s.Up })
	next("up directly", func(s PeerStatus) bool { return s.Up })
	b.Close()
	next("down by close", func(s PeerStatus) bool { return !s.Up })
	next("refused", func(s PeerStatus) bool { return s.Refused && !s.Up })
}

func TestClocksAreCompared(t *testing.T) {
	d := &directory{}
	a, b := startMesh(t, d, "a/1", nil), startMesh(t, d, "b/1", nil)
	b.wall.Add(time.Hour.Milliseconds())
	if a.Peer("b/1").ClockKnown {
		t.Error("known before the first ping")
	}
	a.SetPeers([]NodeID{"b/1"})
	b.SetPeers([]NodeID{"a/1"})
	until(t, "pings are answered", func() bool { return a.Peer("b/1").ClockKnown && b.Peer("a/1").ClockKnown })
	if off := a.Peer("b/1").ClockOffset; (off - time.Hour).Abs() > 10*time.Second {
		t.Errorf("b is ahead by %v, want an hour", off)
	}
	if off := b.Peer("a/1").ClockOffset; (off + time.Hour).Abs() > 10*time.Second {
		t.Errorf("a is ahead by %v, want an hour less", off)
	}
}

func TestUnnamedPeersAreDroppedWhenIdle(t *testing.T) {
	d := &directory{}
	a, b := startMesh(t, d, "a/1", func(c *Config) { c.IdleMax = 100 * time.Millisecond }), startMesh(t, d, "b/1", nil)
	peers := func() int { a.mu.Lock(); defer a.mu.Unlock(); return len(a.peers) }
	b.HandleCall(1, func(context.Context, NodeID, []byte) ([]byte, error) {
		if peers() != 1 {
			t.Error("no peer during a call")
		}
		return []byte("x"), nil
	})
	if _, err := a.Call(withTimeout(t, 30*time.Second), "b/1", 1, nil); err != nil {
		t.Fatal(err)
	}
	until(t, "the idle peer is dropped", func() bool { return peers() == 0 })
	if _, err := a.Call(withTimeout(t, 30*time.Second), "b/1", 1, nil); err != nil {
		t.Fatal(err)
	}
}

func TestCloseEndsWaitingCalls(t *testing.T) {
	a, b := pair(t, nil)
	entered := make(chan struct{})
	b.HandleCall(1, func(ctx context.Context, _ NodeID, _ []byte) ([]byte, error) {
		close(entered)
		<-ctx.Done()
		return nil, ctx.Err()
	})
	failed := make(chan error, 1)
	go func() { _, err := a.Call(context.Background(), "b/1", 1, nil); failed <- err }()
	<-entered
	a.Close()
	if err := <-failed; !errors.Is(err, ErrPeerDown) && !errors.Is(err, ErrClosed) {
		t.Fatalf("Call = %v", err)
	}
	if err := a.Send("b/1", 1, nil); !errors.Is(err, ErrClosed) {
		t.Fatalf("Send after Close = %v", err)
	}
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}
}

func TestConfigReportsEveryProblem(t *testing.T) {
	_, err := New(Config{PingInterval: -1, Workers: -1})
	for _, want := range []string{"Local", "Listener", "ClusterID", "Resolve", "PingInterval", "Workers"} {
		if err == nil || !bytes.Contains([]byte(err.Error()), []byte(want)) {
			t.Errorf("error %q does not name %s", err, want)
		}
	}
}

// The memory of payloads is used again when they are written: none may be when it is read still.
func TestLentPayloadsArriveWhole(t *testing.T) {
	x, y := pair(t, nil)
	const messages = 400
	sizes := []int{1, 3 << 10, 9 << 10, 20 << 10, 66 << 10, 130 << 10, 260 << 10, 900 << 10, 1200 << 10}
	got := make(chan error, messages)
	n := 0
	y.Handle(1, func(_ NodeID, p []byte) {
		var err error
		if size := sizes[n%len(sizes)]; len(p) != size || !bytes.Equal(p, bytes.Repeat([]byte{byte(n)}, size)) {
			err = fmt.Errorf("message %d of %d bytes is not what was sent", n, len(p))
		}
		n++
		got <- err
	})
	for i := range messages {
		p := dirty.Lend(sizes[i%len(sizes)])
		copy(p, bytes.Repeat([]byte{byte(i)}, len(p)))
		for err := x.Send("b/1", 1, p); err != nil; err = x.Send("b/1", 1, p) {
			if !errors.Is(err, ErrBacklog) {
				t.Fatal(err)
			}
			time.Sleep(time.Millisecond)
		}
	}
	late := time.After(time.Minute)
	for i := range messages {
		select {
		case err := <-got:
			if err != nil {
				t.Error(err)
			}
		case <-late:
			t.Fatalf("%d of %d messages came, the link was lost %d times", i, messages, x.Stats().LinksLost)
		}
	}
}
