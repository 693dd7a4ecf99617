package grpc

import (
	"context"
	"errors"
	"net"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health/grpc_health_v1"
)

// TestNewcomersMakeRoom: connections on which nobody logs in keep no client out, and go for the next ones.
func TestNewcomersMakeRoom(t *testing.T) {
	s, addr := served(t, func(*patience) {})
	var held []net.Conn
	for range s.cfg.ConnectionsMax {
		nc, err := net.Dial("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = nc.Close() })
		if _, err := nc.Write([]byte("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00")); err != nil {
			t.Fatal(err)
		}
		held = append(held, nc)
	}
	ctx, cancel := context.WithTimeout(t.Context(), limitsWait)
	defer cancel()
	for range 3 {
		conn, err := grpc.NewClient(addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close() })
		if _, err := grpc_health_v1.NewHealthClient(conn).Check(ctx, &grpc_health_v1.HealthCheckRequest{}, grpc.WaitForReady(true)); err != nil {
			t.Fatal(err)
		}
	}
	_ = held[0].SetReadDeadline(time.Now().Add(limitsWait))
	var err error
	for b := make([]byte, 1<<10); err == nil; {
		_, err = held[0].Read(b)
	}
	if timeout, ok := errors.AsType[net.Error](err); ok && timeout.Timeout() {
		t.Error("the oldest stranger is still connected")
	}
}

// TestWhoLogsInStays: a connection with a login does not make room, not while it is looked at either; one whose login was refused does.
func TestWhoLogsInStays(t *testing.T) {
	l := newNewcomers(nil, 2)
	now := time.Now()
	enter := func(want *newcomer, wantRoom bool) *newcomer {
		t.Helper()
		c := &newcomer{of: l}
		old, freed, _ := l.enter(c, now)
		if old != want || (freed == nil) != wantRoom {
			t.Fatalf("%p makes room, want %p; there is room %t, want %t", old, want, freed == nil, wantRoom)
		}
		return c
	}
	first, second := enter(nil, true), enter(nil, true)
	enter(nil, false) // nobody has had a second yet
	first.logsIn()
	now = now.Add(newcomerMin)
	third := enter(second, true)
	third.logsIn()
	now = now.Add(newcomerMin)
	enter(nil, false)
	first.refused()
	enter(first, true)
	second.refused() // it has gone, and does not come back
	if l.open != 2 || l.list.Len() != 1 {
		t.Errorf("%d are open, of which %d have no login", l.open, l.list.Len())
	}
}
