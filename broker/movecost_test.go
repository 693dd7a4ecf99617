package broker

import (
	"fmt"
	"testing"
	"time"

	"github.com/warrenmq/warren/fsm"
)

// A dead letter costs three entries, one each for its route, its transfer and its end, and
// shares them with others: hundreds that die together cost a handful.
func TestCostOfADeadLetter(t *testing.T) {
	b := newBroker(t)
	c := dial(t, b)
	c.declare("dead", nil)
	c.declare("q", table("x-dead-letter-exchange", "", "x-dead-letter-routing-key", "dead"))
	state := func(queue string) (index, moved uint64, outbox int) {
		h := b.queues.get(b.cat.View().Queue("/", queue).ID)
		h.replica.View(func(m *fsm.Machine) { index, moved, outbox = m.Index(), m.Counters().Moved, m.Outbox().Len() })
		return index, moved, outbox
	}
	for _, letters := range []int{1, 300} {
		_, before, _ := state("q")
		var held []*Delivery
		for i := range letters {
			c.put("q", fmt.Sprint(i), nil)
		}
		for range letters {
			held = append(held, c.eventually("q"))
		}
		time.Sleep(50 * time.Millisecond) // what the deliveries bring into the log
		source, _, _ := state("q")
		target, _, _ := state("dead")
		for _, d := range held {
			c.settle(fsm.Discard, d)
		}
		for until := time.Now().Add(10 * time.Second); ; time.Sleep(5 * time.Millisecond) {
			if _, moved, n := state("q"); n == 0 && moved == before+uint64(letters) {
				break
			} else if time.Now().After(until) {
				t.Fatalf("%d of %d letters moved, %d in the outbox", moved-before, letters, n)
			}
		}
		s, _, _ := state("q")
		d, _, _ := state("dead")
		// The settlement that kills is an entry too.
		if entries := int(s - source + d - target); letters == 1 && entries > 4 || letters > 1 && entries > letters/4 {
			t.Errorf("%d letters took %d entries", letters, entries)
		} else {
			t.Logf("%d letters: %d entries in all", letters, entries)
		}
	}
}
