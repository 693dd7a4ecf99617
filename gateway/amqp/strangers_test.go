package amqp

import (
	"io"
	"net"
	"testing"
	"time"

	wire "github.com/warrenmq/warren/amqp"
)

// TestStrangersLogIsPaced: what connections without a login have the node log is bounded, and what is left out is counted.
func TestStrangersLogIsPaced(t *testing.T) {
	var s strangers
	now, logged, told := time.Now(), 0, uint64(0)
	const lines, seconds = 10_000, 5
	for range seconds {
		for range lines {
			if missed, ok := s.may(now); ok {
				logged++
				told += missed
			}
			now = now.Add(time.Second / lines)
		}
	}
	if most := strangerLines + seconds*int(time.Second/strangerEvery); logged < most-1 || logged > most+1 {
		t.Errorf("%d lines were logged, want %d", logged, most)
	}
	now = now.Add(time.Minute)
	missed, ok := s.may(now)
	if told += missed; !ok || told+uint64(logged) != seconds*lines {
		t.Errorf("%d lines were logged and %d told of, of %d (%t)", logged, told, seconds*lines, ok)
	}
	for i := range strangerLines - 1 {
		if missed, ok := s.may(now); !ok || missed != 0 {
			t.Fatalf("after a quiet minute line %d is not logged (%d missed)", i+2, missed)
		}
	}
}

// TestStrangersMakeRoom: where there are too many connections the oldest that has not said who it is goes for the next one; clients stay, those that are
// logging in, too.
func TestStrangersMakeRoom(t *testing.T) {
	t.Parallel()
	r := startServer(t, func(cfg *Config) { cfg.ConnectionsMax, cfg.HandshakeTimeout = 3, time.Minute })
	open, slow := r.open(t), r.connect(t)
	slow.login(allCapabilities())
	stranger := r.connect(t)
	eventually(t, "another client is greeted", func() bool {
		nc, err := net.Dial("tcp", r.addr)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = nc.Close() })
		_ = nc.SetReadDeadline(time.Now().Add(time.Minute))
		_, _ = nc.Write([]byte("AMQP\x00\x00\x09\x01")) // it may be closed already
		n, _ := nc.Read(make([]byte, 1))
		return n == 1
	})
	if n, err := io.Copy(io.Discard, stranger.nc); n != 0 {
		t.Errorf("who said nothing got %d bytes, %v", n, err)
	}
	slow.send(0, &wire.ConnectionTuneOk{ChannelMax: 2047, FrameMax: 131072})
	slow.send(0, &wire.ConnectionOpen{VirtualHost: "/"})
	want[*wire.ConnectionOpenOk](slow, 0)
	slow.alive(1)
	open.alive(1)
	if s := r.s.Stats(); s.Connections != 3 || s.Refused == 0 {
		t.Errorf("%d connections, %d refused", s.Connections, s.Refused)
	}
}
