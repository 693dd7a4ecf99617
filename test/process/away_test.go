package process

import (
	"context"
	"fmt"
	"path/filepath"
	"testing"

	"github.com/warrenmq/warren/store"
	"github.com/warrenmq/warren/test/cluster"
)

// TestQueuesDeletedWhileANodeWasAway deletes queues while a node is down: when it is
// back, nothing of them stays on its disk.
func TestQueuesDeletedWhileANodeWasAway(t *testing.T) {
	t.Parallel()
	c := startCluster(t, 3)
	s := at(t, c.Node(0))
	plainQueue(s, "stays", nil)
	s.fill("stays", numbered("s", 3)...)
	var gone []uint64
	for i := range 5 {
		q := plainQueue(s, fmt.Sprint("goes", i), nil)
		s.fill(q, numbered("m", 20)...)
		gone = append(gone, queueID(t, c, q))
	}
	away := c.Node(2)
	kill(t, away)
	for i := range 5 {
		if _, err := s.ch.QueueDelete(fmt.Sprint("goes", i), false, false, false); err != nil {
			t.Fatal(err)
		}
	}
	start(t, away)
	s.ready("stays", 3)
	for _, id := range gone { // it hears of the ends of queues when it is there
		await(t, timeoutReply, "nothing is left of a queue", func() bool { return !hasReplica(t, away, id) })
	}
	ctx, cancel := context.WithTimeout(t.Context(), timeoutStart)
	defer cancel()
	if err := away.Stop(ctx); err != nil {
		t.Fatal(err)
	}
	st, err := store.Open(store.Options{Dir: filepath.Join(away.DataDir(), "log")})
	if err != nil {
		t.Fatal(err)
	}
	groups := st.Groups()
	if err := st.Close(); err != nil {
		t.Fatal(err)
	}
	if len(groups) != 1 {
		t.Errorf("the node keeps groups %v, want one", groups)
	}
}

// TestAutoDeleteQueueOfADeadNode kills the node that leads an auto-delete queue together
// with the queue's only consumer: the queue goes.
func TestAutoDeleteQueueOfADeadNode(t *testing.T) {
	t.Parallel()
	c := startCluster(t, 3)
	s := at(t, c.Node(0))
	declare := func(name string) *cluster.Node {
		if _, err := s.ch.QueueDeclare(name, true, true, false, false, nil); err != nil {
			t.Fatal(err)
		}
		leader, _ := leaderOf(t, c, name)
		return leader
	}
	// The session must outlive the leader's node.
	name, leader := "", c.Node(0)
	for i := 0; leader == c.Node(0); i++ {
		name = fmt.Sprint("auto", i)
		leader = declare(name)
	}
	declare("never consumed")
	at(t, leader).consume(name, 1)
	kill(t, leader)
	ctx, cancel := context.WithTimeout(t.Context(), timeoutReply)
	defer cancel()
	err := cluster.Poll(ctx, func() (bool, error) {
		ch, err := s.conn.Channel()
		if err != nil {
			return false, err
		}
		defer ch.Close()
		_, err = ch.QueueDeclarePassive(name, true, true, false, false, nil)
		return err != nil, nil
	})
	if err != nil {
		t.Fatalf("%s stays: %v", name, err)
	}
	if _, err := s.ch.QueueDeclarePassive("never consumed", true, true, false, false, nil); err != nil {
		t.Error(err)
	}
}
