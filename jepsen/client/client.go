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

// Client is a connection with a channel. Publish, Get and what else waits for an answer
// may be called by one goroutine at a time.
type Client struct {
	// Process and Life name the connection in the history.
	Process, Life int
	// Node is the node it is connected to.
	Node string

	cfg    *Config
	conn   *amqp.Connection
	ch     *amqp.Channel
	socket net.Conn
	seq    int
	once   sync.Once
}

// Open connects to a node at addr, host:port.
func Open(ctx context.Context, cfg *Config, node, addr string, process, life int) (*Client, error) {
	c := &Client{Process: process, Life: life, Node: node, cfg: cfg}
	config := amqp.Config{
		Heartbeat: heartbeat, Locale: "en_US",
		Dial: func(network, addr string) (net.Conn, error) {
			d := net.Dialer{Timeout: timeoutDial}
			conn, err := d.DialContext(ctx, network, addr)
			if err != nil {
				return nil, err
			}
			c.socket = conn
			// The library takes the deadline off when the connection is open.
			return conn, conn.SetDeadline(time.Now().Add(cfg.Timeout))
		},
	}
	var err error
	if c.conn, err = amqp.DialConfig("amqp://"+cfg.User+":"+cfg.User+"@"+addr+"/", config); err != nil {
		return nil, err
	}
	err = c.Do("open a channel", func(*amqp.Channel) error {
		ch, err := c.conn.Channel()
		if err != nil {
			return err
		}
		c.ch = ch
		return ch.Confirm(false)
	})
	if err != nil {
		c.Cut()
		return nil, err
	}
	return c, nil
}

// Op returns an operation of this client, to be recorded.
func (c *Client) Op(t history.Type, f string) history.Op {
	return history.Op{Process: c.Process, Life: c.Life, Node: c.Node, Type: t, F: f}
}

// Record records an operation that Op began.
func (c *Client) Record(op history.Op) int { return c.cfg.Recorder.Record(op) }

// Done is closed, or gets an error, when the channel ends.
func (c *Client) Done() <-chan *amqp.Error { return c.ch.NotifyClose(make(chan *amqp.Error, 1)) }

// Aside calls f with a channel of its own, which may fail and take nothing along. The client is of
// no more use when none can be opened.
func (c *Client) Aside(what string, f func(*amqp.Channel) error) error {
	late := time.AfterFunc(c.cfg.Timeout, c.Cut)
	defer late.Stop()
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
func (c *Client) Lost() bool { return c.conn.IsClosed() }

// Do calls f with the channel, for what has no method here. When f does not return in
// time the connection is cut, which ends it. what is for the error.
func (c *Client) Do(what string, f func(*amqp.Channel) error) error {
	late := time.AfterFunc(c.cfg.Timeout, c.Cut)
	defer late.Stop()
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
	if c.socket != nil {
		c.socket.Close()
	}
}

// Close ends the connection in order, or cuts it when the node does not answer.
func (c *Client) Close() {
	c.once.Do(func() {
		late := time.AfterFunc(c.cfg.Timeout, c.Cut)
		defer late.Stop()
		c.conn.Close()
	})
}
