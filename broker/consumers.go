package broker

import (
	"net"

	"github.com/warrenmq/warren/amqp"
)

// ConsumerInfo describes a consumer of this node to tools.
type ConsumerInfo struct {
	QueueID       uint64
	VHost, Queue  string
	Tag           string
	Node, No      uint64 // as QueueRow names the active one
	NoAck         bool
	Exclusive     bool
	Prefetch      uint16
	Priority      int32
	Arguments     amqp.Table // read only
	User          string
	Peer, Local   net.Addr
	Channel       uint16 // number
	ChannelID     uint64
	Delivered     uint64
	TimeoutMillis int64 // how long it may hold a message; 0: for ever
}

// Consumers describes the consumers of this node's clients on queues, in no order.
func (b *Broker) Consumers() []ConsumerInfo {
	node := uint64(b.origin().Node)
	list := []ConsumerInfo{}
	for _, s := range b.allStreams() {
		s.mu.Lock()
		for _, c := range s.consumers {
			if !c.attached || c.cancelling {
				continue
			}
			i := ConsumerInfo{
				QueueID: s.id, VHost: c.ch.conn.vhost, Queue: s.name, Tag: c.spec.Tag, Node: node, No: uint64(c.no), NoAck: c.spec.NoAck,
				Exclusive: c.spec.Exclusive, Prefetch: c.spec.Prefetch, Priority: c.spec.Priority, Arguments: c.spec.Arguments,
				User: c.ch.conn.login, Peer: c.ch.conn.info.Peer, Local: c.ch.conn.info.Local, Channel: c.ch.number, ChannelID: c.ch.id, Delivered: c.delivered,
			}
			if c.aging != nil {
				i.TimeoutMillis = c.aging.timeout.Milliseconds()
			}
			list = append(list, i)
		}
		s.mu.Unlock()
	}
	return list
}
