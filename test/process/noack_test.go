package process

import (
	"encoding/binary"
	"strings"
	"testing"
	"time"
)

// TestNoAckOnceOverConnectionError: a client that breaks a rule has read, or will read, all deliveries before the
// broker's connection.close. What needs no ack must not come to another client as well.
// RabbitMQ has no more what it was about to send.
func TestNoAckOnceOverConnectionError(t *testing.T) {
	needWarren(t)
	t.Parallel()
	eachTarget(t, noAckOnceOverConnectionError)
}

func noAckOnceOverConnectionError(t *testing.T, to target) {
	s := newSession(t, to)
	q := s.queue("q", nil)
	const messages = 8000
	body := strings.Repeat("b", 2<<10) // in all more than sockets hold
	bodies := make([]string, messages)
	for i := range bodies {
		bodies[i] = body
	}
	s.fill(q, bodies...)

	w := dialWire(t, to)
	w.login()
	w.send(method(1, 60, 20, uint16(0), q, "", byte(1<<1), []byte(nil)))
	w.expect(60, 21)
	time.Sleep(300 * time.Millisecond) // the node fills the sockets
	w.send(method(1, 20, 10, ""))      // a second channel.open
	came := 0
	for over := false; !over; {
		kind, _, payload, err := w.read()
		if err != nil {
			t.Fatal(err)
		}
		if kind != frameMethod {
			continue
		}
		switch [2]uint16{binary.BigEndian.Uint16(payload), binary.BigEndian.Uint16(payload[2:])} {
		case [2]uint16{60, 60}:
			came++
		case [2]uint16{10, 50}:
			over = true
		}
	}
	w.send(method(0, 10, 51))
	if came == 0 || came == messages {
		t.Errorf("%d of %d messages came before the close: this tests nothing", came, messages)
	}
	s.ready(q, messages-came)
}
