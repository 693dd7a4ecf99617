package storm

import (
	"io"
	"net"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/warrenmq/warren/test/frames"
)

// newTestWorld is one without nodes.
func newTestWorld() *world {
	return &world{begun: time.Now(), answers: map[string]int{}, down: map[string]bool{}}
}

// TestEveryStepIsSpoken takes each step of a speaker many times, with what there may be to settle, against a peer that only reads.
func TestEveryStepIsSpoken(t *testing.T) {
	here, there := net.Pipe()
	defer here.Close()
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, _ = io.Copy(io.Discard, there) // ends with the test
	}()
	w := newTestWorld()
	s := &speaker{d: newDice(1, 1), w: w, trace: w.trace("test"), conn: here, gone: make(chan struct{}), steps: steps, channels: map[uint16]*channel{0: {}}}
	s.hear(frames.TypeHeader, 1, append([]byte{0, 60, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2, 0, 26}, "amq.rabbitmq.reply-to.name"...))
	for _, list := range []weighted[step]{steps, careful, transacting} {
		for _, c := range list {
			switch c.value.name {
			case "waits", "reads nothing", "a burst":
				continue
			}
			for n := range 30 {
				if n%10 == 0 {
					s.note(1, func(ch *channel) { *ch = channel{open: true, tags: []uint64{1, 2}, consumers: []string{"t"}} })
				}
				if err := c.value.do(s, 1); err != nil {
					t.Fatalf("%s: %v", c.value.name, err)
				}
			}
		}
	}
	for range 300 {
		if err := s.wild(); err != nil {
			t.Fatal(err)
		}
	}
	here.Close()
	<-done
}

// TestFindings: what a server must not say is a finding, and what it may is none.
func TestFindings(t *testing.T) {
	closing := func(code uint16, text string) []byte {
		return frames.Method(1, 20, 40, code, text, uint16(60), uint16(40))[7:]
	}
	for text, found := range map[string]bool{
		"INTERNAL_ERROR - internal error":                    true,
		"INTERNAL_ERROR - the catalog cannot be reached":     false,
		"INTERNAL_ERROR - operation timed out":               false,
		"NOT_FOUND - no queue 'internal error' in vhost '/'": false,
	} {
		w := newTestWorld()
		s := &speaker{d: newDice(1, 1), w: w, trace: w.trace("test"), channels: map[uint16]*channel{1: {open: true}}}
		f := closing(541, text)
		s.hear(frames.TypeMethod, 1, f[:len(f)-1])
		if got := len(w.allFindings()) > 0; got != found {
			t.Errorf("%q: a finding %v", text, got)
		}
		if !s.of(1).closed {
			t.Errorf("%q: the channel is not taken for closed", text)
		}
	}
}

// TestEveryCallIsFilled fills the requests of all methods of the API: they can be sent.
func TestEveryCallIsFilled(t *testing.T) {
	c := &caller{d: newDice(1, 1), w: newTestWorld()}
	for _, m := range calls {
		for range 20 {
			c.name = string(m.Name())
			msg := newOf(m.Input())
			c.fill(msg.ProtoReflect(), 4, true)
			if _, err := proto.Marshal(msg); err != nil {
				t.Errorf("%s: %v", m.FullName(), err)
			}
		}
	}
}

func TestMessageOfALine(t *testing.T) {
	for line, want := range map[string]string{
		`time=x level=WARN msg="login refused" node=n`: "WARN login refused",
		`time=x level=ERROR msg=alarm node=n`:          "ERROR alarm",
	} {
		if got := message(line); got != want {
			t.Errorf("%q: got %q, want %q", line, got, want)
		}
	}
}
