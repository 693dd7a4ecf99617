package client

import (
	"context"
	"crypto/tls"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"time"
	"unicode/utf8"

	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	warrenv1 "github.com/warrenmq/warren/api/warren/v1"
)

// Config says how to reach a cluster. Only Addrs has to be set.
type Config struct {
	// Addrs are the nodes' gRPC addresses, host:port. They are tried in an order by chance, which spreads clients over the nodes.
	Addrs []string
	// User and Password log in. Without a User the Token does, and without that the certificate in TLS.
	User, Password string
	// Token gives a bearer token for a call or a stream that begins; it is asked each time, so that it can replace one that has expired. Its
	// errors are taken for passing. Use TLS: whoever reads a token can use it.
	Token func(context.Context) (string, error)
	// TLS for the connections; nil: none, and passwords go as plain text.
	TLS *tls.Config
	// VHost is the virtual host. Default "/".
	VHost string
	// Logger gets lost streams and retries as warnings, and little else. Default: none.
	Logger *slog.Logger
	// TracerProvider switches tracing on: a span for each message that is published and one for each that is handled, joined by headers.
	TracerProvider trace.TracerProvider
	// Propagator puts the context into headers. Default: W3C's, which nodes read, too.
	Propagator propagation.TextMapPropagator
	// BackoffMin and BackoffMax bound the wait before the next try when one has failed, which doubles from one to the other and is
	// shortened by up to a half by chance. Default 50 ms and 5 s.
	BackoffMin, BackoffMax time.Duration
	// ConnectTimeout bounds each try to connect to a node. Default 5 s.
	ConnectTimeout time.Duration
	// KeepAlive is how long a connection in use may be silent until the node is asked for a sign of life, and then again until it is taken for
	// dead. Default 10 s, which is the least.
	KeepAlive time.Duration
	// MessageBytesMax is the largest body that is published or taken. Default 16 MiB, as nodes have it unless their max-message-size is set. Larger ones are refused before they are sent.
	MessageBytesMax int
	// DialOptions are passed to the gRPC library, behind the client's own.
	DialOptions []grpc.DialOption
}

const (
	backoffMin      = 50 * time.Millisecond
	backoffMax      = 5 * time.Second
	connectTimeout  = 5 * time.Second
	keepAlive       = 10 * time.Second
	messageBytesMax = 16 << 20
	// responseMore is how much larger a response may be than the largest body.
	responseMore = 4 << 20
	// callTries bounds how often a call is tried.
	callTries = 8
)

func (cfg *Config) validate() error {
	var errs []error
	if len(cfg.Addrs) == 0 {
		errs = append(errs, errors.New("no addresses"))
	}
	if cfg.User != "" && cfg.Token != nil {
		errs = append(errs, errors.New("a user and a token"))
	}
	if cfg.User == "" && cfg.Token == nil && (cfg.Password != "" || cfg.TLS == nil || len(cfg.TLS.Certificates) == 0 && cfg.TLS.GetClientCertificate == nil) {
		errs = append(errs, errors.New("neither a user nor a token nor a client certificate"))
	}
	for _, d := range []struct {
		name string
		of   *time.Duration
		or   time.Duration
	}{
		{"BackoffMin", &cfg.BackoffMin, backoffMin},
		{"BackoffMax", &cfg.BackoffMax, max(cfg.BackoffMin, backoffMax)},
		{"ConnectTimeout", &cfg.ConnectTimeout, connectTimeout},
		{"KeepAlive", &cfg.KeepAlive, keepAlive},
	} {
		if *d.of < 0 {
			errs = append(errs, fmt.Errorf("%s is negative", d.name))
		}
		if *d.of == 0 {
			*d.of = d.or
		}
	}
	if cfg.BackoffMax < cfg.BackoffMin {
		errs = append(errs, errors.New("BackoffMax is less than BackoffMin"))
	}
	if !utf8.ValidString(cfg.VHost) {
		errs = append(errs, errors.New("VHost is not UTF-8"))
	}
	if cfg.MessageBytesMax < 0 {
		errs = append(errs, errors.New("MessageBytesMax is negative"))
	}
	if cfg.MessageBytesMax == 0 {
		cfg.MessageBytesMax = messageBytesMax
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	return errors.Join(errs...)
}

// Client is a client of a cluster. It is safe for concurrent use.
type Client struct {
	cfg    Config
	log    *slog.Logger
	tracer *tracer
	nodes  []*node
	// Ends what goes on in the client: consumers, and the waits of publishers.
	ctx       context.Context //nolint:containedctx // the client's own
	stop      context.CancelFunc
	consumers sync.WaitGroup

	mu         sync.Mutex
	current    int // of nodes: the one that new streams and calls go to
	closed     bool
	publishers map[*Publisher]struct{}
}

// node is one of the addresses.
type node struct {
	addr string
	conn *grpc.ClientConn
}

// Dial makes a client, and logs in at one of the nodes to see that it can. It tries each address once.
func Dial(ctx context.Context, cfg Config) (*Client, error) {
	return dial(ctx, cfg, rand.Shuffle)
}

func dial(ctx context.Context, cfg Config, shuffle func(n int, swap func(i, j int))) (*Client, error) {
	if err := cfg.validate(); err != nil {
		return nil, fmt.Errorf("warren: %w", err)
	}
	c := &Client{cfg: cfg, log: cfg.Logger, tracer: newTracer(cfg), publishers: map[*Publisher]struct{}{}}
	c.ctx, c.stop = context.WithCancel(context.Background())
	options := c.options()
	for _, addr := range cfg.Addrs {
		conn, err := grpc.NewClient(addr, options...)
		if err != nil {
			c.end()
			return nil, fmt.Errorf("warren: address %q: %w", addr, err)
		}
		c.nodes = append(c.nodes, &node{addr, conn})
	}
	shuffle(len(c.nodes), func(i, j int) { c.nodes[i], c.nodes[j] = c.nodes[j], c.nodes[i] })
	var errs []error
	for range c.nodes {
		n := c.node()
		err := c.greet(ctx, n)
		if err == nil {
			return c, nil
		}
		errs = append(errs, fmt.Errorf("%s: %w", n.addr, err))
		if !passing(err) {
			break
		}
		c.failed(n)
	}
	c.end()
	return nil, errors.Join(errs...)
}

func (c *Client) options() []grpc.DialOption {
	transport := insecure.NewCredentials()
	if c.cfg.TLS != nil {
		transport = credentials.NewTLS(c.cfg.TLS)
	}
	options := []grpc.DialOption{
		grpc.WithTransportCredentials(transport),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: c.cfg.KeepAlive, Timeout: c.cfg.KeepAlive}),
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: c.cfg.BackoffMin, Multiplier: 2, Jitter: 0.2, MaxDelay: c.cfg.BackoffMax},
			MinConnectTimeout: c.cfg.ConnectTimeout,
		}),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(c.cfg.MessageBytesMax + responseMore)),
		grpc.WithUserAgent("warren-client-go"),
		grpc.WithChainUnaryInterceptor(sendable),
	}
	if c.cfg.User != "" {
		options = append(options, grpc.WithPerRPCCredentials(login{c.cfg.User, c.cfg.Password}))
	}
	if c.cfg.Token != nil {
		options = append(options, grpc.WithPerRPCCredentials(bearer{c.cfg.Token}))
	}
	return append(options, c.cfg.DialOptions...)
}

// login are credentials of a call.
type login struct{ user, password string }

func (l login) GetRequestMetadata(context.Context, ...string) (map[string]string, error) {
	return map[string]string{"authorization": "Basic " + base64.StdEncoding.EncodeToString([]byte(l.user+":"+l.password))}, nil
}

func (login) RequireTransportSecurity() bool { return false }

// bearer is a token for a call.
type bearer struct {
	token func(context.Context) (string, error)
}

func (b bearer) GetRequestMetadata(ctx context.Context, _ ...string) (map[string]string, error) {
	token, err := b.token(ctx)
	if err != nil {
		return nil, status.Errorf(codes.Unavailable, "no token: %v", err)
	}
	return map[string]string{"authorization": "Bearer " + token}, nil
}

func (bearer) RequireTransportSecurity() bool { return false }

// sendable makes an invalid call of one whose request cannot be sent, to whichever node: it has a text that is not UTF-8, as the name of a queue. To the library that is
// an internal error, which may pass.
func sendable(ctx context.Context, method string, req, reply any, conn *grpc.ClientConn, call grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	err := call(ctx, method, req, reply, conn, opts...)
	if m, ok := req.(proto.Message); ok && status.Code(err) == codes.Internal {
		if _, why := proto.Marshal(m); why != nil {
			return status.Errorf(codes.InvalidArgument, "the request cannot be sent: %v", why)
		}
	}
	return err
}

// greet opens a stream and ends it: a node lets in who may use the virtual host.
func (c *Client) greet(ctx context.Context, n *node) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := warrenv1.NewPublishServiceClient(n.conn).PublishStream(ctx)
	if err != nil {
		return errorOf(ctx, err)
	}
	_ = stream.Send(&warrenv1.PublishStreamRequest{Open: &warrenv1.PublishOpen{Vhost: c.cfg.VHost}}) // what fails is told by what follows
	_ = stream.CloseSend()
	for err == nil {
		_, err = stream.Recv() // perhaps that publishers are held up
	}
	if errors.Is(err, io.EOF) {
		return nil
	}
	return errorOf(ctx, err)
}

// Close ends the client: its publishers, with the results of what they have, and its consumers as they end when their context does. When ctx
// ends before that is done the rest is broken off, and the error says so.
func (c *Client) Close(ctx context.Context) error {
	c.mu.Lock()
	c.closed = true
	var publishers []*Publisher
	for p := range c.publishers {
		publishers = append(publishers, p)
	}
	c.mu.Unlock()
	errs := make([]error, len(publishers))
	var all sync.WaitGroup
	for i, p := range publishers {
		all.Go(func() { errs[i] = p.Close(ctx) })
	}
	c.stop()
	done := make(chan struct{})
	go func() { // ends with the consumers, which end at the latest when the connections are closed and their handlers return
		defer close(done)
		c.consumers.Wait()
	}()
	all.Wait()
	var err error
	select {
	case <-done:
	case <-ctx.Done():
		err = fmt.Errorf("waiting for consumers: %w", context.Cause(ctx))
	}
	c.end()
	return errors.Join(append(errs, err)...)
}

func (c *Client) end() {
	c.stop()
	for _, n := range c.nodes {
		_ = n.conn.Close()
	}
}

// node is where a new stream or call goes to.
func (c *Client) node() *node {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.nodes[c.current]
}

// failed notes that something at a node has failed that may not fail at another one.
func (c *Client) failed(n *node) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.nodes[c.current] == n {
		c.current = (c.current + 1) % len(c.nodes)
	}
	// It may be back when its turn comes: what it is then is found out by connecting, not by how long it was away.
	c.nodes[c.current].conn.ResetConnectBackoff()
}

func (c *Client) isClosed() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.closed
}

// waits are the growing pauses between tries.
type waits struct {
	c    *Client
	next time.Duration
}

// pause waits before the next try; the error is why ctx ended.
func (w *waits) pause(ctx context.Context) error {
	w.next = min(max(2*w.next, w.c.cfg.BackoffMin), w.c.cfg.BackoffMax)
	timer := time.NewTimer(w.next - rand.N(w.next/2+1))
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// reset is called when a try was good.
func (w *waits) reset() { w.next = 0 }

// call makes a call that may be made twice, at one node after the other.
func (c *Client) call(ctx context.Context, f func(conn *grpc.ClientConn) error) error {
	w := waits{c: c}
	for try := 1; ; try++ {
		if c.isClosed() {
			return ErrClosed
		}
		n := c.node()
		err := errorOf(ctx, f(n.conn))
		if err == nil || !passing(err) {
			return err
		}
		c.failed(n)
		if try == callTries {
			return err
		}
		c.log.Warn("call failed, trying again", "node", n.addr, "err", err)
		if err := w.pause(ctx); err != nil {
			return err
		}
	}
}

// Conn is for the rest of the API, by the generated packages: each call and stream goes to the node that the client uses at the moment.
// Nothing is tried again, but after one has failed with UNAVAILABLE the next goes to another node.
func (c *Client) Conn() grpc.ClientConnInterface { return rawConn{c} }

type rawConn struct{ c *Client }

func (r rawConn) Invoke(ctx context.Context, method string, args, reply any, opts ...grpc.CallOption) error {
	n := r.c.node()
	return r.see(n, n.conn.Invoke(ctx, method, args, reply, opts...))
}

func (r rawConn) NewStream(ctx context.Context, desc *grpc.StreamDesc, method string, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	n := r.c.node()
	stream, err := n.conn.NewStream(ctx, desc, method, opts...)
	return stream, r.see(n, err)
}

func (r rawConn) see(n *node, err error) error {
	if e, ok := errors.AsType[*Error](errorOf(context.Background(), err)); ok && e.Code == codes.Unavailable {
		r.c.failed(n)
	}
	return err
}

// Addrs are the nodes' addresses, the one in use first.
func (c *Client) Addrs() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	var addrs []string
	for _, n := range slices.Concat(c.nodes[c.current:], c.nodes[:c.current]) {
		addrs = append(addrs, n.addr)
	}
	return addrs
}
