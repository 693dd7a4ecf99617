package grpc

import (
	"context"
	"crypto/x509"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/reflection"

	warrenv1 "github.com/warrenmq/warren/api/warren/v1"
	"github.com/warrenmq/warren/auth"
	"github.com/warrenmq/warren/broker"
	"github.com/warrenmq/warren/contain"
	"github.com/warrenmq/warren/gateway/unread"
	"github.com/warrenmq/warren/stats"
)

// Bounds of what clients may do to a node.
const (
	// streamsMax is how many calls one connection may have at once.
	streamsMax = 1024
	// metadataBytesMax bounds the metadata of a call.
	metadataBytesMax = 16 << 10
	// requestMore is how much a request may be larger than the largest message body.
	requestMore = 1 << 20
	// handshakeTimeout bounds TLS and HTTP/2's greeting.
	handshakeTimeout = 10 * time.Second
	// aliveMin is how often clients may ask whether the node is alive.
	aliveMin = 5 * time.Second
)

// patience is how long a server waits for clients.
type patience struct {
	open time.Duration // for a stream's first request
	idle time.Duration // for calls of a connection that has none
	// A connection that is silent for alive is asked, and is dead when it has not answered in answer.
	alive, answer time.Duration
	read          time.Duration // for a reader of events that keeps the stream from being written
	peek          time.Duration // for a reader of the response to a peek or a get
	request       time.Duration // for a call's only request
	stalled       time.Duration // for more of a large request while others wait
}

var usual = patience{open: 10 * time.Second, idle: 5 * time.Minute, alive: 30 * time.Second, answer: 20 * time.Second, read: 5 * time.Second, peek: 30 * time.Second, request: 30 * time.Second, stalled: 30 * time.Second}

// Logins finds out who a client is. The errors are *broker.Error; HeldUp is how long a client has to wait that has guessed
// too often, and comes with an error.
type Logins interface {
	Password(ctx context.Context, user, password string, from net.Addr) (u broker.User, heldUp time.Duration, err error)
	Certificate(ctx context.Context, c *x509.Certificate, from net.Addr) (broker.User, error)
	// Token is for the token of RFC 6750 that a client bears.
	Token(ctx context.Context, token string, from net.Addr) (broker.User, error)
}

// Cluster tells of the cluster what the broker does not know.
type Cluster interface {
	// Describe tells of the nodes by name, with what those that run say of themselves if they are asked.
	Describe(ctx context.Context, ask bool) *warrenv1.GetClusterResponse
	// QueueLeaders tells which node leads the queue of an id, by what nodes said a moment ago; "" if none has told that it does.
	QueueLeaders(ctx context.Context) func(id uint64) string
	// QueueFigures describes queues in the order of names. It calls yield for each, once, with what is yield's for the time of the call. bytes
	// are those of the bodies of all messages. A queue that is gone has no id.
	QueueFigures(ctx context.Context, names []broker.QueueName, yield func(i int, info *broker.QueueInfo, bytes uint64, rates *stats.Rates))
}

// Config is what a server needs.
type Config struct {
	Logger *slog.Logger
	Logins Logins
	// Credentials are those of TLS; nil without.
	Credentials credentials.TransportCredentials
	// MessageBytesMax is the largest message body in bytes.
	MessageBytesMax int
	// RequestBytesMax bounds the large requests of all clients that have not been worked on, messages and others each; 0: nothing does.
	RequestBytesMax int64
	// ConnectionsMax bounds the open connections, and the open streams: more wait, or are refused. One on which nobody has logged in makes room for another.
	ConnectionsMax int
	// HashPassword hashes a new password as the node is set to, for a client. The error is a *broker.Error, or says what is wrong with
	// the password.
	HashPassword func(ctx context.Context, password string, from net.Addr) (auth.PasswordHash, error)
	// SettlePolicies waits a moment until a change of a virtual host's policies is in effect.
	SettlePolicies func(ctx context.Context, vhost string)
	// Cluster tells of the cluster.
	Cluster Cluster
	// Guard contains faults of this program in the work for one call. Nil: nobody does.
	Guard *contain.Guard
	// Unread counts the messages that wait for clients that do not read, of all protocols.
	Unread *unread.Gauge
}

// Server serves the API.
type Server struct {
	cfg    Config
	log    *slog.Logger
	broker *broker.Broker
	waits  patience
	// workers are goroutines that outlive their calls by a moment.
	workers sync.WaitGroup
	numbers atomic.Uint64
	// peeks has one for each peek that is being answered.
	peeks chan struct{}
	gets  *gets
	// publishes and requests are what large requests may take that bring messages, and others.
	publishes, requests requestRooms
	// watchers are the streams of events.
	watchers atomic.Int32
	// openStreams are those of requests that need no login.
	openStreams atomic.Int32
	open        atomic.Int64 // connections
	accepted    atomic.Uint64
	conns       sync.Map // net.Conn by the client's address

	alarm atomic.Pointer[alarm]

	mu       sync.Mutex
	sessions map[*session]struct{}
	leaving  *refusal      // no new sessions, if it is not nil
	ending   chan struct{} // closed when leaving is set
	lib      *grpc.Server
	health   *health.Server
}

// alarm is why publishers are held up, "" if they are not, until it changes.
type alarm struct {
	reason string
	// memory: for nothing but memory.
	memory  bool
	changes chan struct{}
}

// New makes a server. It does not listen yet.
func New(cfg Config, b *broker.Broker) *Server {
	s := &Server{cfg: cfg, log: cfg.Logger, broker: b, waits: usual, sessions: map[*session]struct{}{}, peeks: make(chan struct{}, peeksMax), gets: newGets()}
	for _, rooms := range []*requestRooms{&s.publishes, &s.requests} {
		rooms.bytes.most, rooms.decoded.most = cfg.RequestBytesMax, cfg.RequestBytesMax
	}
	s.alarm.Store(&alarm{changes: make(chan struct{})})
	return s
}

// Serve accepts clients until the listener fails, Leave or Stop; then the error is nil. After Leave it may be called again,
// with another listener.
func (s *Server) Serve(ln net.Listener) error {
	options := []grpc.ServerOption{
		grpc.MaxConcurrentStreams(streamsMax), grpc.MaxHeaderListSize(metadataBytesMax), grpc.MaxRecvMsgSize(s.cfg.MessageBytesMax + requestMore),
		grpc.ConnectionTimeout(handshakeTimeout), grpc.ChainStreamInterceptor(s.stream),
		grpc.ForceServerCodecV2(newCodec()), grpc.WaitForHandlers(true), // they have workers, which Stop waits for
		grpc.StaticStreamWindowSize(windowBytes), grpc.StaticConnWindowSize(connWindowBytes),
		grpc.KeepaliveParams(keepalive.ServerParameters{MaxConnectionIdle: s.waits.idle, Time: s.waits.alive, Timeout: s.waits.answer}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: aliveMin, PermitWithoutStream: true}),
	}
	if s.cfg.Credentials != nil {
		options = append(options, grpc.Creds(s.cfg.Credentials))
	}
	lib, healthy := grpc.NewServer(options...), health.NewServer()
	services := registrar{s, lib}
	grpc_health_v1.RegisterHealthServer(services, healthy)
	warrenv1.RegisterPublishServiceServer(services, &publishService{s: s})
	warrenv1.RegisterConsumeServiceServer(services, &consumeService{s: s})
	warrenv1.RegisterTopologyServiceServer(services, &topologyService{s: s})
	warrenv1.RegisterMessageServiceServer(services, &messageService{s: s})
	warrenv1.RegisterAdminServiceServer(services, &adminService{s: s})
	warrenv1.RegisterStatusServiceServer(services, &statusService{s: s})
	reflection.Register(lib) // a stream
	for name := range lib.GetServiceInfo() {
		healthy.SetServingStatus(name, grpc_health_v1.HealthCheckResponse_SERVING)
	}
	s.mu.Lock()
	s.lib, s.health, s.leaving, s.ending = lib, healthy, nil, make(chan struct{})
	s.mu.Unlock()
	return lib.Serve(counting{newcomers(ln, s.cfg.ConnectionsMax), &s.open, &s.accepted, &s.conns})
}

// SetBlocked holds publishers up, or frees them with "". With memory there is nothing but memory that the cluster is short of. It is called by one
// goroutine at a time.
func (s *Server) SetBlocked(reason string, memory bool) {
	if s.alarm.Load().reason == reason {
		return
	}
	before := s.alarm.Swap(&alarm{reason: reason, memory: memory, changes: make(chan struct{})})
	close(before.changes)
}

// ends is closed when the node leaves.
func (s *Server) ends() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ending
}

// holdUp waits while publishers are held up. The error is why ctx has ended, or that the node leaves, if ending tells so.
func (s *Server) holdUp(ctx context.Context, ending <-chan struct{}) error {
	for {
		a := s.alarm.Load()
		if a.reason == "" {
			return nil
		}
		select {
		case <-a.changes:
		case <-ending:
			return refuse(codes.Unavailable, reasonLeaving, "the node leaves")
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// HoldUp waits while publishers are held up, and returns why they still are when ctx ends.
func (s *Server) HoldUp(ctx context.Context) (reason string) {
	if s.holdUp(ctx, nil) == nil {
		return ""
	}
	return s.alarm.Load().reason
}

// Leave closes the listener and ends every session: what was read of publishers gets its answers first, as far as they come
// before ctx ends. It returns how many were ended without. Clients are told to go to other nodes.
func (s *Server) Leave(ctx context.Context) (unanswered int) {
	why := refuse(codes.Unavailable, reasonLeaving, "the node leaves")
	s.mu.Lock()
	s.leaves(why)
	lib, healthy := s.lib, s.health
	var all []*session
	for x := range s.sessions {
		all = append(all, x)
	}
	s.mu.Unlock()
	if lib == nil {
		return 0
	}
	healthy.Shutdown() // says so to those who watch
	for _, x := range all {
		x.leave(why)
	}
	for _, x := range all {
		select {
		case <-x.done:
			continue
		case <-ctx.Done():
		}
		if x.unanswered() {
			unanswered++
		}
		x.end(why)
		x.rush() // the broker may be slow to take back what it has
	}
	for _, x := range all {
		<-x.done
	}
	stop := context.AfterFunc(ctx, lib.Stop)
	defer stop()
	lib.GracefulStop() // tells the clients' connections
	return unanswered
}

// leaves is called under the mutex.
func (s *Server) leaves(why *refusal) {
	if s.leaving == nil && s.ending != nil {
		close(s.ending)
	}
	s.leaving = why
}

// Sessions is how many streams and calls are at work.
func (s *Server) Sessions() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.sessions)
}

// Stop ends all connections and returns when nothing of them is left.
func (s *Server) Stop() {
	s.mu.Lock()
	lib := s.lib
	s.leaves(refuse(codes.Unavailable, reasonLeaving, "the node leaves"))
	s.mu.Unlock()
	if lib != nil {
		lib.Stop()
	}
	s.workers.Wait()
}

// ready tells whether new work is taken.
func (s *Server) ready() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.leaving != nil {
		return s.leaving
	}
	return nil
}
