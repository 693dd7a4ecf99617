package fsm

import (
	"math"

	"github.com/warrenmq/warren/queue"
)

// tagTargetMoved is TargetMoved's tag. It belongs to level 2 of the cluster, like every recovered queue.
const tagTargetMoved = 20

func appendTargetMoved(dst []byte, c *TargetMoved) []byte {
	dst = appendUint(append(dst, tagTargetMoved), c.Target)
	dst = appendUint(appendUint(dst, c.Watermark), c.To)
	return appendAscending(dst, c.Withdrawn)
}

func (r *reader) targetMoved() Command {
	c := TargetMoved{Target: r.uvarint(), Watermark: r.uvarint(), To: r.uvarint(), Withdrawn: r.ascending()}
	if n := len(c.Withdrawn); n > 0 && c.Withdrawn[n-1] > c.Watermark || c.To <= c.Target {
		r.fail(ErrMalformed, "target that goes on as another")
	}
	return c
}

// lifeStride is how many message ids a new life of a queue leaves out. The former one may have given some to messages that are lost, and
// somebody may still hold those.
const lifeStride = 1 << 32

// Succeed makes the machine, which has applied what the kept replica of a queue has, the first state of the queue's next life, as which it
// has another id (docs/adr/0029-lost-majority.md). life is the number of the one that ends, from 1. What refers to the queue by its id begins anew:
//
//   - the streams of nodes, so that what they send to the new id is nobody's repeat;
//   - the sequences of what it sends to other queues, none of which knows the new id;
//   - the sequences of what others send to it. What the former life had taken of them is kept as that of [Source.Epoch] life,
//     so that they can ask for it.
//
// Whoever may have had a message has it as redelivered from now on. Succeed returns how many letters of the outbox had been under way: each
// may be in its target already, and is sent again.
func (m *Machine) Succeed(life uint32) (again uint64) {
	m.streams = map[uint32]*stream{}
	for key, s := range m.sources {
		if key.Epoch == 0 {
			delete(m.sources, key)
			key.Epoch = life
			m.sources[key] = s
		}
	}
	tail := m.queue.Tail()
	m.mark = max(m.mark, tail)
	m.queue.SkipTo(min(tail, math.MaxInt64) + queue.MessageID(lifeStride))
	again = m.outbox.Restart()
	if invariants {
		m.check()
	}
	return again
}
