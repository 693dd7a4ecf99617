package detector

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/warrenmq/warren/transport"
)

const (
	tick    = 100 * time.Millisecond
	limit   = 1500 * time.Millisecond
	hearing = 750 * time.Millisecond
)

func TestPeerSteps(t *testing.T) {
	base := time.Unix(1000, 0)
	up := func(at int) transport.PeerStatus {
		return transport.PeerStatus{Up: true, LastAnswered: base.Add(time.Duration(at) * time.Second)}
	}
	heard := func(at int) transport.PeerStatus {
		s := up(1)
		s.LastHeard = base.Add(time.Duration(at) * time.Second)
		return s
	}
	run := func(process uint64, at int) transport.PeerStatus {
		s := up(at)
		s.Process = process
		return s
	}
	cases := []struct {
		name  string
		start State
		see   []transport.PeerStatus
		gap   time.Duration
		want  step
		state State
		heard bool
	}{
		{"first answer", Unknown, []transport.PeerStatus{up(1)}, tick, stepAlive, Alive, true},
		{"never answered yet", Unknown, []transport.PeerStatus{{Up: true}}, tick, stepNone, Unknown, false},
		{"never answered at all", Unknown, []transport.PeerStatus{{}, {}}, time.Second, stepAsk, Suspect, false},
		{"refused", Alive, []transport.PeerStatus{up(1), {Refused: true, LastAnswered: up(1).LastAnswered}}, tick, stepAsk, Suspect, false},
		{"stream lost is not enough", Alive, []transport.PeerStatus{up(1), {LastAnswered: up(1).LastAnswered}}, tick, stepNone, Alive, false},
		{"silence", Alive, []transport.PeerStatus{up(1), up(1), up(1)}, 750 * time.Millisecond, stepAsk, Suspect, false},
		{"no answers, but it is heard", Alive, []transport.PeerStatus{up(1), heard(2), heard(3), heard(4), heard(5)}, time.Second, stepNone, Alive, true},
		{"no answers for too long although it is heard", Alive, []transport.PeerStatus{up(1), heard(2), heard(3), heard(4), heard(5), heard(6)}, time.Second, stepAsk, Suspect, false},
		{"neither answers nor heard any more", Alive, []transport.PeerStatus{up(1), heard(2), heard(2), heard(2)}, time.Second, stepAsk, Suspect, false},
		{"one answer does not revive", Dead, []transport.PeerStatus{up(1)}, tick, stepNone, Dead, true},
		{"two answers revive", Dead, []transport.PeerStatus{up(1), up(2)}, tick, stepAlive, Alive, true},
		{"another process speaks for it", Alive, []transport.PeerStatus{run(7, 1), run(8, 2)}, tick, stepRestarted, Alive, true},
		{"the same process after a break", Alive, []transport.PeerStatus{run(7, 1), {LastAnswered: up(1).LastAnswered}, run(7, 2)}, tick, stepNone, Alive, true},
		{"another process of a dead node", Dead, []transport.PeerStatus{run(7, 1), run(8, 1)}, tick, stepAlive, Alive, true},
		{"another process of a node that is dead for long", Dead, []transport.PeerStatus{run(7, 1), {Refused: true, LastAnswered: up(1).LastAnswered}, run(8, 1)}, time.Hour, stepAlive, Alive, true},
		{"the same process of a dead node", Dead, []transport.PeerStatus{run(7, 1), {LastAnswered: up(1).LastAnswered}, run(7, 1)}, tick, stepNone, Dead, true},
		{"refused although up is a race of the transport", Alive, []transport.PeerStatus{{Up: true, Refused: true, LastAnswered: up(1).LastAnswered}}, tick, stepNone, Alive, true},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			p := peer{state: c.start, everAlive: c.start == Alive}
			var got step
			for _, s := range c.see {
				got = p.observe(s, c.gap, limit, hearing)
			}
			if got != c.want || p.state != c.state || p.heard != c.heard {
				t.Errorf("got step %d, state %v, heard %v; want %d, %v, %v", got, p.state, p.heard, c.want, c.state, c.heard)
			}
		})
	}
}

func TestCondemnedOnlyWhileSuspect(t *testing.T) {
	for _, s := range []State{Unknown, Alive, Dead} {
		p := peer{state: s}
		if p.condemn() {
			t.Errorf("a node in state %v was condemned", s)
		}
	}
	p := peer{state: Suspect, everAlive: true}
	if !p.condemn() || p.state != Dead {
		t.Errorf("the suspect is %v", p.state)
	}
}

// A process that runs rarely must not take its own absence for the silence of others.
func TestStarvationIsNotSilence(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		att := attention{tick: tick}
		p := peer{state: Alive, everAlive: true}
		now := time.Unix(1000, 0)
		answered := now
		for range rapid.IntRange(1, 50).Draw(t, "passes") {
			// The process sleeps for up to 5 s; the peer answers every ping, but the
			// newest answer read is as old as the sleep plus a ping period.
			slept := time.Duration(rapid.Int64Range(int64(tick), int64(5*time.Second)).Draw(t, "slept"))
			now = now.Add(slept)
			attended := att.pass(slept)
			if attended > 2*tick {
				t.Fatalf("%v of %v count as attended", attended, slept)
			}
			l := att.stretch(limit, 3*time.Second)
			if l < limit || l > limit+3*time.Second {
				t.Fatalf("limit stretched to %v", l)
			}
			if rapid.IntRange(0, 3).Draw(t, "read") == 0 {
				answered = now.Add(-250 * time.Millisecond)
			} else if now.Sub(answered) > 20*time.Second {
				break
			}
			silent := p.silent
			if p.observe(transport.PeerStatus{Up: true, LastAnswered: answered}, attended, l, hearing) == stepAsk && silent+attended < limit {
				t.Fatalf("suspect after %v attended", silent+attended)
			}
			if p.state == Suspect {
				break
			}
		}
	})
}

func FuzzMessages(f *testing.F) {
	f.Add(encodeQuestion("n1/0000"))
	f.Add(encodeOpinion(opinionHeard))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, b []byte) {
		if n, err := decodeQuestion(b); err == nil {
			if got := encodeQuestion(n); string(got) != string(b) {
				t.Errorf("question %x became %x", b, got)
			}
		}
		if o, err := decodeOpinion(b); err == nil {
			if got := encodeOpinion(o); string(got) != string(b) {
				t.Errorf("opinion %x became %x", b, got)
			}
		}
	})
}
