package transport

import (
	"context"
	"errors"
	"testing"
	"time"
)

// TestCallsThatWaitedTooLongAreNotMade shows that a call whose caller has given up while it waited for a worker is not made: a node that has fallen behind
// would do nothing but what nobody waits for.
func TestCallsThatWaitedTooLongAreNotMade(t *testing.T) {
	a, b := pair(t, func(c *Config) { c.Workers = 1 })
	hold, held := make(chan struct{}), make(chan struct{})
	b.HandleCall(1, func(context.Context, NodeID, []byte) ([]byte, error) {
		close(held)
		<-hold
		return nil, nil
	})
	made := make(chan string, 2)
	b.HandleCall(2, func(_ context.Context, _ NodeID, req []byte) ([]byte, error) {
		made <- string(req)
		return nil, nil
	})
	first := make(chan error, 1)
	go func() {
		_, err := a.Call(context.Background(), "b/1", 1, nil)
		first <- err
	}()
	<-held
	if _, err := a.Call(withTimeout(t, 50*time.Millisecond), "b/1", 2, []byte("late")); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("a call that waits ended with %v", err)
	}
	until(t, "it waits for a worker", func() bool { b.workers.mu.Lock(); defer b.workers.mu.Unlock(); return len(b.workers.queue) == 1 })
	time.Sleep(100 * time.Millisecond) // its time is over there, too
	close(hold)
	if err := <-first; err != nil {
		t.Fatal(err)
	}
	if _, err := a.Call(withTimeout(t, time.Minute), "b/1", 2, []byte("in time")); err != nil {
		t.Fatal(err)
	}
	if got := <-made; got != "in time" {
		t.Errorf("the call that was %s was made", got)
	}
}
