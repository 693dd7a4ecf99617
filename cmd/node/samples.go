package main

import (
	"context"
	"sync"
	"time"

	"github.com/warrenmq/warren/management"
	"github.com/warrenmq/warren/stats"
)

// openSampler begins to sample what this node counts.
func (n *running) openSampler() {
	n.sampler = stats.New(n.broker.Sample, n.amqp.Sample, n.sampleChurn, n.sampleUse)
	ctx, cancel := context.WithCancel(context.Background())
	var work sync.WaitGroup
	work.Go(func() { n.sampler.Run(ctx) })
	n.onClose("samples", func() error {
		cancel()
		work.Wait()
		return nil
	})
}

func (n *running) sampleChurn(yield func(stats.Key, *stats.Set)) {
	q, g := n.broker.QueueChurn(), n.amqp.Stats()
	yield(stats.Key{Kind: stats.Churn}, &stats.Set{
		stats.ConnectionCreated: g.Accepted, stats.ConnectionClosed: g.Closed, stats.ChannelCreated: g.ChannelsOpened, stats.ChannelClosed: g.ChannelsClosed,
		stats.QueueDeclared: q.Declared, stats.QueueCreated: q.Created, stats.QueueDeleted: q.Deleted,
	})
}

func (n *running) sampleUse(yield func(stats.Key, *stats.Set)) {
	u := n.use()
	yield(stats.Key{Kind: stats.Process}, &stats.Set{
		stats.MemUsed: u.MemUsed, stats.DiskFree: u.DiskFree, stats.FilesUsed: u.FilesUsed,
		stats.SocketsUsed: uint64(u.SocketsUsed), stats.ProcUsed: uint64(u.ProcUsed),
	})
}

// Channels describes the open channels.
func (c connections) Channels() []management.Channel {
	all := c.server.Channels()
	list := make([]management.Channel, len(all))
	for i, ch := range all {
		of := ch.Connection
		state := "running"
		if of.Blocked != "" {
			state = "blocked"
		}
		peer, port := management.HostPort(of.Peer)
		key := stats.Key{Kind: stats.Channel, ID: ch.ID}
		list[i] = management.Channel{
			Name: management.ChannelName(of.Name, ch.Number), Number: ch.Number, Node: c.node, User: of.User, UserWhoPerformedAction: of.User, VHost: of.VHost,
			State: state, ConnectionDetails: management.ConnectionDetails{Name: of.Name, PeerHost: peer, PeerPort: port},
			PrefetchCount: ch.Prefetch, GlobalPrefetchCount: ch.Limit, Confirm: ch.Confirm, Transactional: ch.Transactional,
			MessagesUnacked: ch.Unacked, MessagesUnconfirmed: ch.Unconfirmed, AcksUncommitted: ch.Uncommitted, MessagesUncommitted: ch.UncommittedMessages, ID: ch.ID, ConsumerCount: ch.Consumers,
			MessageStats: management.ChannelStats(ch.Counted, c.sampler.Rates(key)),
		}
		if at, ok := c.sampler.Changed(key); ok && time.Now().UnixMilli()-at > 2*stats.Interval.Milliseconds() {
			list[i].IdleSince = management.Instant(at)
		}
	}
	return list
}
