package member

import (
	"bufio"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"

	"github.com/hashicorp/go-msgpack/v2/codec"
)

// What memberlist may be told in one stream. Its own bounds, for states compressed and not, are 40 and 20 MiB and a million nodes, and the
// room for the nodes is made before the first of them has come.
const (
	stateBytesMax = 1 << 20
	stateNodesMax = 4096
	statesMax     = 64      // streams that others have opened, at memberlist at a time
	labelFirst    = 244     // first byte of a stream with a label
	stateHeadMax  = 1 << 10 // label, type and header of a state
)

// Types of memberlist's messages that streams of ours carry. Compressed ones are none of them.
const (
	typePing      = 0
	typeAck       = 2
	typePushPull  = 6
	typeErr       = 13
	labelHeadSize = 2 // first byte and length
)

var (
	asked    = []byte{typePing, typePushPull}
	answered = []byte{typeAck, typePushPull, typeErr}

	errState = errors.New("more than gossip says")
)

// boundedConn is a stream that memberlist reads: it ends with an error where it says what no node says. One goroutine may read.
type boundedConn struct {
	net.Conn

	r      *bufio.Reader
	types  []byte // that may come
	seen   bool   // the head was looked at
	left   int
	free   func() // called once, by Close
	closed sync.Once
}

// bounded gives a stream its bounds. free may be nil.
func bounded(conn net.Conn, types []byte, free func()) *boundedConn {
	return &boundedConn{Conn: conn, r: bufio.NewReader(conn), types: types, left: stateBytesMax, free: free}
}

// Read implements net.Conn.
func (c *boundedConn) Read(b []byte) (int, error) {
	if !c.seen {
		if err := c.look(); err != nil {
			return 0, err
		}
		c.seen = true
	}
	if c.left == 0 && len(b) > 0 {
		return 0, fmt.Errorf("%w: a stream of more than %d bytes", errState, stateBytesMax)
	}
	n, err := c.r.Read(b[:min(len(b), c.left)])
	c.left -= n
	return n, err
}

// look reads the type of the message and the header of a state without taking them.
func (c *boundedConn) look() error {
	at := 0
	first, err := c.r.Peek(1)
	if err != nil {
		return err
	}
	if first[0] == labelFirst {
		head, err := c.r.Peek(labelHeadSize)
		if err != nil {
			return err
		}
		at = labelHeadSize + int(head[1])
	}
	head, err := c.r.Peek(at + 1)
	if err != nil {
		return err
	}
	switch kind := head[at]; {
	case !slices.Contains(c.types, kind):
		return fmt.Errorf("%w: a message of type %d", errState, kind)
	case kind != typePushPull:
		return nil
	}
	var state struct{ Nodes, UserStateLen int } // memberlist's pushPullHeader, as far as it makes room
	if err := codec.NewDecoder(&ahead{c.r, at + 1}, &codec.MsgpackHandle{}).Decode(&state); err != nil {
		return fmt.Errorf("%w: %w", errState, err)
	}
	if state.Nodes > stateNodesMax || state.UserStateLen > stateBytesMax {
		return fmt.Errorf("%w: a state of %d nodes and %d bytes", errState, state.Nodes, state.UserStateLen)
	}
	return nil
}

// Close implements net.Conn.
func (c *boundedConn) Close() error {
	if c.free != nil {
		c.closed.Do(c.free)
	}
	return c.Conn.Close()
}

// ahead reads what comes next in a stream and leaves it there.
type ahead struct {
	r  *bufio.Reader
	at int
}

// Read implements io.Reader.
func (a *ahead) Read(b []byte) (int, error) {
	if a.at+len(b) > stateHeadMax {
		return 0, fmt.Errorf("a header of more than %d bytes", stateHeadMax)
	}
	next, err := a.r.Peek(a.at + len(b))
	n := copy(b, next[min(a.at, len(next)):])
	a.at += n
	return n, err
}
