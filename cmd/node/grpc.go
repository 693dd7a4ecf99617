package main

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"time"

	"google.golang.org/grpc/credentials"

	"github.com/warrenmq/warren/auth"
	"github.com/warrenmq/warren/auth/attempts"
	"github.com/warrenmq/warren/broker"
	"github.com/warrenmq/warren/contain"
	gateway "github.com/warrenmq/warren/gateway/amqp"
	rpc "github.com/warrenmq/warren/gateway/grpc"
	"github.com/warrenmq/warren/management"
)

// openGRPC makes the server of the client API, over TLS if there is a certificate, with the bounds of AMQP's and so many connections.
func (n *running) openGRPC(like gateway.Config, connections int) {
	cfg := rpc.Config{
		Logger: n.log, Logins: grpcLogins{n}, MessageBytesMax: like.MessageBytesMax, RequestBytesMax: int64(like.AssemblyBytesNodeMax / 2), ConnectionsMax: connections, Unread: like.Unread,
		HashPassword: func(ctx context.Context, password string, client net.Addr) (auth.PasswordHash, error) {
			hash, err := n.hashPassword(ctx, password, from(client))
			if busy, ok := errors.AsType[*management.Busy](err); ok {
				err = broker.Errorf(broker.Unavailable, "%s", busy.Reason)
			}
			return hash, err
		},
		Cluster:        grpcCluster{n},
		Guard:          n.guard,
		SettlePolicies: func(ctx context.Context, vhost string) { n.manager.SettlePolicies(ctx, vhost) },
	}
	if n.clientTLS != nil {
		cfg.Credentials = credentials.NewTLS(n.clientTLS.ServerConfig(n.clientAuth(), "h2"))
	}
	n.grpc = rpc.New(cfg, n.broker)
	for _, locks := range []func() contain.Locks{n.broker.Locks, n.amqp.Locks, n.grpc.Locks} {
		n.guard.Watch(locks)
	}
	n.onClose("grpc", func() error {
		n.grpc.Stop()
		return nil
	})
}

// serveGRPC accepts clients.
func (n *running) serveGRPC(ln net.Listener) {
	go func() {
		if err := n.grpc.Serve(ln); err != nil {
			n.failed <- fmt.Errorf("grpc server: %w", err)
		}
	}()
}

// grpcLogins lets clients of gRPC in.
type grpcLogins struct{ n *running }

// Password implements rpc.Logins.
func (l grpcLogins) Password(ctx context.Context, user, password string, client net.Addr) (broker.User, time.Duration, error) {
	return l.n.logIn(ctx, attempts.GRPC, auth.MechanismPlain, []byte("\x00"+user+"\x00"+password), from(client))
}

// Token implements rpc.Logins.
func (l grpcLogins) Token(ctx context.Context, token string, client net.Addr) (broker.User, error) {
	return l.n.logInByToken(ctx, attempts.GRPC, "BEARER", token, from(client))
}

// Certificate implements rpc.Logins.
func (l grpcLogins) Certificate(ctx context.Context, c *x509.Certificate, client net.Addr) (broker.User, error) {
	return l.n.broker.LoginExternal(ctx, l.n.peerName().Of(c), nil, l.n.caller(from(client)))
}
