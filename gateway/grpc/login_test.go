package grpc

import (
	"context"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"net"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"

	"github.com/warrenmq/warren/broker"
)

// logins answers each password as it says itself.
type logins struct{}

func (logins) Password(_ context.Context, user, password string, _ net.Addr) (broker.User, time.Duration, error) {
	switch password {
	case "right":
		return broker.User{Name: user}, 0, nil
	case "held up":
		return broker.User{}, time.Minute, broker.Errorf(broker.AccessRefused, "refused")
	case "busy":
		return broker.User{}, 0, broker.Errorf(broker.Unavailable, "too many logins at a time")
	}
	return broker.User{}, 0, broker.Errorf(broker.AccessRefused, "refused")
}

func (logins) Certificate(context.Context, *x509.Certificate, net.Addr) (broker.User, error) {
	return broker.User{}, errors.New("no certificate is asked for here")
}

func (logins) Token(_ context.Context, token string, _ net.Addr) (broker.User, error) {
	if token != "good.token" {
		return broker.User{}, broker.Errorf(broker.AccessRefused, "refused")
	}
	return broker.User{Name: "u"}, nil
}

// TestTokens: a bearer token names the user; anything else is refused.
func TestTokens(t *testing.T) {
	s := New(Config{Logins: logins{}}, nil)
	for text, want := range map[string]codes.Code{
		"Bearer good.token": codes.OK, "bearer  good.token": codes.OK, "Bearer bad.token": codes.Unauthenticated, "Bearer": codes.Unauthenticated, "Digest x": codes.Unauthenticated,
	} {
		ctx := peer.NewContext(t.Context(), &peer.Peer{Addr: &net.TCPAddr{}})
		in, err := s.letIn(metadata.NewIncomingContext(ctx, metadata.Pairs("authorization", text)))
		got := codes.OK
		if err != nil {
			got = refusalOf(err).code
		}
		if got != want || err == nil && (callerOf(in).user.Name != "u" || callerOf(in).mechanism != "BEARER") {
			t.Errorf("%q: %v (%v), want %v", text, got, err, want)
		}
	}
}

// TestLetIn: how logins end that nobody was refused by, and that a password may hold any bytes but zero.
func TestLetIn(t *testing.T) {
	s := New(Config{Logins: logins{}}, nil)
	for password, want := range map[string]codes.Code{
		"right": codes.OK, "wrong": codes.Unauthenticated, "held up": codes.ResourceExhausted, "busy": codes.Unavailable, "a\x00b": codes.Unauthenticated,
	} {
		ctx := peer.NewContext(t.Context(), &peer.Peer{Addr: &net.TCPAddr{}})
		ctx = metadata.NewIncomingContext(ctx, metadata.Pairs("authorization", "basic "+base64.StdEncoding.EncodeToString([]byte("u:"+password))))
		in, err := s.letIn(ctx)
		got := codes.OK
		if err != nil {
			got = refusalOf(err).code
		}
		if got != want || err == nil && callerOf(in).user.Name != "u" {
			t.Errorf("password %q: %v (%v), want %v", password, got, err, want)
		}
	}
}
