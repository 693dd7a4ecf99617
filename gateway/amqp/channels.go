package amqp

import (
	"cmp"
	"maps"
	"slices"

	"github.com/warrenmq/warren/stats"
)

// ChannelInfo describes an open channel to tools.
type ChannelInfo struct {
	Connection *ConnectionInfo // read only
	Number     uint16
	ID         uint64 // at the broker, of samples
	Counted    stats.Set

	Prefetch, Limit      uint16 // for consumers to come; of all consumers together; 0: none
	Confirm              bool
	Transactional        bool
	Unacked, Unconfirmed int
	Uncommitted          int // settlements that wait for a commit
	UncommittedMessages  int // messages that do
	Consumers            int
}

// Number implements Sink.
func (ch *channel) Number() uint16 { return ch.num }

// Channels describes the open channels, by connection and number.
func (s *Server) Channels() []ChannelInfo {
	list := []ChannelInfo{}
	for _, c := range s.connections() {
		if info, ok := c.describe(); ok {
			list = append(list, c.describeChannels(&info)...)
		}
	}
	return list
}

// openChannels returns the channels by number. It may be called on any goroutine.
func (c *conn) openChannels() []*channel {
	c.channelsMu.Lock()
	defer c.channelsMu.Unlock()
	return slices.SortedFunc(maps.Values(c.channels), func(a, b *channel) int { return cmp.Compare(a.num, b.num) })
}

func (c *conn) describeChannels(of *ConnectionInfo) (list []ChannelInfo) {
	for _, ch := range c.openChannels() {
		i := ChannelInfo{Connection: of, Number: ch.num}
		i.ID, i.Counted = ch.counter.Counted()
		ch.mu.Lock()
		i.Prefetch, i.Limit, i.Confirm, i.Transactional = ch.prefetch, ch.limit, ch.confirm, ch.tx != nil
		i.Unacked, i.Unconfirmed, i.Uncommitted, i.Consumers = ch.unacked.Len(), ch.confirms.pending.Len(), ch.tx.settled(), len(ch.consumers)
		i.UncommittedMessages = ch.tx.publishes()
		ch.mu.Unlock()
		list = append(list, i)
	}
	return list
}

// Sample is a source of samples: the bytes of each connection.
func (s *Server) Sample(yield func(stats.Key, *stats.Set)) {
	for _, c := range s.connections() {
		if fixed := c.facts.Load(); fixed != nil {
			yield(ConnectionKey(fixed.Name), &stats.Set{stats.Received: c.received.Load(), stats.Sent: c.written.Load()})
		}
	}
}

// ConnectionKey is the key of a connection's samples.
func ConnectionKey(name string) stats.Key { return stats.Key{Kind: stats.Connection, Name: name} }
