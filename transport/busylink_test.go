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

// TestBlockedLinkIsGivenUp shows that a link whose other end takes nothing any more ends by its silence although its writer waits
// for room in the connection: a node that came back elsewhere would not be dialled until the kernel gives up, a quarter of an hour later.
func TestBlockedLinkIsGivenUp(t *testing.T) {
	t.Parallel()
	d := &directory{}
	a := startMesh(t, d, "a/1", func(c *Config) { c.SilenceMax = time.Second })
	startMesh(t, d, "b/1", nil)
	straight, _ := d.resolver("")("b/1")
	p := startProxy(t, straight)
	d.set("a/1", "b/1", p.addr())
	a.SetPeers([]NodeID{"b/1"})
	untilUp(t, a, "b/1")
	until(t, "a ping is answered", func() bool { return a.Peer("b/1").RTT > 0 })
	d.set("a/1", "b/1", straight) // where it is from now on
	p.frozen.Store(true)
	made := a.Stats().LinksMade
	until(t, "the link takes no more", func() bool { return errors.Is(a.Send("b/1", 1, make([]byte, 1<<20)), ErrBacklog) })
	until(t, "there is another link", func() bool { return a.Stats().LinksMade > made && a.Peer("b/1").Up })
}

// TestPingAtOnce shows that who waits for an answer to a ping need not wait for the next one that is due, and that many who wait share one.
func TestPingAtOnce(t *testing.T) {
	t.Parallel()
	d := &directory{}
	a := startMesh(t, d, "a/1", func(c *Config) { c.PingInterval, c.SilenceMax = time.Hour, 3*time.Hour })
	startMesh(t, d, "b/1", nil)
	a.SetPeers([]NodeID{"b/1"})
	untilUp(t, a, "b/1")
	p, err := a.peer("b/1")
	if err != nil {
		t.Fatal(err)
	}
	since := time.Now()
	a.Ping("b/1", since)
	sent := p.current().pinged.Load()
	for range 100 {
		a.Ping("b/1", since)
	}
	if p.current().pinged.Load() != sent {
		t.Error("more than one ping was sent")
	}
	until(t, "an answer", func() bool { return a.Peer("b/1").LastAnswered.After(since) })
	a.Ping("a/1", time.Now())
	a.Ping("c/1", time.Now()) // nobody
}
