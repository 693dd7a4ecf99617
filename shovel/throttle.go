package shovel

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// Kinds of AMQP frames (specification, 4.2.3), and the head and end of each.
const (
	frameMethod   = 1
	frameHeader   = 2
	frameBody     = 3
	frameHeadSize = 7
	frameEndSize  = 1
	// frameMax is more than any broker sends that was asked for 128 KiB.
	frameMax = 1 << 20
	// headerSize is the part of a content header up to the size of the body.
	headerSize = 12
	// Class and method of what confirms, and the size of these and the tag.
	basicAck    = 60<<16 | 80
	basicNack   = 60<<16 | 120
	confirmSize = 12
)

// throttled is a connection whose reader stops before the next message while the bodies that it has read, and that nobody has released yet,
// are budget bytes or more. The client library keeps whatever it reads; a prefetch bounds the number, not the bytes. It also refuses frames
// and messages that are larger than anybody should send.
type throttled struct {
	net.Conn
	in         *bufio.Reader
	budget     int64 // 0: none
	messageMax uint64
	// published is how many messages have been sent: nobody may confirm more. The library would go on counting up to whatever tag it is told.
	published atomic.Uint64

	// Of the reader alone.
	ready []byte // of the frame's head, to be handed out
	head  [frameHeadSize]byte
	left  int // of the frame behind it

	mu       sync.Mutex
	held     int64
	loose    bool // an answer is waited for, and may be behind messages
	deadline time.Time
	free     chan struct{} // closed and replaced when something is released
	closed   bool
}

func newThrottled(c net.Conn, budget int64, messageMax uint64) *throttled {
	return &throttled{Conn: c, in: bufio.NewReaderSize(c, 64<<10), budget: budget, messageMax: messageMax, free: make(chan struct{})}
}

// Read implements io.Reader. What cannot be read any more is closed, so that a write that hangs ends, too: the library closes the connection only
// when it has the lock that the writer holds.
func (t *throttled) Read(p []byte) (int, error) {
	n, err := t.read(p)
	if err != nil {
		_ = t.Close() // err says why
	}
	return n, err
}

func (t *throttled) read(p []byte) (int, error) {
	if len(t.ready) == 0 && t.left == 0 {
		if err := t.next(); err != nil {
			return 0, err
		}
	}
	if len(t.ready) > 0 {
		n := copy(p, t.ready)
		t.ready = t.ready[n:]
		return n, nil
	}
	n, err := t.in.Read(p[:min(len(p), t.left)])
	t.left -= n
	return n, err
}

// next reads the head of a frame.
func (t *throttled) next() error {
	if _, err := io.ReadFull(t.in, t.head[:]); err != nil {
		return err
	}
	size := binary.BigEndian.Uint32(t.head[3:])
	if size > frameMax {
		return fmt.Errorf("a frame of %d bytes: the other side does not speak AMQP 0-9-1, or not as agreed", size)
	}
	switch t.head[0] {
	case frameMethod:
		t.wait()
		return t.method(int(size))
	case frameHeader:
		b, err := t.in.Peek(headerSize)
		if err != nil {
			return err
		}
		if n := binary.BigEndian.Uint64(b[4:]); n > t.messageMax {
			return fmt.Errorf("a message of %d bytes is larger than %d (max-message-size)", n, t.messageMax)
		}
	case frameBody:
		t.mu.Lock()
		t.held += int64(size)
		t.mu.Unlock()
	}
	t.pass(int(size))
	return nil
}

// pass hands out a frame whose head has been read.
func (t *throttled) pass(size int) { t.ready, t.left = t.head[:], size+frameEndSize }

// method looks at what a frame of a method begins with.
func (t *throttled) method(size int) error {
	t.pass(size)
	if size < confirmSize {
		return nil
	}
	b, err := t.in.Peek(confirmSize)
	if err != nil {
		return err
	}
	if id := binary.BigEndian.Uint32(b); id != basicAck && id != basicNack {
		return nil
	}
	if n := binary.BigEndian.Uint64(b[4:]); n > t.published.Load() {
		return fmt.Errorf("message %d is confirmed, and has not been sent", n)
	}
	return nil
}

// wait blocks while too much is held. The deadline for reading, by which the library sees that heartbeats are missing, moves along.
func (t *throttled) wait() {
	var began time.Time
	for {
		t.mu.Lock()
		if t.budget == 0 || t.loose || t.closed || t.held < t.budget {
			if deadline := t.deadline; !began.IsZero() && !deadline.IsZero() {
				_ = t.Conn.SetReadDeadline(deadline.Add(time.Since(began))) // a closed connection says so when it is read
			}
			t.mu.Unlock()
			return
		}
		free := t.free
		t.mu.Unlock()
		if began.IsZero() {
			began = time.Now()
		}
		<-free
	}
}

// release says that n bytes of bodies are not held any more.
func (t *throttled) release(n int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.held -= int64(n)
	t.wake()
}

// wake is called with mu held.
func (t *throttled) wake() {
	close(t.free)
	t.free = make(chan struct{})
}

// during does what waits for an answer.
func (t *throttled) during(ask func() error) error {
	set := func(loose bool) {
		t.mu.Lock()
		defer t.mu.Unlock()
		t.loose = loose
		t.wake()
	}
	set(true)
	defer set(false)
	return ask()
}

// open ends throttling, so that the connection can be closed in order.
func (t *throttled) open() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.budget = 0
	t.wake()
}

// SetReadDeadline implements net.Conn.
func (t *throttled) SetReadDeadline(at time.Time) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.deadline = at
	return t.Conn.SetReadDeadline(at)
}

// Close implements net.Conn.
func (t *throttled) Close() error {
	t.mu.Lock()
	t.closed = true
	t.wake()
	t.mu.Unlock()
	return t.Conn.Close()
}
