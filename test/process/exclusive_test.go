package process

import (
	"errors"
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/warrenmq/warren/test/cluster"
)

// freezeOthers stops the processes of all nodes but one, so that the catalog has no majority, until thaw.
func freezeOthers(t *testing.T, c *cluster.Cluster, but *cluster.Node) (thaw func()) {
	t.Helper()
	signal := func(s syscall.Signal) (err error) {
		for _, n := range c.Nodes() {
			if n != but {
				err = n.Signal(s)
			}
		}
		return err
	}
	thaw = func() { _ = signal(syscall.SIGCONT) } // again at the end, when they may have ended
	t.Cleanup(thaw)
	if err := signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	return thaw
}

// TestExclusiveQueuesGoAfterALostMajority: an exclusive queue whose connection ended while the catalog had no majority, for longer
// than the end of a connection waits, goes as soon as there is one.
func TestExclusiveQueuesGoAfterALostMajority(t *testing.T) {
	t.Parallel()
	c := startCluster(t, 3)
	s := at(t, c.Node(0))
	_, err := s.ch.QueueDeclare("mine", false, false, true, false, nil)
	s.noError("declare", err)
	thaw := freezeOthers(t, c, c.Node(0))
	await(t, timeoutReply, "it is not ready", func() bool {
		code, _, step := readyNow(t, c.Node(0).HTTP())
		return code == 503 && step == "catalog"
	})
	time.Sleep(4 * time.Second) // nor are the others taken for living: a frozen one would act on what is in its socket
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = s.conn.Close()
	}()
	time.Sleep(13 * time.Second) // beyond the ten seconds of one attempt
	thaw()
	<-ended
	await(t, timeoutReply, "the name is free", func() bool {
		other := at(t, c.Node(1))
		defer other.conn.Close()
		_, err := other.ch.QueueDeclare("mine", false, false, true, false, nil)
		return err == nil
	})
}

// TestStopIsBoundedByExclusiveQueues: a node without a majority of the catalog does not wait for the deletion of its exclusive
// queues longer than it may take to stop, and has none when it is back.
func TestStopIsBoundedByExclusiveQueues(t *testing.T) {
	t.Parallel()
	const limit = 9 * time.Second
	c := newCluster(t, 3, func(cfg *cluster.Config) { cfg.Args = []string{"--stop-timeout", limit.String()} })
	startAll(t, c)
	victim := c.Node(0)
	s := at(t, victim)
	for i := range 3 {
		_, err := s.ch.QueueDeclare(fmt.Sprint("mine", i), false, false, true, false, nil)
		s.noError("declare", err)
	}
	thaw := freezeOthers(t, c, victim)
	begun := time.Now()
	stopNode(t, victim)
	took := time.Since(begun)
	t.Logf("stopped in %v without a majority", took)
	if took > bound(limit+time.Second, begun) {
		t.Errorf("the stop took %v", took)
	}
	thaw()
	start(t, victim)
	s = at(t, victim)
	_, err := s.ch.QueueDeclare("mine0", false, false, true, false, nil)
	s.noError("declare anew", err)
}

// TestExclusiveQueueOfADeadNodeIsDeleted: an exclusive queue goes some seconds after its node, which may live cut off; an operator who knows
// better deletes it, by any node and at once.
func TestExclusiveQueueOfADeadNodeIsDeleted(t *testing.T) {
	t.Parallel()
	c := startCluster(t, 3)
	owner := at(t, c.Node(2))
	for _, name := range []string{"mine", "mine too"} {
		_, err := owner.ch.QueueDeclare(name, false, false, true, false, nil)
		owner.noError("declare", err)
	}
	if code, _, stderr := ctl(t, c.Node(0), "delete_queue", "mine"); code != 70 {
		t.Errorf("deleted while its connection is open: %d %s", code, stderr)
	}
	if err := c.Node(2).Kill(); err != nil {
		t.Fatal(err)
	}
	await(t, timeoutReply, "the queue of a dead node can be deleted", func() bool {
		code, _, stderr := ctl(t, c.Node(0), "delete_queue", "mine")
		return code == 0 || strings.Contains(stderr, "no queue") // the cluster was faster
	})
	await(t, timeoutReply, "another node knows that it is dead", func() bool {
		s := at(t, c.Node(1))
		begun := time.Now()
		_, err := s.ch.QueueDelete("mine too", false, false, false)
		if e, ok := errors.AsType[*amqp.Error](err); ok && e.Code == amqp.ResourceLocked {
			return false
		}
		s.noError("delete", err)
		if took := time.Since(begun); took > bound(5*time.Second, begun) {
			t.Errorf("the deletion took %v", took)
		}
		return true
	})
	s := at(t, c.Node(1))
	for _, name := range []string{"mine", "mine too"} {
		_, err := s.ch.QueueDeclare(name, false, false, true, false, nil)
		s.noError("declare again", err)
	}
}

// TestQueuesOfADeadNodeAreDeclaredAnew: clients whose node has died declare at another one at once what they had. That waits until what was in the dead
// node's memory is gone, and is not refused.
func TestQueuesOfADeadNodeAreDeclaredAnew(t *testing.T) {
	t.Parallel()
	c := startCluster(t, 3)
	owner := at(t, c.Node(2))
	_, err := owner.ch.QueueDeclare("mine", false, false, true, false, nil)
	owner.noError("declare", err)
	_, err = owner.ch.QueueDeclare("of one kind", false, false, false, false, nil)
	owner.noError("declare", err)
	heirs := []*session{at(t, c.Node(0)), at(t, c.Node(1))}
	wantClosed(heirs[0], heirs[0].channel(heirs[0].conn), 405, "exclusive access", func(ch *amqp.Channel) error {
		_, err := ch.QueueDeclare("mine", false, false, true, false, nil)
		return err
	})
	kill(t, c.Node(2))
	_, err = heirs[0].ch.QueueDeclare("mine", false, false, true, false, nil)
	heirs[0].noError("declare an exclusive queue anew", err)
	_, err = heirs[1].ch.QueueDeclare("of one kind", false, true, false, false, nil)
	heirs[1].noError("declare a queue of another kind", err)
}
