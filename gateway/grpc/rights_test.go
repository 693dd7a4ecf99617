package grpc

import (
	"bytes"
	"context"
	"log/slog"
	"net"
	"strings"
	"testing"
)

// TestFaultsAreAudited: a call that a fault of the node ends is in the log as one that failed.
func TestFaultsAreAudited(t *testing.T) {
	out := new(bytes.Buffer)
	s := &Server{log: slog.New(slog.NewTextHandler(out, nil))}
	ctx := context.WithValue(t.Context(), callerKey{}, caller{peer: new(net.TCPAddr)})
	func() {
		defer func() {
			if recover() == nil {
				t.Error("the fault is hidden")
			}
		}()
		_, _ = audited(ctx, s, "/Change", nil, func() (int, error) { panic("a fault") })
	}()
	if line := out.String(); !strings.Contains(line, "path=/Change result=failed") || !strings.Contains(line, errFault.Error()) {
		t.Errorf("the log has %q", line)
	}
}
