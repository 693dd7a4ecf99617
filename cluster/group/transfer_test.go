package group

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"
)

func TestTransfer(t *testing.T) {
	bubble(t, 3, nil, func(t *testing.T, c *memCluster) {
		c.found(Spec{ID: queueA, Preferred: "n0"})
		g := c.waitLeader(queueA, time.Second)
		stop := make(chan struct{})
		var wg sync.WaitGroup
		var acked []string
		wg.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-stop:
					return
				default:
				}
				text := fmt.Sprint(i)
				if _, err := propose(g, text); err == nil {
					acked = append(acked, text)
				} else if !errors.Is(err, ErrNotLeader) {
					t.Errorf("proposal %d: %v, want success or ErrNotLeader", i, err)
				}
				time.Sleep(time.Millisecond)
			}
		})
		time.Sleep(100 * time.Millisecond)
		began := time.Now()
		if err := g.TransferTo(t.Context(), "n2"); err != nil {
			t.Fatal(err)
		}
		t.Logf("transfer took %v", time.Since(began))
		close(stop)
		wg.Wait()
		if now := c.waitLeader(queueA, time.Second); now.host.cfg.Local != "n2" {
			t.Errorf("%s leads, want n2", now.host.cfg.Local)
		}
		c.agree(queueA, acked)
		if err := g.TransferTo(t.Context(), "n1"); !errors.Is(err, ErrNotLeader) {
			t.Errorf("transfer from a follower: %v", err)
		}
	})
}

func TestTransferToAFrozenNodeChangesNothing(t *testing.T) {
	bubble(t, 3, nil, func(t *testing.T, c *memCluster) {
		c.found(Spec{ID: queueA, Preferred: "n0"})
		g := c.waitLeader(queueA, time.Second)
		if err := g.TransferTo(t.Context(), "stranger"); !errors.Is(err, ErrNotMember) {
			t.Errorf("stranger: %v, want ErrNotMember", err)
		}
		c.net.change(func() { c.nodes["n2"].link.frozen = true })
		if err := g.TransferTo(t.Context(), "n2"); !errors.Is(err, ErrTransfer) {
			t.Errorf("frozen: %v, want ErrTransfer", err)
		}
		if _, err := propose(g, "still here"); err != nil {
			t.Errorf("after a failed transfer: %v", err)
		}
	})
}
