package process

import (
	"fmt"
	"net"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

// connectionMax is longer than any test needs a connection. amqp091-go waits without a limit for an answer, also from a node that sends heartbeats and answers
// nothing else: without this limit such a node would end the whole run at its timeout, with the results of all other tests.
const connectionMax = 10 * time.Minute

// connect is amqp.Dial, for connectionMax.
func connect(url string) (*amqp.Connection, error) { return connectWith(url, amqp.Config{}) }

// connectWith is amqp.DialConfig, for connectionMax and what `make soak` asks for.
func connectWith(url string, cfg amqp.Config) (*amqp.Connection, error) {
	soak, _ := time.ParseDuration(os.Getenv(soakEnv)) // none otherwise
	return connectFor(connectionMax+soak, url, cfg)
}

func connectFor(limit time.Duration, url string, cfg amqp.Config) (*amqp.Connection, error) {
	dial := cfg.Dial
	if dial == nil {
		dial = amqp.DefaultDial(timeoutReply)
	}
	cfg.Dial = func(network, addr string) (net.Conn, error) {
		socket, err := dial(network, addr)
		if err != nil {
			return nil, err
		}
		c := &limitedConn{Conn: socket, limit: limit}
		c.timer = time.AfterFunc(limit, func() {
			c.over.Store(true)
			socket.Close()
		})
		return c, nil
	}
	return amqp.DialConfig(url, cfg)
}

// limitedConn is closed after a time, and says so.
type limitedConn struct {
	net.Conn
	limit time.Duration
	timer *time.Timer
	over  atomic.Bool
}

func (c *limitedConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if err != nil && c.over.Load() {
		err = fmt.Errorf("the test has had this connection for %v: a call was not answered?", c.limit)
	}
	return n, err
}

func (c *limitedConn) Close() error {
	c.timer.Stop()
	return c.Conn.Close()
}

// muteConn discards what the client sends, if it is told to.
type muteConn struct {
	net.Conn
	mute atomic.Bool
}

func (c *muteConn) Write(b []byte) (int, error) {
	if c.mute.Load() {
		return len(b), nil
	}
	return c.Conn.Write(b)
}

// TestCallsWithoutAnswerEnd: a test does not wait without a limit for the answer to a call.
func TestCallsWithoutAnswerEnd(t *testing.T) {
	t.Parallel()
	needWarren(t)
	var socket *muteConn
	conn, err := connectFor(time.Second, sharedCluster(t, 1).Node(0).URL(), amqp.Config{Dial: func(network, addr string) (net.Conn, error) {
		c, err := net.DialTimeout(network, addr, timeoutReply)
		socket = &muteConn{Conn: c}
		return socket, err
	}})
	if err != nil {
		t.Fatal(err)
	}
	ch, err := conn.Channel()
	if err != nil {
		t.Fatal(err)
	}
	socket.mute.Store(true)
	ended := make(chan error, 1)
	go func() { // ends with the connection
		_, err := ch.QueueDeclare("", false, true, true, false, nil)
		ended <- err
	}()
	select {
	case err := <-ended:
		if err == nil || !strings.Contains(err.Error(), "a call was not answered") {
			t.Errorf("ended with %v", err)
		}
	case <-time.After(timeoutReply):
		t.Error("the call waits still")
		socket.Close()
	}
}
