package broker

import "maps"

// A client may keep one channel for years and use queue after queue through it. What the channel and its connection know of
// queues that have ended is thrown out when there is twice as much as was left the last time, so that each
// use pays for its own end.

// pruneMin is how much is worth a look.
const pruneMin = 64

// use notes a stream that delivers to the channel.
func (ch *Channel) use(s *stream) {
	if len(ch.used) >= ch.usedMax {
		maps.DeleteFunc(ch.used, func(s *stream, _ struct{}) bool { return s.over() })
		ch.usedMax = max(pruneMin, 2*len(ch.used))
	}
	ch.used[s] = struct{}{}
}

// useOf notes the stream that delivers to a consumer by now.
func (ch *Channel) useOf(c *Consumer) {
	if s := c.stream.Load(); s != nil {
		ch.use(s)
	}
}

// adds notes a consumer that has begun.
func (ch *Channel) adds(c *Consumer) {
	if len(ch.consumers) >= ch.consumersMax {
		maps.DeleteFunc(ch.consumers, func(_ string, c *Consumer) bool { return c.over() })
		ch.consumersMax = max(pruneMin, 2*len(ch.consumers))
	}
	ch.consumers[c.spec.Tag] = c
}

// over tells whether the queue has ended.
func (s *stream) over() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.gone
}

// over tells whether the consumer has ended, with its queue or by itself.
func (c *Consumer) over() bool {
	if c.reply != nil {
		return false
	}
	s := c.lock()
	defer s.mu.Unlock()
	return s.consumers[c.no] != c
}

// owns notes an exclusive queue of the connection, unless that has ended.
func (c *Conn) owns(id uint64, name string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.exclusive == nil {
		return false
	}
	if len(c.exclusive) >= c.exclusiveMax {
		maps.DeleteFunc(c.exclusive, func(id uint64, _ string) bool { return c.b.hasLeft(id) })
		c.exclusiveMax = max(pruneMin, 2*len(c.exclusive))
	}
	c.exclusive[id] = name
	return true
}

// hasLeft tells whether a queue was in the catalog and is not any more.
func (b *Broker) hasLeft(id uint64) bool {
	view := b.cat.View()
	return id <= view.Revision() && view.QueueByID(id) == nil
}
