package broker

import "github.com/warrenmq/warren/queue/wire"

// A leader sends a consumer what it has room for. The node grants the room: at most
// consumerMessages and consumerBytes that are on their way or not written to the client.
// What all consumers of the node have not been written is bounded too: while it is too
// much, the node is narrow, and each consumer has room for a few small messages only. One
// that reads goes on with that; one that does not gets no more.
const (
	narrowMessages = 16
	narrowBytes    = 16 << 10
)

// Narrow says whether clients leave too much unread on this node. It neither blocks nor
// calls back.
func (b *Broker) Narrow(on bool) {
	b.narrow.Store(on)
	if on {
		select {
		case b.narrowed <- struct{}{}:
		default:
		}
	}
}

// narrowLoop takes back the room of all consumers when the node has become narrow: those
// that have nothing to read now may be those that do not read next. They get it again
// when the node is wide and they read.
func (b *Broker) narrowLoop() {
	for {
		select {
		case <-b.ctx.Done():
			return
		case <-b.narrowed:
		}
		for _, s := range b.allStreams() {
			s.mu.Lock()
			for _, c := range s.consumers {
				s.takeBackLocked(c)
			}
			s.mu.Unlock()
		}
	}
}

// surplus is the room that a consumer has and a narrow node would not give it. What is not
// written takes up room: all but the room and what is owed. Credit is the client's, and stays.
func (c *Consumer) surplus() (messages, bytes int64) {
	if c.spec.Credit {
		return 0, max(c.roomBytes-max(narrowBytes-(consumerBytes-c.roomBytes-c.owedBytes), 0), 0)
	}
	messages = c.roomMessages - max(narrowMessages-(consumerMessages-c.roomMessages-c.owedMessages), 0)
	bytes = c.roomBytes - max(narrowBytes-(consumerBytes-c.roomBytes-c.owedBytes), 0)
	return max(messages, 0), max(bytes, 0)
}

// takeBackLocked leaves a consumer no more than the narrow room.
func (s *stream) takeBackLocked(c *Consumer) {
	if !s.hub.narrow() || s.leader == "" || !c.attached {
		return
	}
	messages, bytes := c.surplus()
	if messages > 0 || bytes > 0 {
		s.moveRoomLocked(c, -messages, -bytes)
	}
}

// grantLocked gives the leader the room that the consumer is owed, once it is worth a
// message.
func (s *stream) grantLocked(c *Consumer) {
	if s.leader == "" || !c.attached {
		return
	}
	messages, bytes := c.owedMessages, c.owedBytes
	worthMessages, worthBytes := int64(consumerMessages/4), int64(consumerBytes/4)
	if c.spec.Credit {
		worthMessages = 1 // the client collects it
	}
	if s.hub.narrow() {
		if !c.spec.Credit {
			messages = max(messages-(consumerMessages-narrowMessages), 0)
			worthMessages = narrowMessages / 4
		}
		bytes = max(bytes-(consumerBytes-narrowBytes), 0)
		worthBytes = narrowBytes / 4
	}
	if messages >= worthMessages || bytes >= worthBytes {
		s.moveRoomLocked(c, messages, bytes)
	}
}

// moveRoomLocked grants room that was owed, or takes it back if it is negative.
func (s *stream) moveRoomLocked(c *Consumer, messages, bytes int64) {
	if s.sendLocked(&wire.Window{Queue: s.id, Origin: s.hub.origin(), No: c.no, Messages: messages, Bytes: bytes}) {
		c.moveRoom(messages, bytes)
		return
	}
	s.ungranted = true // and a consumer that has no room left does nothing that would have it granted again
	s.hub.trouble(s)
}

// regrantLocked does again what the link had no room for.
func (s *stream) regrantLocked() {
	if !s.ungranted {
		return
	}
	s.ungranted = false
	for _, c := range s.consumers {
		s.grantLocked(c)
		s.takeBackLocked(c)
	}
}

func (c *Consumer) moveRoom(messages, bytes int64) {
	c.roomMessages += messages
	c.roomBytes += bytes
	c.owedMessages -= messages
	c.owedBytes -= bytes
}

// settleRoom is the room that a leader is told of anew: all that is owed, or what a narrow
// node has.
func (c *Consumer) settleRoom() {
	c.moveRoom(c.owedMessages, c.owedBytes)
	if c.stream.Load().hub.narrow() {
		messages, bytes := c.surplus()
		c.moveRoom(-messages, -bytes)
	}
}
