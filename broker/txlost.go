package broker

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/warrenmq/warren/fsm"
)

// mandatoryPart is a mandatory message and where it goes.
type mandatoryPart struct {
	message []byte // encoded
	to      []*txQueue
}

// unroutable refuses a mandatory message all of whose queues are gone: outside of a transaction it would be refused, too.
func (c *commit) unroutable() error {
	for _, m := range c.mandatory {
		if !slices.ContainsFunc(m.to, func(x *txQueue) bool { return !x.gone }) {
			return Errorf(PreconditionFailed, "transaction refused, nothing was done: no queue of a mandatory message is left: queue '%s' in vhost '%s' is deleted", m.to[0].s.name, c.ch.conn.vhost)
		}
	}
	return nil
}

// findLost finds the mandatory messages all of whose queues were deleted while the transaction was carried out: nothing can undo the rest of it, but
// their publisher wants to know. Whether one of the queues had taken the message before it ended makes no difference: no queue has it. What the
// coordinator has taken is in a queue, whatever becomes of that. Once ctx has ended only the catalog is asked.
func (c *commit) findLost(ctx context.Context, coordinator *txQueue) {
	beyond := slices.DeleteFunc(slices.Clone(c.mandatory), func(m mandatoryPart) bool { return slices.Contains(m.to, coordinator) })
	there := c.askWhoIsThere(ctx, beyond)
	for _, m := range beyond {
		if !slices.ContainsFunc(m.to, func(x *txQueue) bool { return there[x] }) {
			c.lost = append(c.lost, returnOf(m.message))
		}
	}
}

// askWhoIsThere asks some of the queues of messages at a time, each once.
func (c *commit) askWhoIsThere(ctx context.Context, messages []mandatoryPart) map[*txQueue]bool {
	there := make(map[*txQueue]bool)
	for _, m := range messages {
		for _, x := range m.to {
			there[x] = false
		}
	}
	var mu sync.Mutex
	var wg sync.WaitGroup
	asking := make(chan struct{}, txAskedAtOnce)
	for _, x := range slices.Collect(maps.Keys(there)) {
		asking <- struct{}{}
		wg.Go(func() {
			is := c.there(ctx, x)
			<-asking
			mu.Lock()
			defer mu.Unlock()
			there[x] = is
		})
	}
	wg.Wait()
	return there
}

// txAskedAtOnce is how many queues a commit asks at a time whether they are there.
const txAskedAtOnce = 32

// there tells whether a queue has not ended, by its leader's word: it may have ended by itself, because it was empty, before the catalog knows.
func (c *commit) there(ctx context.Context, x *txQueue) bool {
	_, err := c.b.status(ctx, x.q, false)
	switch {
	case err == nil || errors.Is(err, errQueueMoved):
		return true
	case isTimeout(err) || ctx.Err() != nil:
		return !c.b.deleted(x.s.id)
	}
	return false
}

// returnOf is what goes back to the publisher of an encoded message.
func returnOf(message []byte) TxReturn {
	o, err := fsm.DecodeOutline(message)
	if err != nil {
		panic(fmt.Sprintf("a message of this node cannot be read: %v", err))
	}
	return TxReturn{Exchange: o.Exchange, Key: o.Key, Properties: o.Properties, Body: o.Body}
}
