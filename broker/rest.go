package broker

import (
	"context"
	"time"
)

// restTick is how often AwaitRest looks.
const restTick = 5 * time.Millisecond

// AwaitRest waits until this node's clients have no operation under way at the leader of any queue: publishes
// and settlements, and what the end of a connection gave back. It ends with ctx at the latest and returns how many
// queues still had some then. A node that stops asks for it behind the end of its clients, so that what they have
// settled is not delivered again.
func (b *Broker) AwaitRest(ctx context.Context) (queues int) {
	tick := time.NewTicker(restTick)
	defer tick.Stop()
	for {
		if queues = b.restless(); queues == 0 {
			return 0
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return queues
		}
	}
}

// restless counts the streams with operations that have no answer.
func (b *Broker) restless() (n int) {
	b.mu.Lock()
	all := make([]*stream, 0, len(b.streams))
	for _, s := range b.streams {
		all = append(all, s)
	}
	b.mu.Unlock()
	for _, s := range all {
		s.mu.Lock()
		if len(s.ops) > 0 && !s.gone {
			n++
		}
		s.mu.Unlock()
	}
	return n
}
