package detector

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/warrenmq/warren/transport"
)

// When half of the nodes die at once, those that are left find it if most of the catalog's voters are among them and nobody hears the dead.
func TestVotersFindHalfOfTheNodesDead(t *testing.T) {
	type ids = []transport.NodeID
	four, five := ids{"a", "b", "c", "d"}, ids{"a", "b", "c", "d", "e"}
	for _, k := range []struct {
		name          string
		nodes, voters ids
		harm          func(s *sky)
		left, lost    ids
		want          State
		within        time.Duration
	}{
		{"most voters are left", four, ids{"a", "b", "c"}, func(s *sky) { s.kill("c", "d") }, ids{"a", "b"}, ids{"c", "d"}, Dead, time.Second},
		{"three of five", five, ids{"a", "b", "c"}, func(s *sky) { s.kill("c", "d", "e") }, ids{"a", "b"}, ids{"c", "d", "e"}, Dead, time.Second},
		{"silent", four, ids{"a", "b", "c"}, func(s *sky) { s.part(ids{"a", "b"}, ids{"c", "d"}) }, ids{"a", "b"}, ids{"c", "d"}, Dead, 3 * time.Second},
		{"the other side of that", four, ids{"a", "b", "c"}, func(s *sky) { s.part(ids{"a", "b"}, ids{"c", "d"}) }, ids{"c", "d"}, ids{"a", "b"}, Suspect, 10 * time.Second},
		{"most voters are lost", four, ids{"a", "c", "d"}, func(s *sky) { s.kill("c", "d") }, ids{"a", "b"}, ids{"c", "d"}, Suspect, 10 * time.Second},
		{"too few voters to tell", ids{"a", "b"}, ids{"a"}, func(s *sky) { s.kill("b") }, ids{"a"}, ids{"b"}, Suspect, 10 * time.Second},
		{"one alone", ids{"a", "b", "c"}, ids{"a", "b", "c"}, func(s *sky) { s.kill("b", "c") }, ids{"a"}, ids{"b", "c"}, Suspect, 10 * time.Second},
		{"the others hear it", five, ids{"a", "b", "c"}, func(s *sky) { s.part(ids{"a", "b"}, ids{"d"}) }, ids{"a", "b"}, ids{"d"}, Suspect, 10 * time.Second},
	} {
		t.Run(k.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newSky(t, k.nodes...)
				defer s.close()
				s.mu.Lock()
				s.voters = k.voters
				s.mu.Unlock()
				time.Sleep(time.Second)
				k.harm(s)
				time.Sleep(k.within)
				for _, x := range k.left {
					for _, y := range k.lost {
						if got := s.nodes[x].det.State(y); got != k.want {
							t.Errorf("%s judges %s %v, want %v", x, y, got, k.want)
						}
					}
				}
			})
		})
	}
}

// Those who pass for living must have answered before the voters' word is enough: they may hear the suspect.
func TestVotersWaitForSlowAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSky(t, "a", "b", "c", "d", "e")
		defer s.close()
		s.mu.Lock()
		s.voters = []transport.NodeID{"a", "b", "c"}
		s.nodes["c"].slow, s.nodes["e"].slow = 2*time.Second, 5*time.Second
		s.mu.Unlock()
		time.Sleep(time.Second)
		s.part([]transport.NodeID{"a", "b"}, []transport.NodeID{"d"})
		for range 300 {
			time.Sleep(100 * time.Millisecond)
			for _, x := range []transport.NodeID{"a", "b"} {
				if got := s.nodes[x].det.State("d"); got == Dead {
					t.Fatalf("%s judges d dead, which c and e hear", x)
				}
			}
		}
	})
}

// part cuts two sides off from each other.
func (s *sky) part(a, b []transport.NodeID) {
	for _, x := range a {
		for _, y := range b {
			s.cut(x, y, true)
		}
	}
}
