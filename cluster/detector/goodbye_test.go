package detector

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/warrenmq/warren/transport"
)

// A process that says goodbye is dead to all at once and stays so while its link lives on; the next run of the node is alive again, whatever
// arrives late of the one before. Who is cut off from it is told by the others.
func TestGoodbye(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSky(t, "a", "b", "c", "d")
		defer s.close()
		s.cut("b", "c", true)
		time.Sleep(time.Second)
		began := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		s.nodes["c"].det.Goodbye(ctx)
		time.Sleep(10 * time.Millisecond)
		for _, id := range []transport.NodeID{"a", "d"} {
			n := s.nodes[id]
			seen := n.seen()
			last := seen[len(seen)-1]
			if n.det.State("c") != Dead || last.Node != "c" || !last.Left || !last.Refused || last.At.Sub(began) > 1100*time.Millisecond {
				t.Errorf("%s: %v, %+v", id, n.det.State("c"), last)
			}
		}
		b := s.nodes["b"].seen()
		if last := b[len(b)-1]; last.Node != "c" || last.State != Dead || last.Left {
			t.Errorf("b, which is cut off, hears from the others: %+v", last)
		}
		time.Sleep(5 * time.Second) // its link still answers
		if st := s.nodes["a"].det.State("c"); st != Dead {
			t.Errorf("after five seconds: %v", st)
		}
		s.kill("c")
		time.Sleep(time.Second)
		s.mu.Lock()
		s.nodes["c"].run = 2
		s.mu.Unlock()
		s.cut("b", "c", false)
		s.revive("c")
		time.Sleep(5 * time.Second)
		if _, err := s.nodes["a"].det.goodbye(t.Context(), "c", encodeGoodbye(1)); err != nil {
			t.Error(err)
		}
		time.Sleep(time.Second)
		for _, id := range []transport.NodeID{"a", "b", "d"} {
			if st := s.nodes[id].det.State("c"); st != Alive {
				t.Errorf("%s: the next run is %v", id, st)
			}
		}
		for _, bad := range [][]byte{nil, {1}, {2, 1}, {1, 0}, {1, 1, 1}, {1, 0x80}} {
			if _, err := s.nodes["a"].det.goodbye(t.Context(), "c", bad); !errors.Is(err, errOpinion) {
				t.Errorf("%x: %v", bad, err)
			}
		}
		if _, err := s.nodes["a"].det.goodbye(t.Context(), "stranger", encodeGoodbye(7)); err != nil {
			t.Error(err)
		}
	})
}
