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
