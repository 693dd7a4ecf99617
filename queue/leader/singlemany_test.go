package leader

import (
	"slices"
	"testing"
	"time"

	"github.com/warrenmq/warren/fsm"
	"github.com/warrenmq/warren/queue/wire"
)

// TestWaitingConsumersEndCheaply: of a queue with a single active consumer, which holds much, those that wait end in the time that they take when nothing is held.
// Nothing is theirs to be given back.
func TestWaitingConsumersEndCheaply(t *testing.T) {
	t.Parallel()
	const holds, batch, waiting = 30_000, 1000, 500
	a := node(1)
	r := singleRig(t, time.Hour, a)
	r.l.Receive(a.ID, &wire.Attach{Queue: 7, Origin: a.Origin, Consumer: wire.Consumer{No: 1, WindowMessages: 1 << 40, WindowBytes: 1 << 50}})
	await(r, a.ID, func(m *wire.Attached) bool { return m.No == 1 })
	for no := range wire.ConsumerNo(2 * waiting) {
		r.join(a, no+2, 1, 0)
	}
	end := func(first wire.ConsumerNo) time.Duration {
		began := time.Now()
		for no := range wire.ConsumerNo(waiting) {
			r.detach(a, first+no, true)
		}
		return time.Since(began)
	}
	before := end(2)
	for range holds / batch {
		last := r.batch(a, slices.Repeat([]fsm.Op{pub("m")}, batch)...)
		await(r, a.ID, func(m *wire.Answer) bool { return m.UpTo >= last })
	}
	eventually(t, "all that it holds", func() bool { return r.status(a, 1).Unacked >= holds })
	if then := end(2 + waiting); then > 20*before+100*time.Millisecond {
		t.Errorf("%d that wait have ended in %v, in %v with nothing held", waiting, then, before)
	}
}
