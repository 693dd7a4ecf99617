package retryjob

import (
	"context"
	"fmt"
	"net"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

const (
	timeoutDial  = 3 * time.Second
	timeoutSetup = 10 * time.Second
	pauseRedial  = 50 * time.Millisecond
)

// link is a connection with one channel in confirm mode.
type link struct {
	conn   *amqp.Connection
	ch     *amqp.Channel
	socket net.Conn
}

// connect opens a link to one of the urls, beginning with urls[first] and
// going on until one works, setup succeeds on it, or ctx ends. setup may be nil.
func connect(ctx context.Context, urls []string, first int, setup func(*link) error) (*link, error) {
	var last error
	for i := first; ; i++ {
		l, err := open(urls[i%len(urls)], setup)
		if err == nil {
			return l, nil
		}
		last = err
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("no node takes the connection: %w (%w)", ctx.Err(), last)
		case <-time.After(pauseRedial):
		}
	}
}

// open connects to url. A node that accepts and then does not answer in time
// counts as one that does not take the connection.
func open(url string, setup func(*link) error) (*link, error) {
	l := &link{}
	conn, err := amqp.DialConfig(url, amqp.Config{
		Heartbeat: 5 * time.Second,
		Dial: func(network, addr string) (net.Conn, error) {
			socket, err := amqp.DefaultDial(timeoutDial)(network, addr)
			l.socket = socket
			return socket, err
		},
	})
	if err != nil {
		return nil, err
	}
	l.conn = conn
	late := time.AfterFunc(timeoutSetup, l.cut)
	defer late.Stop()
	if l.ch, err = conn.Channel(); err == nil {
		err = l.ch.Confirm(false)
	}
	if err == nil && setup != nil {
		err = setup(l)
	}
	if err != nil {
		l.cut()
		return nil, err
	}
	return l, nil
}

// cut ends the connection without ceremony, as a crash of the client would.
func (l *link) cut() { l.socket.Close() }

// close ends the connection in order, or cuts it when the node does not answer.
func (l *link) close() {
	late := time.AfterFunc(timeoutDial, l.cut)
	defer late.Stop()
	l.conn.Close() // its error is that the connection is gone already
}
