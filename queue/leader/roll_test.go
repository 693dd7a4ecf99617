package leader

import (
	"testing"
	"time"

	"github.com/warrenmq/warren/fsm"
	"github.com/warrenmq/warren/queue/wire"
)

// TestAnswerBehindAnotherIsInTime: a node's answer that came in time, while the leader worked on another node's, counts. What that node holds is
// given to nobody else.
func TestAnswerBehindAnotherIsInTime(t *testing.T) {
	t.Parallel()
	a, b := node(1), node(2)
	r := newRig(t, plain(), a, b)
	r.answerRoll(a)
	r.answerRoll(b)
	r.attach(b, 1, 1)
	r.publish(a, "held")
	held := r.items(b, 1)[0]
	r.lead()
	roll := await(r, a.ID, func(c *wire.RollCall) bool { return c.Session == r.session })
	busy, over := make(chan struct{}), make(chan struct{})
	go r.replica.View(func(*fsm.Machine) { // the leader waits for the machine in the middle of the first answer
		close(busy)
		<-over
	})
	<-busy
	r.l.Receive(a.ID, &wire.Resync{Queue: 7, Session: roll.Session, No: 1, Origin: a.Origin, Consumers: []wire.Consumer{
		{No: 1, WindowMessages: 1000, WindowBytes: 1 << 20},
	}})
	for taken := false; !taken; {
		r.l.mu.Lock()
		taken = len(r.l.inbox) == 0
		r.l.mu.Unlock()
	}
	r.answerRoll(b, wire.Hold{No: 1, ID: held.ID, Attempt: held.Attempt})
	time.Sleep(rollCallTimeout + 100*time.Millisecond)
	close(over)
	r.publish(a, "new")
	if it := r.items(a, 1)[0]; it.ID == held.ID {
		t.Error("a message that a node holds is delivered to another")
	}
}

// TestRollCallWaitsForLargeAnswers: the more deliveries there may be to name, the longer a node has for its answer.
func TestRollCallWaitsForLargeAnswers(t *testing.T) {
	t.Parallel()
	const messages = 100_000
	a, b := node(1), node(2)
	r := newRig(t, plain(), a, b)
	r.answerRoll(a)
	r.answerRoll(b)
	r.l.Receive(b.ID, &wire.Attach{Queue: 7, Origin: b.Origin, Consumer: wire.Consumer{No: 1, WindowMessages: 2 * messages, WindowBytes: 1 << 30}})
	for range 10 {
		r.publish(a, make([]string, messages/10)...)
	}
	var holds []wire.Hold
	for _, it := range r.items(b, messages) {
		holds = append(holds, wire.Hold{No: 1, ID: it.ID, Attempt: it.Attempt})
	}
	r.lead()
	roll := await(r, a.ID, func(c *wire.RollCall) bool { return c.Session == r.session })
	r.l.Receive(a.ID, &wire.Resync{Queue: 7, Session: roll.Session, No: 1, Origin: a.Origin, Consumers: []wire.Consumer{
		{No: 1, WindowMessages: 1000, WindowBytes: 1 << 20},
	}})
	time.Sleep(rollCallTimeout + 100*time.Millisecond)
	r.answerRoll(b, holds...)
	r.publish(a, "new")
	if it := r.items(a, 1)[0]; it.ID <= holds[messages-1].ID {
		t.Errorf("message %d, which a node holds, is delivered to another", it.ID)
	}
}
