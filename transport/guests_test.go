package transport

import (
	"context"
	"net"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// alive counts the connections that the other end has not closed.
func alive(conns []net.Conn) (n int) {
	for _, c := range conns {
		_ = c.SetReadDeadline(time.Now().Add(time.Millisecond)) // a closed one says so
		var b [64]byte
		var err error
		for err == nil {
			_, err = c.Read(b[:])
		}
		if e, ok := err.(net.Error); ok && e.Timeout() {
			n++
		}
	}
	return n
}

// TestStrangersAreFew: of the connections on which no node shows itself the oldest are closed, those of nodes stay, and new nodes get through.
func TestStrangersAreFew(t *testing.T) {
	const most, strangers = 8, 40
	d := &directory{}
	few := func(c *Config) {
		c.GuestsMax = most
		c.SilenceMax, c.DialTimeout = time.Minute, time.Minute
	}
	a, b := startMesh(t, d, "a/1", few), startMesh(t, d, "b/1", few)
	a.SetPeers([]NodeID{"b/1"})
	b.SetPeers([]NodeID{"a/1"})
	untilUp(t, a, "b/1")
	untilUp(t, b, "a/1")
	addr, _ := b.cfg.Resolve("b/1")
	var held []net.Conn
	open := func(first string) {
		c, err := net.Dial("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		_, _ = c.Write([]byte(first)) // it may be closed already
		held = append(held, c)
	}
	for range strangers {
		open("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00")
		open("")
	}
	until(t, "the oldest are closed", func() bool { return alive(held) <= most })
	if n := alive(held[len(held)-2:]); n != 2 {
		t.Errorf("of the two newest strangers %d are connected", n)
	}
	c := startMesh(t, d, "c/1", few)
	c.SetPeers([]NodeID{"b/1"})
	b.SetPeers([]NodeID{"a/1", "c/1"})
	untilUp(t, c, "b/1")
	for range strangers {
		open("")
	}
	until(t, "the oldest are closed", func() bool { return alive(held) <= most })
	if s := a.Stats(); s.LinksLost != 0 || !a.Peer("b/1").Up || !c.Peer("b/1").Up {
		t.Errorf("strangers have cost links: %+v", s)
	}
	if b.Stats().HellosRefused == 0 {
		t.Error("closed strangers are not counted")
	}
}

// TestStrangersStreamsAreFew: who opens very many streams on one connection, and says nothing on them, keeps no node from linking.
func TestStrangersStreamsAreFew(t *testing.T) {
	d := &directory{}
	calm := func(c *Config) { c.DialTimeout = 20 * time.Second }
	b := startMesh(t, d, "b/1", calm)
	addr, _ := b.cfg.Resolve("b/1")
	stranger := startMesh(t, &directory{}, "s/1", nil)
	conn, err := stranger.open(addr)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	var wg sync.WaitGroup
	defer wg.Wait()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	for range 2 * greetingsMax * guestsMax / streamsMax {
		wg.Go(func() {
			for ctx.Err() == nil {
				s, err := conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}, linkMethod)
				if err == nil {
					err = s.RecvMsg(new(rawMessage)) // until the node has enough of it
				}
				if err != nil {
					time.Sleep(time.Millisecond)
				}
			}
		})
	}
	until(t, "its streams are taken", func() bool { return len(b.greetings) > 0 })
	time.Sleep(100 * time.Millisecond) // for the rest of them
	a := startMesh(t, d, "a/1", calm)
	a.SetPeers([]NodeID{"b/1"})
	for began := time.Now(); !a.Peer("b/1").Up; time.Sleep(time.Millisecond) {
		if time.Since(began) > 10*time.Second {
			t.Fatalf("a node is not linked: %v", a.Peer("b/1").Err)
		}
	}
}

// TestSilentCallsEnd: who begins a call by address and says nothing, or sends a part of it, is not waited for.
func TestSilentCallsEnd(t *testing.T) {
	b := startMesh(t, &directory{}, "b/1", func(c *Config) { c.DialTimeout = 100 * time.Millisecond })
	stranger := startMesh(t, &directory{}, "s/1", nil)
	conn, err := stranger.open(b.cfg.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	s, err := conn.NewStream(withTimeout(t, 30*time.Second), &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}, callMethod)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.RecvMsg(new(rawMessage)); status.Code(err) != codes.DeadlineExceeded || status.Convert(err).Message() != "no call" {
		t.Errorf("a call of nothing ended with %v", err)
	}
}
