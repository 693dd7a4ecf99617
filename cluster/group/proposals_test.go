package group

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"
)

func TestOrderAndResults(t *testing.T) {
	bubble(t, 3, nil, func(t *testing.T, c *memCluster) {
		c.found(Spec{ID: queueA})
		g := c.waitLeader(queueA, time.Second)
		const n = 1000
		var mu sync.Mutex
		var got []int
		var want []string
		left := n
		done := make(chan struct{})
		for i := range n {
			want = append(want, fmt.Sprint(i))
			g.Propose([]byte(want[i]), func(v any, err error) {
				mu.Lock()
				defer mu.Unlock()
				if err != nil {
					t.Errorf("proposal %d: %v", i, err)
				} else if v != i+1 {
					t.Errorf("proposal %d: result %v", i, v)
				}
				got = append(got, i)
				if left--; left == 0 {
					close(done)
				}
			})
		}
		<-done
		if !slices.IsSorted(got) || len(got) != n {
			t.Errorf("%d answers, sorted %v", len(got), slices.IsSorted(got))
		}
		c.agree(queueA, want)
	})
}

func TestRefusals(t *testing.T) {
	bubble(t, 3, func(h *HostConfig) { h.BacklogMax = 4 }, func(t *testing.T, c *memCluster) {
		c.found(Spec{ID: queueA, Preferred: "n0"})
		g := c.waitLeader(queueA, time.Second)
		other, _ := c.nodes["n2"].host.Group(queueA)
		if _, err := propose(other, "x"); !errors.Is(err, ErrNotLeader) {
			t.Errorf("follower: got %v, want ErrNotLeader", err)
		}
		if _, err := propose(g, ""); !errors.Is(err, ErrEmpty) {
			t.Errorf("empty: got %v, want ErrEmpty", err)
		}
		resume := g.pause()
		for range 4 {
			g.Propose([]byte("waits"), nil)
		}
		if _, err := propose(g, "too much"); !errors.Is(err, ErrOverloaded) {
			t.Errorf("full backlog: got %v, want ErrOverloaded", err)
		}
		resume()
		if _, err := propose(g, "again"); err != nil {
			t.Errorf("after the pause: %v", err)
		}
		if err := c.nodes["n0"].host.Stop(queueA); err != nil {
			t.Fatal(err)
		}
		if _, err := propose(g, "late"); !errors.Is(err, ErrStopped) {
			t.Errorf("stopped: got %v, want ErrStopped", err)
		}
	})
}

func TestLostLeadershipAnswersUnknown(t *testing.T) {
	bubble(t, 3, nil, func(t *testing.T, c *memCluster) {
		c.found(Spec{ID: queueA, Preferred: "n0"})
		old := c.waitLeader(queueA, time.Second)
		if _, err := propose(old, "a"); err != nil {
			t.Fatal(err)
		}
		c.net.isolate("n0", true)
		errs := make(chan error, 60)
		for i := range 60 { // 48 in flight, the rest never handed over
			old.Propose([]byte(fmt.Sprintf("lost%d", i)), func(_ any, err error) { errs <- err })
		}
		g := c.waitLeader(queueA, 5*time.Second, "n0")
		if _, err := propose(g, "b"); err != nil {
			t.Fatal(err)
		}
		c.net.isolate("n0", false)
		for i := range 60 {
			want := ErrUnknown
			if i >= inFlightCeiling {
				want = ErrNotLeader
			}
			if err := <-errs; !errors.Is(err, want) {
				t.Errorf("proposal %d: got %v, want %v", i, err, want)
			}
		}
		c.agree(queueA, []string{"a", "b"})
	})
}
