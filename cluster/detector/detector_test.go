package detector

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/warrenmq/warren/transport"
)

// sky is what the nodes can see of each other.
type sky struct {
	mu    sync.Mutex
	nodes map[transport.NodeID]*star
	// blind pairs do not hear each other; the value is since when.
	blind map[[2]transport.NodeID]time.Time
	far   time.Duration // how long a question takes, set before anybody asks
	// voters are Config.Voters of all nodes.
	voters []transport.NodeID
}

// star is one node of a sky.
type star struct {
	sky     *sky
	id      transport.NodeID
	gone    time.Time     // killed then; zero while it lives
	deaf    time.Time     // since when nothing arrives here, while what it sends does; zero if that is not so
	run     uint64        // of its process
	slow    time.Duration // how long it takes to answer, set before anybody asks
	handler map[uint8]func(context.Context, transport.NodeID, []byte) ([]byte, error)
	changed func(transport.PeerStatus)
	det     *Detector
	// starved makes every look take this long, and lets the node read answers that
	// arrived only at every fourth.
	starved time.Duration
	looks   int
	read    time.Time

	evMu   sync.Mutex
	events []Event
}

func newSky(t *testing.T, ids ...transport.NodeID) *sky {
	s := &sky{nodes: make(map[transport.NodeID]*star), blind: make(map[[2]transport.NodeID]time.Time)}
	for _, id := range ids {
		s.nodes[id] = &star{sky: s, id: id, run: 1}
	}
	for _, n := range s.nodes {
		var err error
		n.det, err = New(Config{Local: n.id, Net: n, Logger: slog.New(slog.DiscardHandler), Voters: s.voting})
		if err != nil {
			t.Fatal(err)
		}
		n.det.Subscribe(func(e Event) {
			n.evMu.Lock()
			defer n.evMu.Unlock()
			n.events = append(n.events, e)
		})
		n.det.SetPeers(ids)
	}
	return s
}

func (s *sky) close() {
	for _, n := range s.nodes {
		n.det.Close()
	}
}

func (n *star) seen() []Event {
	n.evMu.Lock()
	defer n.evMu.Unlock()
	return append([]Event(nil), n.events...)
}

// cutSince returns since when two nodes have not heard each other; zero if they do.
func (s *sky) cutSince(a, b transport.NodeID) time.Time {
	if a > b {
		a, b = b, a
	}
	return s.blind[[2]transport.NodeID{a, b}]
}

func (s *sky) cut(a, b transport.NodeID, on bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if a > b {
		a, b = b, a
	}
	if on {
		s.blind[[2]transport.NodeID{a, b}] = time.Now()
	} else {
		delete(s.blind, [2]transport.NodeID{a, b})
	}
}

func (s *sky) voting() []transport.NodeID {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.voters
}

// kill ends nodes' processes, all at once: their ports refuse from now on and all streams reset.
func (s *sky) kill(ids ...transport.NodeID) {
	s.mu.Lock()
	for _, id := range ids {
		s.nodes[id].gone = time.Now()
	}
	var told []func(transport.PeerStatus)
	for _, n := range s.nodes {
		if n.gone.IsZero() {
			told = append(told, n.changed)
		}
	}
	s.mu.Unlock()
	for _, f := range told {
		for _, id := range ids {
			f(transport.PeerStatus{Node: id, Refused: true})
		}
	}
}

func (s *sky) revive(id transport.NodeID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.nodes[id].gone = time.Time{}
}

func (n *star) Peer(id transport.NodeID) transport.PeerStatus {
	if n.starved > 0 {
		time.Sleep(n.starved)
		if n.looks++; n.looks%4 == 1 {
			n.read = time.Now().Add(-250 * time.Millisecond)
		}
		return transport.PeerStatus{Node: id, Up: true, LastAnswered: n.read}
	}
	n.sky.mu.Lock()
	defer n.sky.mu.Unlock()
	st := transport.PeerStatus{Node: id, Up: true, LastAnswered: time.Now(), Process: n.sky.nodes[id].run}
	if gone := n.sky.nodes[id].gone; !gone.IsZero() {
		st.Up, st.Refused, st.LastAnswered = false, true, gone
	} else if since := n.sky.cutSince(n.id, id); !since.IsZero() {
		st.LastAnswered = since
	} else if since := n.sky.nodes[id].deaf; !since.IsZero() {
		st.LastAnswered, st.LastHeard = since, time.Now()
	} else if !n.deaf.IsZero() {
		st.LastAnswered = n.deaf
	}
	return st
}

func (n *star) OnPeerChange(f func(transport.PeerStatus)) { n.changed = f }

func (n *star) HandleCall(method uint8, h func(context.Context, transport.NodeID, []byte) ([]byte, error)) {
	if n.handler == nil {
		n.handler = make(map[uint8]func(context.Context, transport.NodeID, []byte) ([]byte, error))
	}
	n.handler[method] = h
}

func (n *star) Call(ctx context.Context, to transport.NodeID, method uint8, request []byte) ([]byte, error) {
	n.sky.mu.Lock()
	peer := n.sky.nodes[to]
	dead, blind := !peer.gone.IsZero(), !n.sky.cutSince(n.id, to).IsZero() || !peer.deaf.IsZero() || !n.deaf.IsZero()
	n.sky.mu.Unlock()
	if dead {
		return nil, errors.New("refused")
	}
	if blind {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	select {
	case <-time.After(max(n.sky.far, peer.slow, time.Millisecond)):
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	return peer.handler[method](ctx, n.id, request)
}

func TestVerdicts(t *testing.T) {
	ids := []transport.NodeID{"a", "b", "c"}
	cases := []struct {
		name   string
		do     func(s *sky)
		wait   time.Duration
		a      State // a's verdict about c
		within time.Duration
	}{
		{"killed", func(s *sky) { s.kill("c") }, time.Second, Dead, 120 * time.Millisecond},
		{"silent to all", func(s *sky) { s.cut("a", "c", true); s.cut("b", "c", true) }, 4 * time.Second, Dead, 2 * time.Second},
		{"silent to one only", func(s *sky) { s.cut("a", "c", true) }, 30 * time.Second, Suspect, 0},
		{"cut off itself", func(s *sky) { s.cut("a", "b", true); s.cut("a", "c", true) }, 30 * time.Second, Suspect, 0},
		{"nothing", func(*sky) {}, 30 * time.Second, Alive, 0},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newSky(t, ids...)
				defer s.close()
				time.Sleep(time.Second)
				began := time.Now()
				c.do(s)
				time.Sleep(c.wait)
				if got := s.nodes["a"].det.State("c"); got != c.a {
					t.Errorf("a judges c %v, want %v", got, c.a)
				}
				for _, e := range s.nodes["a"].seen() {
					if e.State == Dead && c.a != Dead {
						t.Errorf("unexpected verdict %+v", e)
					}
					if e.State == Dead && e.At.Sub(began) > c.within {
						t.Errorf("dead after %v, want within %v", e.At.Sub(began), c.within)
					}
				}
			})
		})
	}
}

// TestSlowLinkBetweenSurvivors: nodes that need a second to answer each other still agree
// on a death (found by package jepsen: a leader that froze while another node's links were slow
// was not replaced).
func TestSlowLinkBetweenSurvivors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSky(t, "a", "b", "c")
		s.far = time.Second
		defer s.close()
		time.Sleep(time.Second)
		began := time.Now()
		s.cut("a", "c", true)
		s.cut("b", "c", true)
		time.Sleep(10 * time.Second)
		for _, n := range []transport.NodeID{"a", "b"} {
			events := s.nodes[n].seen()
			last := events[len(events)-1]
			if last.Node != "c" || last.State != Dead || last.At.Sub(began) > 5*time.Second {
				t.Errorf("%s has %+v after %v, want the death of c within 5 s", n, last, last.At.Sub(began))
			}
		}
	})
}

// TestDeafNode: what a node sends arrives, but nothing gets to it. It may be starved, so more patience
// is due than with one that is silent; but it must not go on for ever as a leader who confirms nothing.
func TestDeafNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSky(t, "a", "b", "c")
		defer s.close()
		time.Sleep(time.Second)
		s.mu.Lock()
		s.nodes["c"].deaf = time.Now()
		s.mu.Unlock()
		time.Sleep(4500 * time.Millisecond)
		for _, id := range []transport.NodeID{"a", "b"} {
			if got := s.nodes[id].det.State("c"); got != Alive {
				t.Errorf("after 4.5 s %s judges c %v, want alive", id, got)
			}
		}
		time.Sleep(time.Second)
		for _, id := range []transport.NodeID{"a", "b"} {
			if got := s.nodes[id].det.State("c"); got != Dead {
				t.Errorf("after 5.5 s %s judges c %v, want dead", id, got)
			}
		}
		if got := s.nodes["c"].det.State("a"); got != Suspect {
			t.Errorf("c, which has no majority, judges a %v, want suspect", got)
		}
	})
}

func TestDeadNodeReturns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSky(t, "a", "b", "c")
		defer s.close()
		time.Sleep(time.Second)
		s.kill("c")
		time.Sleep(time.Second)
		s.revive("c")
		time.Sleep(time.Second)
		var got []State
		for _, e := range s.nodes["a"].seen() {
			if e.Node == "c" {
				got = append(got, e.State)
			}
		}
		if len(got) != 3 || got[0] != Alive || got[1] != Dead || got[2] != Alive {
			t.Errorf("verdicts about c: %v, want alive, dead, alive", got)
		}
		if e := s.nodes["a"].seen(); !e[len(e)-2].Refused {
			t.Error("the death does not tell that the port refused")
		}
	})
}

func TestFiveNodesTwoDeaths(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSky(t, "a", "b", "c", "d", "e")
		defer s.close()
		time.Sleep(time.Second)
		for _, x := range []transport.NodeID{"a", "b", "c"} {
			s.cut(x, "d", true)
			s.cut(x, "e", true)
		}
		time.Sleep(5 * time.Second)
		for _, x := range []transport.NodeID{"a", "b", "c"} {
			for _, y := range []transport.NodeID{"d", "e"} {
				if got := s.nodes[x].det.State(y); got != Dead {
					t.Errorf("%s judges %s %v, want dead", x, y, got)
				}
			}
		}
		// The two have no majority and condemn nobody.
		if got := s.nodes["d"].det.State("a"); got != Suspect {
			t.Errorf("d judges a %v, want suspect", got)
		}
	})
}

// Those that are left find one death after the other, down to two nodes, and a minority that is cut off before finds none.
func TestOneDeathAfterTheOther(t *testing.T) {
	for _, ids := range [][]transport.NodeID{{"a", "b", "c", "d"}, {"a", "b", "c", "d", "e"}} {
		synctest.Test(t, func(t *testing.T) {
			s := newSky(t, ids...)
			defer s.close()
			time.Sleep(time.Second)
			for n := len(ids) - 1; n > 1; n-- {
				s.kill(ids[n])
				time.Sleep(time.Second)
				for _, x := range ids[:n] {
					if got := s.nodes[x].det.State(ids[n]); got != Dead {
						t.Errorf("of %v, %s judges %s %v, want dead", ids[:n+1], x, ids[n], got)
					}
				}
			}
			s.kill("b")
			time.Sleep(10 * time.Second)
			if got := s.nodes["a"].det.State("b"); got != Suspect {
				t.Errorf("a alone judges b %v, want suspect", got)
			}
			for n := 1; n < len(ids); n++ {
				s.revive(ids[n])
			}
			time.Sleep(10 * time.Second)
			for _, x := range ids[2:] {
				for _, y := range ids[:2] {
					s.cut(x, y, true)
				}
			}
			time.Sleep(10 * time.Second)
			for _, y := range ids[2:] {
				if got := s.nodes["a"].det.State(y); got != Suspect {
					t.Errorf("a, with b, judges %s %v, want suspect", y, got)
				}
			}
		})
	}
}

func TestPeersChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSky(t, "a", "b", "c")
		defer s.close()
		time.Sleep(time.Second)
		d := s.nodes["a"].det
		d.SetPeers([]transport.NodeID{"a", "b"})
		if got := d.State("c"); got != Unknown {
			t.Errorf("a node no longer watched is %v", got)
		}
		if got := d.State("a"); got != Alive {
			t.Errorf("the local node is %v", got)
		}
		if got := d.State("b"); got != Alive {
			t.Errorf("a node that stays is %v", got)
		}
		if _, err := New(Config{}); err == nil {
			t.Error("an empty configuration is accepted")
		}
	})
}

func TestMalformedQuestion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSky(t, "a", "b")
		defer s.close()
		for _, b := range [][]byte{nil, {1}, {9, 'a'}, make([]byte, 4096)} {
			if _, err := s.nodes["a"].det.answer(t.Context(), "b", b); err == nil {
				t.Errorf("question %d bytes is answered", len(b))
			}
		}
	})
}

// A process that gets the processor only now and then sees old answers, but the peers
// are alive: it must not suspect them. Beside it a slow death is still noticed.
func TestStarvedProcessDoesNotFlap(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &sky{nodes: make(map[transport.NodeID]*star), blind: make(map[[2]transport.NodeID]time.Time)}
		n := &star{sky: s, id: "a", starved: 700 * time.Millisecond}
		s.nodes["a"], s.nodes["b"] = n, &star{sky: s, id: "b"}
		var err error
		n.det, err = New(Config{Local: "a", Net: n, Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		defer n.det.Close()
		n.det.SetPeers([]transport.NodeID{"a", "b"})
		for range 60 {
			time.Sleep(time.Second)
			if st := n.det.State("b"); st == Suspect || st == Dead {
				t.Fatalf("the starved process judges its peer %v", st)
			}
		}
	})
}

// TestLateSubscriber: who subscribes when verdicts have fallen is told of those that hold, once, and then of what follows.
func TestLateSubscriber(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSky(t, "a", "b", "c", "d")
		defer s.close()
		time.Sleep(time.Second)
		alive := time.Now()
		s.kill("b")
		time.Sleep(5 * time.Second)
		d := s.nodes["a"].det
		d.Gone([]transport.NodeID{"x"})
		time.Sleep(time.Second)
		var mu sync.Mutex
		told := map[transport.NodeID][]Event{}
		defer d.Subscribe(func(e Event) {
			mu.Lock()
			defer mu.Unlock()
			told[e.Node] = append(told[e.Node], e)
		})()
		time.Sleep(time.Second)
		s.kill("c")
		s.revive("b")
		time.Sleep(5 * time.Second)
		mu.Lock()
		defer mu.Unlock()
		for n, want := range map[transport.NodeID][]State{"b": {Dead, Alive}, "c": {Alive, Dead}, "d": {Alive}, "x": {Dead}} {
			var got []State
			for _, e := range told[n] {
				got = append(got, e.State)
			}
			if !slices.Equal(got, want) {
				t.Errorf("told of %s: %v, want %v", n, got, want)
			}
		}
		if t.Failed() {
			return
		}
		if e := told["b"][0]; !e.Refused {
			t.Errorf("the process of b does not seem to have ended: %+v", e)
		}
		if e := told["d"][0]; e.At.After(alive) {
			t.Errorf("d is alive since %v, was before %v", e.At, alive)
		}
	})
}

// TestLateSubscriberOfANodeThatReturns: who subscribes when a dead node answers again, but not often enough to be alive, is not told that its
// process has certainly ended: it would take that for the one that runs now.
func TestLateSubscriberOfANodeThatReturns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSky(t, "a", "b", "c")
		defer s.close()
		time.Sleep(time.Second)
		d := s.nodes["a"].det
		for tries := range 50 { // how the pings lie decides whether one has been answered by then, or so many that it is alive
			s.kill("b")
			time.Sleep(5 * time.Second)
			s.revive("b")
			time.Sleep(100*time.Millisecond + time.Duration(tries)*7*time.Millisecond)
			told := make(chan Event, 10)
			stop := d.Subscribe(func(e Event) {
				if e.Node == "b" {
					told <- e
				}
			})
			first, second := next(told), next(told)
			stop()
			if first.State != Dead || first.Refused {
				time.Sleep(5 * time.Second)
				continue
			}
			if second.State != Alive || second.Node != "b" {
				t.Errorf("%+v", second)
			}
			return
		}
		t.Error("a node that has answered again is never told as dead and perhaps at work")
	})
}

// next is the next event, or none if it does not come within a second.
func next(told <-chan Event) Event {
	select {
	case e := <-told:
		return e
	case <-time.After(time.Second):
		return Event{}
	}
}

// TestReplacedNodeIsDead: a node whose name was taken by a newer storage is dead from then on, whether it was missed before or not, is told of
// once, and counts for no majority; nothing makes it alive again.
func TestReplacedNodeIsDead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSky(t, "a", "b", "c", "d")
		defer s.close()
		time.Sleep(time.Second)
		d := s.nodes["a"].det
		var mu sync.Mutex
		dead := map[transport.NodeID]int{}
		defer d.Subscribe(func(e Event) {
			mu.Lock()
			defer mu.Unlock()
			if e.State == Dead && e.Refused {
				dead[e.Node]++
			}
		})()
		s.kill("b")
		time.Sleep(5 * time.Second)
		for range 2 { // c was not missed; nobody ever heard of x
			d.Gone([]transport.NodeID{"a", "b", "c", "x"})
			d.SetPeers([]transport.NodeID{"a", "b", "c", "d"})
			time.Sleep(time.Second)
		}
		for n, want := range map[transport.NodeID]State{"a": Alive, "b": Dead, "c": Dead, "d": Alive, "x": Dead} {
			if got := d.State(n); got != want {
				t.Errorf("%s is %v, want %v", n, got, want)
			}
		}
		mu.Lock()
		defer mu.Unlock()
		if len(dead) != 3 || dead["b"] != 1 || dead["c"] != 1 || dead["x"] != 1 {
			t.Errorf("told of deaths %v", dead)
		}
		if got := d.majority(); got != 2 {
			t.Errorf("a majority of a and d is %d", got)
		}
	})
}
