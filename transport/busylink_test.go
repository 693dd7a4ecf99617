package transport

import (
	"errors"
	"testing"
	"time"
)

// TestBusyLinkIsPinged shows that pings go out also on a link that always has more to send: leases go by their answers.
func TestBusyLinkIsPinged(t *testing.T) {
	m := startMesh(t, &directory{}, "a/1", func(c *Config) { c.PingInterval, c.SilenceMax = 5*time.Millisecond, time.Hour })
	p, err := m.peer("b/1")
	if err != nil {
		t.Fatal(err)
	}
	s := &session{p: p, out: newOutbox(1<<20, m.pool), pending: map[uint64]func([]byte, error){}, done: make(chan struct{}), cancel: func() {}}
	more := func() {
		if err := s.out.put(laneRaft, frameCall, nil, []byte("more")); err != nil {
			t.Error(err)
		}
	}
	enough := errors.New("enough")
	pings, begun := 0, time.Now()
	s.writer = messageWriter{send: func(msg *rawMessage) error {
		more()
		if msg.data[1].ReadOnlyData()[0] == framePing { // what is urgent comes first
			pings++
		}
		if pings == 3 || time.Since(begun) > 10*time.Second {
			return enough
		}
		return nil
	}}
	more()
	s.write()
	if !errors.Is(s.cause, enough) || pings < 3 {
		t.Errorf("%d pings went out: %v", pings, s.cause)
	}
}
