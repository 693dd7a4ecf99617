package broker

import (
	"fmt"
	"testing"
	"time"

	"github.com/warrenmq/warren/fsm"
)

// A dead letter costs two entries beside the one in which it dies, its transfer and its end, and
// a third, its route, if the way depends on the message. It shares them with others: hundreds that
// die together cost a handful.
func TestCostOfADeadLetter(t *testing.T) {
	b := newBroker(t)
	c := dial(t, b)
	c.declare("dead", nil)
	c.declare("planned", table("x-dead-letter-exchange", "", "x-dead-letter-routing-key", "dead"))
	c.declare("looked at", table("x-dead-letter-exchange", "amq.topic"))
	if err := c.conn.Bind(t.Context(), Binding{Source: "amq.topic", Destination: "dead", Key: "#"}); err != nil {
		t.Fatal(err)
	}
	for queue, most := range map[string][2]int{"planned": {3, 40}, "looked at": {4, 75}} {
		t.Run(queue, func(t *testing.T) { costOfLetters(t, b, c, queue, most) })
	}
}

// costOfLetters lets one message die, and then 300; most are the entries for each, in both logs.
func costOfLetters(t *testing.T, b *Broker, c *client, q string, most [2]int) {
	state := func(queue string) (index, moved uint64, outbox int) {
		h := b.queues.get(b.cat.View().Queue("/", queue).ID)
		h.replica.View(func(m *fsm.Machine) { index, moved, outbox = m.Index(), m.Counters().Moved, m.Outbox().Len() })
		return index, moved, outbox
	}
	for i, letters := range []int{1, 300} {
		_, before, _ := state(q)
		var held []*Delivery
		for k := range letters {
			c.put(q, fmt.Sprint(k), nil)
		}
		for range letters {
			held = append(held, c.eventually(q))
		}
		source, _, _ := state(q)
		for still := 0; still < 10; still++ { // what the deliveries bring into the log
			time.Sleep(10 * time.Millisecond)
			if now, _, _ := state(q); now != source {
				source, still = now, 0
			}
		}
		target, _, _ := state("dead")
		for _, d := range held {
			c.settle(fsm.Discard, d)
		}
		for until := time.Now().Add(30 * time.Second); ; time.Sleep(5 * time.Millisecond) {
			if _, moved, n := state(q); n == 0 && moved == before+uint64(letters) {
				break
			} else if time.Now().After(until) {
				t.Fatalf("%d of %d letters moved, %d in the outbox", moved-before, letters, n)
			}
		}
		s, _, _ := state(q)
		d, _, _ := state("dead")
		// The settlement that kills is an entry too.
		if entries := int(s - source + d - target); entries > most[i] {
			t.Errorf("%d letters took %d entries", letters, entries)
		} else {
			t.Logf("%d letters: %d entries in all", letters, entries)
		}
	}
}
