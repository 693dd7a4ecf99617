package process

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

// TestOneOfSeveralGetsALetter: dead letters go to a queue that has no room, and to one of two others, by a random exchange. Their routes are looked at again while queues
// come and go on all nodes, and by the next leaders of their queue: each is in one of the two, once, and in the first when it has room.
func TestOneOfSeveralGetsALetter(t *testing.T) {
	t.Parallel()
	const letters = 200
	c := startCluster(t, 3)
	s := at(t, c.Node(0))
	for x, kind := range map[string]string{"fan": "fanout", "one": "x-random"} {
		s.noError("declare", s.ch.ExchangeDeclare(x, kind, true, false, false, false, nil))
	}
	s.noError("bind", s.ch.ExchangeBind("one", "", "fan", false, nil))
	for q, x := range map[string]string{"full": "fan", "a": "one", "b": "one"} {
		s.bind(plainQueue(s, q, nil), "", x, nil)
	}
	mustCtl(t, c.Node(0), "set_policy", "full", "^full$", `{"max-length":1,"overflow":"reject-publish"}`, "--apply-to", "queues")
	s.fill("full", "stays")
	src := plainQueue(s, "src", amqp.Table{
		"x-queue-type": "quorum", "x-overflow": "reject-publish", "x-dead-letter-strategy": "at-least-once", "x-dead-letter-exchange": "fan",
	})

	ctx, cancel := context.WithCancel(t.Context())
	var work sync.WaitGroup
	defer work.Wait()
	defer cancel()
	for _, n := range c.Nodes() {
		conn := at(t, n).dial()
		work.Go(func() { comeAndGo(ctx, conn, "goes."+n.Name) })
	}
	bodies := numbered("m", letters)
	s.fill(src, bodies...)
	ch, deliveries := s.consume(src, 0)
	held := s.take(deliveries, false, bodies...)
	s.noError("nack", held[letters-1].Nack(true, false))
	s.noError("close", ch.Close())
	arrived := func() (n int) {
		for _, q := range []string{"a", "b"} {
			state, err := s.ch.QueueDeclarePassive(q, true, false, false, false, nil)
			s.noError("look", err)
			n += state.Messages
		}
		return n
	}
	s.until("the letters", func() bool { return arrived() >= letters })
	for range 2 { // a letter's route is looked at again after a second
		_, others := leaderOf(t, c, src)
		mustCtl(t, others[0], "transfer_leadership", "-q", src, others[0].Name)
		time.Sleep(1500 * time.Millisecond)
	}
	cancel()
	work.Wait()
	mustCtl(t, c.Node(0), "clear_policy", "full")
	s.holds("full", append([]string{"stays"}, bodies...)...)
	a, b := s.drain("a"), s.drain("b")
	if len(a) == 0 || len(b) == 0 {
		t.Errorf("all have taken one way: %d and %d", len(a), len(b))
	}
	got := append(a, b...)
	slices.Sort(got)
	slices.Sort(bodies)
	if !slices.Equal(got, bodies) {
		t.Errorf("%d letters arrived, %d of them different, of %d", len(got), len(slices.Compact(got)), letters)
	}
}
