package client

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/warrenmq/warren/jepsen/history"
)

// Config is what the clients of a run have in common.
type Config struct {
	// User is name and password.
	User string
	// Recorder gets the history.
	Recorder *history.Recorder
	// Timeout bounds every operation.
	Timeout time.Duration
	// BodyBytes is the size of messages.
	BodyBytes int
	// HTTP returns the base of a node's HTTP addresses, without a final slash.
	HTTP func(node string) string
}

const (
	heartbeat   = 5 * time.Second
	timeoutDial = 2 * time.Second
)

var errCut = errors.New("the client was cut")

// Client is a connection with a channel. Publish, Get and what else waits for an answer
// may be called by one goroutine at a time. One over gRPC publishes and consumes by that, and
// has an AMQP connection beside it from when something else is asked for.
type Client struct {
	// Process and Life name the connection in the history.
	Process, Life int
	// Node is the node it is connected to.
	Node string

	cfg  *Config
	addr string
	rpc  *rpc // nil: everything goes over AMQP
	seq  int
	once sync.Once

	mu     sync.Mutex // guards socket and isCut: Cut is called by timers
	socket net.Conn
	isCut  bool
	conn   *amqp.Connection
	ch     *amqp.Channel
}

// Open connects to a node, which speaks AMQP at addr, host:port.
func Open(ctx context.Context, cfg *Config, node, addr string, process, life int) (*Client, error) {
	c := &Client{Process: process, Life: life, Node: node, cfg: cfg, addr: addr}
	if err := c.connect(ctx); err != nil {
		return nil, err
	}
	return c, nil
}

// OpenRPC makes a client over gRPC of the node, which speaks that at rpcAddr.
func OpenRPC(ctx context.Context, cfg *Config, node, addr, rpcAddr string, process, life int) (c *Client, err error) {
	c = &Client{Process: process, Life: life, Node: node, cfg: cfg, addr: addr}
	c.rpc, err = openRPC(ctx, cfg, rpcAddr)
	return c, err
}

// connect opens the AMQP connection and its channel.
func (c *Client) connect(ctx context.Context) error {
	config := amqp.Config{
		Heartbeat: heartbeat, Locale: "en_US",
		Dial: func(network, addr string) (net.Conn, error) {
			d := net.Dialer{Timeout: timeoutDial}
			conn, err := d.DialContext(ctx, network, addr)
			if err != nil {
				return nil, err
			}
			c.mu.Lock()
			defer c.mu.Unlock()
			if c.isCut {
				return nil, errors.Join(errCut, conn.Close())
			}
			c.socket = conn
			// The library takes the deadline off when the connection is open.
			return conn, conn.SetDeadline(time.Now().Add(c.cfg.Timeout))
		},
	}
	var err error
	if c.conn, err = amqp.DialConfig("amqp://"+c.cfg.User+":"+c.cfg.User+"@"+c.addr+"/", config); err != nil {
		c.conn = nil
		return err
	}
	late := time.AfterFunc(c.cfg.Timeout, c.Cut)
	defer late.Stop()
	if c.ch, err = c.conn.Channel(); err == nil {
		err = c.ch.Confirm(false)
	}
	if err != nil {
		c.Cut()
		return fmt.Errorf("open a channel: %w", err)
	}
	return nil
}

// amqp makes sure that there is an AMQP connection.
func (c *Client) amqp() error {
	if c.ch != nil {
		return nil
	}
	return c.connect(context.Background())
}

// Op returns an operation of this client, to be recorded.
func (c *Client) Op(t history.Type, f string) history.Op {
	return history.Op{Process: c.Process, Life: c.Life, Node: c.Node, Type: t, F: f}
}

// Record records an operation that Op began.
func (c *Client) Record(op history.Op) int { return c.cfg.Recorder.Record(op) }

// Aside calls f with a channel of its own, which may fail and take nothing along. The client is of
// no more use when none can be opened.
func (c *Client) Aside(what string, f func(*amqp.Channel) error) error {
	late := time.AfterFunc(c.cfg.Timeout, c.Cut)
	defer late.Stop()
	if err := c.amqp(); err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	ch, err := c.conn.Channel()
	if err != nil {
		return fmt.Errorf("%s: open a channel: %w", what, err)
	}
	if err := f(ch); err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	return ch.Close()
}

// Lost tells whether the connection has ended.
func (c *Client) Lost() bool {
	return c.conn != nil && c.conn.IsClosed() || c.rpc != nil && c.rpc.ctx.Err() != nil
}

// Do calls f with the channel, for what has no method here. When f does not return in
// time the connection is cut, which ends it. what is for the error.
func (c *Client) Do(what string, f func(*amqp.Channel) error) error {
	late := time.AfterFunc(c.cfg.Timeout, c.Cut)
	defer late.Stop()
	if err := c.amqp(); err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	if err := f(c.ch); err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	return nil
}

// Outcome returns the type of the operation that ended with err: refused by the broker
// before anything was done is fail, anything else is unknown.
func Outcome(err error) history.Type {
	var refusal *amqp.Error
	switch {
	case err == nil:
		return history.OK
	case errors.As(err, &refusal) && refusal.Server && certain[refusal.Code]:
		return history.Fail
	}
	return history.Info
}

// certain are the reply codes that refuse a synchronous method.
var certain = map[int]bool{
	amqp.AccessRefused: true, amqp.NotFound: true, amqp.ResourceLocked: true,
	amqp.PreconditionFailed: true, amqp.NotAllowed: true, amqp.NotImplemented: true,
}

// Call records a synchronous method: its invoke, f, and its end.
func (c *Client) Call(op history.Op, f func(*amqp.Channel) error) error {
	op.Type = history.Invoke
	op.Of = c.Record(op)
	err := c.Do(op.F, f)
	op.Type = Outcome(err)
	if err != nil {
		op.Error = err.Error()
	}
	c.Record(op)
	return err
}

// Cut ends the connection without ceremony, as a crash of the client would.
func (c *Client) Cut() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.isCut = true
	if c.socket != nil {
		c.socket.Close()
	}
	if c.rpc != nil {
		c.rpc.cut()
	}
}

// Close ends the connection in order, or cuts it when the node does not answer.
func (c *Client) Close() {
	c.once.Do(func() {
		late := time.AfterFunc(c.cfg.Timeout, c.Cut)
		defer late.Stop()
		if c.rpc != nil {
			c.rpc.close(c.cfg.Timeout)
		}
		if c.conn != nil {
			c.conn.Close()
		}
	})
}
