package process

import (
	"context"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/warrenmq/warren/test/cluster"
)

// standby is a client that asks again and again for a queue that another one has for itself.
type standby struct {
	got  atomic.Int64 // when it got the queue, in nanoseconds, 0: not yet
	stop func()
}

// standBy keeps asking at a node until it gets the queue.
func standBy(t *testing.T, n *cluster.Node, queue string, exclusive bool) *standby {
	t.Helper()
	b, s := &standby{}, at(t, n)
	ctx, cancel := context.WithCancel(context.Background())
	var working sync.WaitGroup
	b.stop = func() { cancel(); working.Wait() }
	t.Cleanup(b.stop)
	working.Go(func() {
		for ctx.Err() == nil {
			ch, err := s.conn.Channel()
			if err != nil {
				return
			}
			if _, err = ch.Consume(queue, "", false, exclusive, false, false, nil); err == nil {
				b.got.Store(time.Now().UnixNano())
				return
			}
		}
	})
	return b
}

// TestStandbysDoNotGetAnExclusiveQueue kills the leader of a queue that a client of another node has for itself, while others keep asking for it: the
// next leader lets nobody in before it has heard of that client.
func TestStandbysDoNotGetAnExclusiveQueue(t *testing.T) {
	t.Parallel()
	needWarren(t)
	c := startCluster(t, 3)
	q := plainQueue(at(t, c.Node(0)), "mine", nil)
	for range 3 {
		leader, others := leaderOf(t, c, q)
		holder := at(t, others[0])
		deliveries, err := holder.ch.Consume(q, "", false, true, false, false, nil)
		holder.noError("consume", err)
		var standbys []*standby
		for _, exclusive := range []bool{true, false} {
			for range 4 {
				standbys = append(standbys, standBy(t, others[1], q, exclusive))
			}
		}
		kill(t, leader)
		other := at(t, others[1])
		other.fill(q, "after")
		holder.noError("ack", holder.take(deliveries, false, "after")[0].Ack(false))
		for i, b := range standbys {
			if b.stop(); b.got.Load() > 0 {
				t.Errorf("standby %d got a queue that another client has for itself", i)
			}
		}
		_ = holder.conn.Close()
		_ = other.conn.Close()
		start(t, leader)
	}
}

// TestExclusiveConsumerOfAFrozenNode: its node is taken for dead and another client gets the queue. When the node is back, its client does not share it.
func TestExclusiveConsumerOfAFrozenNode(t *testing.T) {
	t.Parallel()
	needWarren(t)
	c := startCluster(t, 3)
	q := plainQueue(at(t, c.Node(0)), "mine", nil)
	_, others := leaderOf(t, c, q)
	holder := at(t, others[0])
	deliveries, err := holder.ch.Consume(q, "", false, true, false, false, nil)
	holder.noError("consume", err)
	cancelled := holder.ch.NotifyCancel(make(chan string, 1))
	next := standBy(t, others[1], q, true)
	if err := others[0].Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	await(t, timeoutReply, "the other client gets it", func() bool { return next.got.Load() > 0 })
	if err := others[0].Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	select {
	case <-cancelled:
	case <-time.After(timeoutReply):
		t.Fatal("both have it")
	}
	if _, more := <-deliveries; more {
		t.Error("a delivery")
	}
}
