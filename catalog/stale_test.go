package catalog_test

import (
	"context"
	"fmt"
	"testing"
	"time"
)

// TestOldAnswersVerifyNoLeader: what followers answered before a read says nothing of who leads at that moment, although it arrives afterwards: as at a leader
// whose process was stopped for a moment, or whose link was. Meanwhile they have another one.
func TestOldAnswersVerifyNoLeader(t *testing.T) {
	t.Parallel()
	for range 3 {
		c := newNodes(t, 3)
		c.ready()
		for _, n := range c.all {
			propose(t, n, register(n))
		}
		old := c.leader()
		until(t, "the leader knows that it leads", func() bool { return old.catalog.ReadIndex(t.Context()) == nil })
		old.gate.deafen()
		deafened := time.Now()
		t.Cleanup(old.gate.release)
		// A heartbeat to each is answered, and the answer not here yet. There is none to come to who has just answered one whose answer is not here either.
		for _, n := range c.all {
			for n != old && heardAgo(n) > time.Since(deafened) && time.Since(deafened) < 5*time.Second {
				time.Sleep(time.Millisecond)
			}
		}
		var other *node
		for _, n := range c.all {
			if n != old {
				n.catalog.NodeDead(old.id)
				other = n
			}
		}
		propose(t, other, replicated("new", c.ids...))
		read := make(chan string, 1)
		go func() {
			ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
			defer cancel()
			err := old.catalog.ReadIndex(ctx)
			read <- fmt.Sprintf("%v, has it: %v", err, old.catalog.View().Queue("/", "new") != nil)
		}()
		time.Sleep(50 * time.Millisecond)
		old.gate.release()
		if got := <-read; got == "<nil>, has it: false" {
			t.Fatal("the former leader answers a read with what it had before")
		}
		for id, n := range c.all {
			n.stop(t)
			delete(c.all, id)
		}
	}
}

// heardAgo is how long ago a follower has heard its leader.
func heardAgo(n *node) time.Duration {
	d, err := time.ParseDuration(n.catalog.Stats()["last_contact"])
	if err != nil {
		return time.Hour // never
	}
	return d
}
