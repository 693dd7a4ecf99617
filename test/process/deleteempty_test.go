package process

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

const (
	emptiedGoal  = 30                    // deletions
	emptiedOnes  = 3                     // messages that a publisher sends at once
	emptiedDelay = 20 * time.Millisecond // is the longest until it sends them
)

// emptied is a queue that is deleted whenever it is empty, and declared anew, while messages and dead letters go to it.
type emptied struct {
	*testing.T
	queue, source string

	mu       sync.Mutex
	received map[string]int
	kept     map[string]bool // confirmed and not returned, or dead letters
}

// publish sends a few numbered messages to a queue at each of its turns. What was confirmed and not returned is kept.
func (e *emptied) publish(ch *amqp.Channel, to, name string, turns <-chan struct{}) {
	returned := map[string]bool{}
	returns := ch.NotifyReturn(make(chan amqp.Return, 2*emptiedOnes))
	if err := ch.Confirm(false); err != nil {
		e.Error(err)
		return
	}
	i := 0
	for range turns {
		time.Sleep(rand.N(emptiedDelay))
		refused := map[string]bool{}
		var confirms []*amqp.DeferredConfirmation
		var bodies []string
		for range emptiedOnes {
			i++
			body := fmt.Sprint(name, i)
			conf, err := ch.PublishWithDeferredConfirm("", to, true, false, amqp.Publishing{Body: []byte(body), DeliveryMode: amqp.Persistent})
			if err != nil {
				e.Error(err)
				return
			}
			confirms, bodies = append(confirms, conf), append(bodies, body)
		}
		for n, conf := range confirms {
			refused[bodies[n]] = !conf.Wait() // its queue was gone
		}
		// A return comes before the confirm.
		for len(returns) > 0 {
			returned[string((<-returns).Body)] = true
		}
		e.mu.Lock()
		for _, body := range bodies {
			if !returned[body] && !refused[body] {
				e.kept[body] = true
			}
		}
		e.mu.Unlock()
	}
}

// reject has what is in the source die, which goes to the queue.
func (e *emptied) reject(ch *amqp.Channel) {
	ds, err := ch.Consume(e.source, "", false, false, false, false, nil)
	if err != nil {
		e.Error(err)
		return
	}
	for d := range ds {
		if err := d.Reject(false); err != nil {
			return // the end
		}
	}
}

// drain takes what is in the queue, until it is empty or the time is over. It returns false if that fails.
func (e *emptied) drain(ch *amqp.Channel, until time.Time) bool {
	for time.Now().Before(until) {
		d, ok, err := ch.Get(e.queue, true)
		if err != nil {
			e.Error(err)
		}
		if err != nil || !ok {
			return err == nil
		}
		e.mu.Lock()
		if e.received[string(d.Body)]++; e.received[string(d.Body)] > 1 {
			e.Errorf("%s came twice", d.Body)
		}
		e.mu.Unlock()
	}
	return true
}

func (e *emptied) declare(ch *amqp.Channel) {
	if _, err := ch.QueueDeclare(e.queue, true, false, false, false, nil); err != nil {
		e.Error(err)
	}
}

// lost names what was kept and was not received.
func (e *emptied) lost() (list []string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for body := range e.kept {
		if e.received[body] == 0 {
			list = append(list, body)
		}
	}
	return list
}

// TestDeleteIfEmptyLosesNothing: what is confirmed, and what dies, while a queue is deleted because it was empty does not go with it.
func TestDeleteIfEmptyLosesNothing(t *testing.T) {
	t.Parallel()
	needWarren(t)
	c := startCluster(t, 3)
	e := &emptied{T: t, queue: "emptied", source: "emptied.source", received: map[string]int{}, kept: map[string]bool{}}
	conn, ch := mustDial(t, c.Node(0))
	e.declare(ch)
	if _, err := ch.QueueDeclare(e.source, true, false, false, false, amqp.Table{
		"x-queue-type": "quorum", "x-dead-letter-exchange": "", "x-dead-letter-routing-key": e.queue, "x-dead-letter-strategy": "at-least-once", "x-overflow": "reject-publish",
	}); err != nil {
		t.Fatal(err)
	}
	var publishers, rejecter sync.WaitGroup
	var turns []chan struct{}
	for i, to := range []string{e.queue, e.queue, e.source} {
		_, pub := mustDial(t, c.Node(1+i%2))
		turn := make(chan struct{}, 1)
		turns = append(turns, turn)
		publishers.Go(func() { e.publish(pub, to, fmt.Sprint(to, i, "/"), turn) })
	}
	rejects, dead := mustDial(t, c.Node(2))
	rejecter.Go(func() { e.reject(dead) })
	deleted := 0
	for end := time.Now().Add(time.Minute); deleted < emptiedGoal && time.Now().Before(end) && !t.Failed(); {
		if !e.drain(ch, end) {
			break
		}
		// Not all send at each turn, so that the queue is deleted now and then however slow the machine is.
		for _, turn := range turns {
			if rand.N(2) == 0 {
				select {
				case turn <- struct{}{}:
				default: // it has not sent the messages of its last one yet
				}
			}
		}
		time.Sleep(rand.N(emptiedDelay))
		n, err := ch.QueueDelete(e.queue, false, true, false)
		if err == nil {
			if deleted++; n != 0 {
				t.Errorf("%d messages went with a queue that was deleted because it was empty", n)
			}
			e.declare(ch)
			continue
		}
		if ch, err = conn.Channel(); err != nil { // a 406 has ended it
			t.Fatal(err)
		}
	}
	for _, turn := range turns {
		close(turn)
	}
	publishers.Wait()
	for end := time.Now().Add(timeoutReply); len(e.lost()) > 0 && time.Now().Before(end) && e.drain(ch, end); {
		time.Sleep(10 * time.Millisecond)
	}
	rejects.Close()
	rejecter.Wait()
	if lost := e.lost(); len(lost) > 0 {
		t.Errorf("%d of %d lost: %v", len(lost), len(e.kept), lost[:min(len(lost), 10)])
	}
	t.Logf("deleted %d times, %d kept, %d received", deleted, len(e.kept), len(e.received))
	if deleted < emptiedGoal {
		t.Error("too few deletions")
	}
}

// A mandatory message of a transaction is in a queue when the commit is answered, or was returned: a queue that is deleted meanwhile because it
// is empty does not take it with it without a word.
func TestDeleteIfEmptyReturnsFromTransactions(t *testing.T) {
	t.Parallel()
	needWarren(t)
	c := sharedCluster(t, 3)
	const queue, beside = "tx.emptied", "tx.beside"
	_, tx := mustDial(t, c.Node(0))
	conn, deletes := mustDial(t, c.Node(1))
	returns := tx.NotifyReturn(make(chan amqp.Return, 1))
	if err := tx.Tx(); err != nil {
		t.Fatal(err)
	}
	ended := map[string]int{}
	for i := range 30 {
		for _, q := range []string{queue, beside} {
			if _, err := deletes.QueueDeclare(q, true, false, false, false, nil); err != nil {
				t.Fatal(err)
			}
		}
		for q, m := range map[string]string{queue: "m", beside: strings.Repeat("x", 100)} {
			if err := tx.PublishWithContext(t.Context(), "", q, true, false, amqp.Publishing{Body: []byte(m)}); err != nil {
				t.Fatal(err)
			}
		}
		var deletion error
		var wg sync.WaitGroup
		wg.Go(func() {
			time.Sleep(rand.N(time.Duration(1+i%8) * time.Millisecond))
			_, deletion = deletes.QueueDelete(queue, false, true, false)
		})
		err := tx.TxCommit()
		wg.Wait()
		how := "committed"
		select {
		case r := <-returns:
			if how = "returned"; r.RoutingKey != queue || string(r.Body) != "m" || err != nil {
				t.Errorf("returned %q %q, %v", r.RoutingKey, r.Body, err)
			}
		default:
			if err != nil {
				how = "refused"
			}
		}
		ended[how]++
		switch {
		case how == "committed" && deletion == nil:
			t.Error("a mandatory message went with an empty queue, and the commit was answered")
		case how != "committed" && deletion != nil:
			t.Errorf("%s, %v, and the queue is there: %v", how, err, deletion)
		}
		if err != nil {
			_, tx = mustDial(t, c.Node(0))
			returns = tx.NotifyReturn(make(chan amqp.Return, 1))
			if err := tx.Tx(); err != nil {
				t.Fatal(err)
			}
		}
		if deletion != nil {
			if deletes, err = conn.Channel(); err != nil {
				t.Fatal(err)
			}
			if _, err := deletes.QueuePurge(queue, false); err != nil {
				t.Fatal(err)
			}
		}
	}
	t.Logf("%v", ended)
	for _, q := range []string{queue, beside} {
		_, _ = deletes.QueueDelete(q, false, false, false)
	}
}
