package grpc

import (
	"context"
	"crypto/tls"
	"encoding/base64"
	"errors"
	"net"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/protobuf/proto"

	"github.com/warrenmq/warren/auth"
	"github.com/warrenmq/warren/broker"
)

// ourServices is how the names of the services begin that need a login. Health and reflection tell nothing of users' data.
const ourServices = "/warren."

// What is in AdminService's requests is kept by every node: they are bounded as the management API's.
const (
	adminMethods  = "/warren.v1.AdminService/"
	adminBytesMax = 1 << 20
)

// publishMethods is how the calls begin that bring messages.
const publishMethods = "/warren.v1.PublishService/"

// caller is who makes a call, in its context.
type caller struct {
	user        broker.User
	mechanism   string // PLAIN, BEARER or EXTERNAL
	agent       string // what the client's library says of itself
	peer, local net.Addr
	tls         *tls.ConnectionState // nil without TLS
}

type callerKey struct{}

func callerOf(ctx context.Context) caller {
	c, _ := ctx.Value(callerKey{}).(caller)
	return c
}

// unary makes a call of one request, once it has been let in as a stream and the request is there.
func (s *Server) unary(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	if m, ok := req.(proto.Message); ok && strings.HasPrefix(info.FullMethod, adminMethods) && proto.Size(m) > adminBytesMax {
		return nil, invalid("a request of %d bytes is larger than %d", proto.Size(m), adminBytesMax)
	}
	if !strings.HasPrefix(info.FullMethod, ourServices) {
		return handler(ctx, req)
	}
	ctx, err := s.renewed(ctx)
	if err != nil {
		return nil, err
	}
	return handler(ctx, req)
}

// renewed has what the caller may do now, and not when the call began: who has lost that may have kept the request back until then.
func (s *Server) renewed(ctx context.Context) (context.Context, error) {
	c := callerOf(ctx)
	var err error
	if c.user, err = s.broker.Renew(c.user); err != nil {
		return nil, loginOver(err)
	}
	return context.WithValue(ctx, callerKey{}, c), nil
}

// loginOver is the refusal of who has logged in and may not go on.
func loginOver(err error) *refusal {
	e, ok := errors.AsType[*broker.Error](err)
	if !ok || e.Kind != broker.AccessRefused {
		return refusalOf(err) // with another token it can
	}
	return refuse(codes.Unauthenticated, reasonLogin, "%s", e.Text)
}

// stream lets a call in, before anything of its requests is read. A fault of this program ends the call and not the process.
func (s *Server) stream(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) (err error) {
	if !strings.HasPrefix(info.FullMethod, ourServices) {
		return s.withoutLogin(srv, stream, info, handler)
	}
	defer s.cfg.Guard.Keep(work, "", func() { err = fault() })
	ctx, err := s.comesIn(stream.Context())
	if err != nil {
		return refusalOf(err)
	}
	k := &known{ServerStream: stream, s: s, room: &s.requests, many: info.IsClientStream}
	if strings.HasPrefix(info.FullMethod, publishMethods) {
		k.room = &s.publishes
	}
	k.ctx = context.WithValue(ctx, knownKey{}, k)
	defer k.free(true)
	if err = handler(srv, k); err != nil {
		return refusalOf(err)
	}
	return nil
}

// comesIn is letIn, and tells of the connection whether somebody has logged in on it.
func (s *Server) comesIn(ctx context.Context) (context.Context, error) {
	p, _ := peer.FromContext(ctx)
	conn := s.connOf(p.Addr)
	if conn == nil {
		return s.letIn(ctx)
	}
	n := conn.newcomer()
	if n != nil {
		n.Busy() // where many log in at a time newcomers would drive out those that are about to be done
	}
	ctx, err := s.letIn(ctx)
	switch {
	case err == nil:
		conn.known.Store(true)
	case n != nil:
		n.Idle()
	}
	return ctx, err
}

// letIn finds out who calls: by a password or a token in the metadata, or else by the certificate that TLS has verified.
func (s *Server) letIn(ctx context.Context) (context.Context, error) {
	if err := s.ready(); err != nil {
		return nil, err
	}
	p, _ := peer.FromContext(ctx)
	c := caller{peer: p.Addr, local: p.LocalAddr, mechanism: "PLAIN", agent: agent(ctx)}
	info, isTLS := p.AuthInfo.(credentials.TLSInfo)
	if isTLS {
		c.tls = &info.State
	}
	var err error
	switch scheme, text, bad := authorization(ctx); {
	case bad != nil:
		return nil, bad
	case scheme == schemeBasic:
		user, password, bad := basic(text)
		if bad != nil {
			return nil, bad
		}
		var heldUp time.Duration
		if c.user, heldUp, err = s.cfg.Logins.Password(ctx, user, password, p.Addr); heldUp > 0 {
			return nil, refuse(codes.ResourceExhausted, reasonHeldUp, "too many failed logins: wait %v", heldUp.Round(time.Second))
		}
	case scheme == schemeBearer:
		c.mechanism = "BEARER"
		c.user, err = s.cfg.Logins.Token(ctx, text, p.Addr)
	default:
		if !isTLS || len(info.State.VerifiedChains) == 0 {
			return nil, refuse(codes.Unauthenticated, reasonLogin, "no credentials: neither an authorization of type Basic or Bearer nor a client certificate")
		}
		c.mechanism = "EXTERNAL"
		c.user, err = s.cfg.Logins.Certificate(ctx, info.State.PeerCertificates[0], p.Addr)
	}
	e, ok := errors.AsType[*broker.Error](err)
	switch {
	case ok && e.Kind != broker.AccessRefused:
		return nil, e // nobody has looked at the password
	case ok && e.Away:
		return nil, broker.Errorf(broker.Unavailable, "%v", auth.ErrAway)
	}
	if err != nil {
		return nil, refuse(codes.Unauthenticated, reasonLogin, "login refused, see the node's log for details")
	}
	return context.WithValue(ctx, callerKey{}, c), nil
}

func agent(ctx context.Context) string {
	md, _ := metadata.FromIncomingContext(ctx)
	return strings.Join(md.Get("user-agent"), " ")
}

const (
	schemeBasic  = "basic"
	schemeBearer = "bearer"
)

// authorization reads the metadata of that name: "" and "" if there is none. bad says why it is not understood.
func authorization(ctx context.Context) (scheme, text string, bad error) {
	md, _ := metadata.FromIncomingContext(ctx)
	values := md.Get("authorization")
	switch len(values) {
	case 0:
		return "", "", nil
	case 1:
	default:
		return "", "", refuse(codes.Unauthenticated, reasonLogin, "more than one authorization")
	}
	scheme, text, _ = strings.Cut(values[0], " ")
	if scheme = strings.ToLower(scheme); scheme != schemeBasic && scheme != schemeBearer {
		return "", "", refuse(codes.Unauthenticated, reasonLogin, "the authorization is neither of type Basic nor of type Bearer")
	}
	return scheme, strings.TrimSpace(text), nil
}

// basic reads user and password (RFC 7617). bad says why it is not understood.
func basic(text string) (user, password string, bad error) {
	decoded, err := base64.StdEncoding.DecodeString(text)
	user, password, found := strings.Cut(string(decoded), ":")
	if err != nil || !found || strings.ContainsRune(user+password, 0) {
		return "", "", refuse(codes.Unauthenticated, reasonLogin, "the authorization is no user and password")
	}
	return user, password, nil
}
