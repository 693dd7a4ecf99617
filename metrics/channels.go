package metrics

import (
	"strconv"
	"strings"

	gateway "github.com/warrenmq/warren/gateway/amqp"
	"github.com/warrenmq/warren/stats"
)

// Channels.
var (
	channelConsumers   = channelGauge("rabbitmq_channel_consumers", "Consumers on channels")
	channelUnacked     = channelGauge("rabbitmq_channel_messages_unacked", "Messages delivered to channels and not yet acknowledged")
	channelUnconfirmed = channelGauge("rabbitmq_channel_messages_unconfirmed", "Messages published and not yet confirmed")
	channelUncommitted = channelGauge("rabbitmq_channel_acks_uncommitted", "Settlements in transactions that are not committed")
	channelPrefetch    = define(def{of: channel, objectOnly: true, family: familyChannel, kind: gaugeKind, name: "rabbitmq_channel_prefetch", help: "Limit of unacknowledged messages of all consumers of the channel, 0: none"})
	consumerPrefetch   = define(def{of: channel, objectOnly: true, family: familyChannel, kind: gaugeKind, name: "rabbitmq_consumer_prefetch", help: "Limit of unacknowledged messages of each consumer to come, 0: none"})
)

// What clients of this node do with queues and exchanges.
var (
	usedGetAck      = usedQueue("rabbitmq_queue_get_ack_total", "Messages that clients of this node fetched from the queue by basic.get with acks")
	usedGet         = usedQueue("rabbitmq_queue_get_total", "Messages that clients of this node fetched from the queue by basic.get without acks")
	usedDeliverAck  = usedQueue("rabbitmq_queue_messages_delivered_ack_total", "Messages of the queue delivered to consumers of this node with acks")
	usedDeliver     = usedQueue("rabbitmq_queue_messages_delivered_total", "Messages of the queue delivered to consumers of this node without acks")
	usedRedelivered = usedQueue("rabbitmq_queue_messages_redelivered_total", "Messages of the queue delivered again to clients of this node")
	usedAcked       = usedQueue("rabbitmq_queue_messages_acked_total", "Messages of the queue that clients of this node acknowledged")
	usedGetEmpty    = usedQueue("rabbitmq_queue_get_empty_total", "basic.get of clients of this node that found the queue empty")

	exchangePublished = define(def{of: used, objectOnly: true, family: familyExchange, kind: counterKind, name: "rabbitmq_exchange_messages_published_total", help: "Messages that clients of this node published into the exchange"})
	exchangeRouted    = define(def{of: used, objectOnly: true, family: familyExchange, kind: counterKind, name: "warren_exchange_messages_routed_total", help: "Copies of these that queues got"})
)

func usedQueue(name, help string) *def {
	return define(def{of: queue, objectOnly: true, family: familyDelivery, kind: counterKind, name: name, help: help})
}

// channels puts the figures of channels, each for itself or all together.
func (s *scrape) channels() {
	if s.cfg.Channels == nil || !s.wants(channelConsumers, channelPublished, channelDelivered) {
		return
	}
	all := s.cfg.Channels()
	publishers := 0
	for i := range all {
		if all[i].Counted[stats.Publish] > 0 {
			publishers++
		}
	}
	s.count(globalPublishers, uint64(publishers), protocol) // of all vhosts, and not in what is detailed
	if s.mode == aggregated {
		s.channelSums(all)
		return
	}
	for i := range all {
		c := &all[i]
		if !s.shows(c.Connection.VHost) {
			continue
		}
		labels := []string{c.Connection.Name, strconv.Itoa(int(c.Number)), c.Connection.VHost, c.Connection.User}
		s.count(channelConsumers, uint64(max(0, c.Consumers)), labels...)
		s.count(channelUnacked, uint64(max(0, c.Unacked)), labels...)
		s.count(channelUnconfirmed, uint64(max(0, c.Unconfirmed)), labels...)
		s.count(channelUncommitted, uint64(max(0, c.Uncommitted)), labels...)
		s.count(channelPrefetch, uint64(c.Limit), labels...)
		s.count(consumerPrefetch, uint64(c.Prefetch), labels...)
		for _, x := range []struct {
			d *def
			c stats.Counter
		}{
			{channelPublished, stats.Publish},
			{channelConfirmed, stats.Confirm},
			{channelDropped, stats.DropUnroutable},
			{channelReturned, stats.ReturnUnroutable},
			{channelDelivered, stats.DeliverNoAck},
			{channelDeliveredM, stats.Deliver},
			{channelRedelivered, stats.Redeliver},
			{channelAcked, stats.Ack},
			{channelGet, stats.GetNoAck},
			{channelGetAck, stats.Get},
			{channelGetEmpty, stats.GetEmpty},
		} {
			s.count(x.d, c.Counted[x.c], labels...)
		}
	}
}

// channelSums puts what channels have now. What they have counted is summed up elsewhere, with those that are closed.
func (s *scrape) channelSums(all []gateway.ChannelInfo) {
	var consumers, unacked, unconfirmed, uncommitted int
	for i := range all {
		c := &all[i]
		consumers, unacked, unconfirmed, uncommitted = consumers+c.Consumers, unacked+c.Unacked, unconfirmed+c.Unconfirmed, uncommitted+c.Uncommitted
	}
	s.count(channelConsumers, uint64(max(0, consumers)))
	s.count(channelUnacked, uint64(max(0, unacked)))
	s.count(channelUnconfirmed, uint64(max(0, unconfirmed)))
	s.count(channelUncommitted, uint64(max(0, uncommitted)))
}

// used puts what clients of this node have done with single queues and exchanges.
func (s *scrape) used() {
	if s.wants(usedAcked) {
		seen := map[[2]string]bool{}
		s.cfg.Broker.UsedQueues(func(id uint64, n *stats.Set) {
			vhost, name, ok := s.cfg.QueueName(id)
			if key := [2]string{vhost, name}; ok && s.shows(vhost) && !seen[key] {
				seen[key] = true
				s.usedQueue(n, vhost, name)
			}
		})
	}
	if s.wants(exchangePublished) {
		s.cfg.Broker.ExchangeCounters(func(k stats.Key, n *stats.Set) {
			if vhost, name, ok := strings.Cut(k.Name, "\x00"); ok && s.shows(vhost) {
				s.count(exchangePublished, n[stats.PublishIn], vhost, name)
				s.count(exchangeRouted, n[stats.PublishOut], vhost, name)
			}
		})
	}
}

func (s *scrape) usedQueue(n *stats.Set, object ...string) {
	s.count(usedGetAck, n[stats.Get], object...)
	s.count(usedGet, n[stats.GetNoAck], object...)
	s.count(usedDeliverAck, n[stats.Deliver], object...)
	s.count(usedDeliver, n[stats.DeliverNoAck], object...)
	s.count(usedRedelivered, n[stats.Redeliver], object...)
	s.count(usedAcked, n[stats.Ack], object...)
	s.count(usedGetEmpty, n[stats.GetEmpty], object...)
}
