package fsm

import (
	"fmt"

	"github.com/warrenmq/warren/dlx"
)

// check recounts the state and panics if a number is wrong. It costs time in
// proportion to the state and runs under the build tag invariants.
func (m *Machine) check() {
	fail := func(format string, args ...any) {
		panic(fmt.Sprintf("fsm: queue %q in %q at index %d: invariant: %s", m.name, m.vhost, m.index, fmt.Sprintf(format, args...)))
	}
	if err := m.queue.Check(); err != nil {
		fail("%v", err)
	}
	if err := m.outbox.Check(); err != nil {
		fail("%v", err)
	}
	if err := m.checkDedup(); err != nil {
		fail("%v", err)
	}
	c := &m.counters
	in := c.Published + c.Transferred + c.RefusedDead + c.Relayed
	out := c.Acked + c.Purged + c.Closed + c.Moved + c.Redriven + c.DroppedTotal()
	if in != out+uint64(m.queue.Len())+uint64(m.outbox.Len())-uint64(len(m.leaving.ids)+len(m.undecided.ids)) {
		fail("%d messages came in, %d left, %d are live, %d in the outbox", in, out, m.queue.Len(), m.outbox.Len())
	}
	for _, d := range m.delays.All() {
		if x, ok := m.queue.Get(d.ID); !ok || x.Attempt == 0 || d.Until <= m.time {
			fail("message %d is delayed until %d; live %v, attempt %d, time %d", d.ID, d.Until, ok, x.Attempt, m.time)
		}
	}
	for node, s := range m.streams {
		last := s.answered
		for _, o := range s.outcomes {
			if o.Seq <= last || o.Seq > s.watermark || o.Kind == Done {
				fail("node %d: outcome %+v after %d, watermark %d", node, o, last, s.watermark)
			}
			last = o.Seq
		}
	}
	for key, s := range m.sources {
		last := s.answered
		for _, seq := range s.withdrawn {
			if seq <= last || seq > s.watermark {
				fail("source %+v: withdrawn %d after %d, watermark %d", key, seq, last, s.watermark)
			}
			last = seq
		}
	}
	refs := map[[2]uint64]bool{}
	seen := func(index uint64, offset uint32) {
		if key := [2]uint64{index, uint64(offset)}; refs[key] {
			fail("entry %d offset %d is held twice", index, offset)
		} else {
			refs[key] = true
		}
	}
	for x := range m.queue.View().All {
		seen(x.Ref.Index, x.Ref.Offset)
	}
	m.outbox.View().All(func(it dlx.Item) bool {
		if id, ok := m.leaving.items[it.ID]; ok {
			if x, live := m.queue.Get(id); !live || x.Ref != it.Ref || it.Reason != dlx.Redrive || m.closed {
				fail("item %d is leaving as message %d, live %v", it.ID, id, live)
			}
			return true
		}
		if id, ok := m.undecided.items[it.ID]; ok {
			if x, live := m.queue.Get(id); !live || x.Ref != it.Ref || x.ExpiresAt != 0 || it.Reason != dlx.Expired || it.State != dlx.Unrouted || m.closed {
				fail("item %d may stay as message %d, live %v, state %v", it.ID, id, live, it.State)
			}
			return true
		}
		seen(it.Ref.Index, it.Ref.Offset)
		return true
	})
}
