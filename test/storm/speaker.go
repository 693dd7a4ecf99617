package storm

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"time"

	"github.com/warrenmq/warren/test/frames"
)

// Methods by their names: class and id.
var (
	connectionClose = [2]uint16{10, 50}
	channelClose    = [2]uint16{20, 40}
	channelCloseOk  = [2]uint16{20, 41}
	basicDeliver    = [2]uint16{60, 60}
	confirmed       = [2]uint16{60, 80}
	commitOk        = [2]uint16{90, 21}
	basicGetOk      = [2]uint16{60, 71}
)

// sendTime bounds a write: a node that does not read for so long is left.
const sendTime = 10 * time.Second

// speaker is one AMQP connection. The goroutine that made it speaks, another one reads.
type speaker struct {
	d     dice
	w     *world
	trace *trace
	conn  net.Conn
	gone  chan struct{} // the reader has ended
	steps weighted[step]
	user  string
	vhost string

	mu       sync.Mutex
	channels map[uint16]*channel
	paused   time.Time // nothing is read before
	replies  []string  // names of direct reply-to that came with messages
	heard    int       // frames
}

// channel is what a speaker believes of a channel.
type channel struct {
	open      bool
	closed    bool      // by the server, which waits for close-ok
	until     time.Time // close-ok comes no sooner
	tx        bool
	confirm   bool
	replies   bool // it consumes them
	tags      []uint64
	consumers []string
}

var errGone = errors.New("the connection has ended")

func dial(ctx context.Context, w *world, d dice, t *trace) (*speaker, error) {
	n := w.node(d)
	conn, err := (&net.Dialer{Timeout: 3 * time.Second}).DialContext(ctx, "tcp", n.AMQPAddr())
	if err != nil {
		return nil, err
	}
	t.say("--- dials %s", n.Name)
	if d.chance(.2) {
		_ = conn.(*net.TCPConn).SetReadBuffer(2048) // so that it is full soon
	}
	return &speaker{d: d, w: w, trace: t, conn: conn, gone: make(chan struct{}), steps: steps, user: d.user(), vhost: d.vhost(), channels: map[uint16]*channel{0: {}}}, nil
}

// send writes whole frames, or not quite.
func (s *speaker) send(data []byte) error {
	select {
	case <-s.gone:
		return errGone
	default:
	}
	_ = s.conn.SetWriteDeadline(time.Now().Add(sendTime))
	if s.d.chance(.02) && len(data) > 1 { // in two pieces
		cut := 1 + s.d.IntN(len(data)-1)
		if _, err := s.conn.Write(data[:cut]); err != nil {
			return err
		}
		time.Sleep(s.d.between(0, 20*time.Millisecond))
		data = data[cut:]
	}
	_, err := s.conn.Write(data)
	return err
}

// method sends a method and says so.
func (s *speaker) method(channel, class, id uint16, args ...any) error {
	s.trace.say("> %d: %d.%d %q", channel, class, id, args)
	return s.send(frames.Method(channel, class, id, args...))
}

// pause keeps the reader from reading.
func (s *speaker) pause(for_ time.Duration) {
	s.trace.say("reads nothing for %v", for_)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.paused = time.Now().Add(for_)
}

// read reads until the connection ends.
func (s *speaker) read() {
	defer close(s.gone)
	r := bufio.NewReaderSize(s.conn, 4096)
	for {
		s.mu.Lock()
		wait := time.Until(s.paused)
		s.mu.Unlock()
		if wait > 0 {
			time.Sleep(wait)
		}
		kind, number, payload, err := frames.Read(r)
		if err != nil {
			s.trace.say("< the end: %v", err)
			return
		}
		s.hear(kind, number, payload)
	}
}

func (s *speaker) hear(kind byte, number uint16, p []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.heard++
	switch {
	case kind == frames.TypeHeader:
		s.learnReply(p)
		return
	case kind != frames.TypeMethod || len(p) < 4:
		return
	}
	method := [2]uint16{binary.BigEndian.Uint16(p), binary.BigEndian.Uint16(p[2:])}
	ch := s.channels[number]
	switch args := p[4:]; method {
	case basicDeliver:
		s.w.answered("amqp delivered")
		if tag := args[1+int(args[0]):]; ch != nil {
			ch.tags = append(ch.tags, binary.BigEndian.Uint64(tag))
		}
		return
	case basicGetOk:
		if ch != nil {
			ch.tags = append(ch.tags, binary.BigEndian.Uint64(args))
		}
		return
	case connectionClose, channelClose:
		s.closed(method, number, args)
		if ch != nil {
			ch.closed = true
		}
	case confirmed:
		s.w.answered("amqp confirmed")
		return
	case commitOk:
		s.w.answered("amqp committed")
	case channelCloseOk:
		if ch != nil {
			*ch = channel{}
		}
	}
	s.trace.say("< %d: %d.%d %.80q", number, method[0], method[1], p[4:])
}

// closed looks at why the server closes something.
func (s *speaker) closed(method [2]uint16, number uint16, args []byte) {
	code, end := binary.BigEndian.Uint16(args), 3+int(args[2])
	text := string(args[3:end])
	what := fmt.Sprintf("amqp %d for %d.%d", code, binary.BigEndian.Uint16(args[end:]), binary.BigEndian.Uint16(args[end+2:]))
	if code == 541 {
		what += ": " + withoutNames(text)
	}
	s.w.answered(what)
	if code == 541 && strings.HasSuffix(text, "internal error") {
		s.w.find("internal error", "%s, on channel %d: %d.%d %s: %s", s.trace.name, number, method[0], method[1], what, text)
	}
}

// withoutNames is a text without what is quoted in it.
func withoutNames(text string) string {
	parts := strings.Split(text, "'")
	for i := 1; i < len(parts); i += 2 {
		parts[i] = "…"
	}
	return strings.Join(parts, "'")
}

// learnReply looks for the name of somebody who waits for a reply.
func (s *speaker) learnReply(p []byte) {
	const prefix = "amq.rabbitmq.reply-to."
	if i := strings.Index(string(p), prefix); i > 0 && i+int(p[i-1]) <= len(p) {
		s.w.answered("amqp asked for a reply")
		s.replies = append(s.replies, string(p[i:i+int(p[i-1])]))
		if len(s.replies) > 20 {
			s.replies = s.replies[1:]
		}
	}
}

// of returns the state of a channel, which may be none.
func (s *speaker) of(number uint16) channel {
	s.mu.Lock()
	defer s.mu.Unlock()
	if ch := s.channels[number]; ch != nil {
		return *ch
	}
	return channel{}
}

// note changes what is believed of a channel.
func (s *speaker) note(number uint16, f func(ch *channel)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.channels[number] == nil {
		s.channels[number] = &channel{}
	}
	f(s.channels[number])
}

// tag is one that was delivered, or any where there is none.
func (s *speaker) tag(number uint16) (tag uint64, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	ch := s.channels[number]
	if ch == nil || len(ch.tags) == 0 {
		return uint64(s.d.number()), false
	}
	i := s.d.IntN(len(ch.tags))
	tag = ch.tags[i]
	ch.tags = append(ch.tags[:i:i], ch.tags[i+1:]...)
	return tag, true
}
