package management

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"

	"github.com/warrenmq/warren/stats"
)

// Channel is the JSON form of a client's channel.
type Channel struct {
	Name   string `json:"name"` // "peer:port -> host:port (number)"
	Number uint16 `json:"number"`
	Node   string `json:"node"`
	User   string `json:"user"`
	// UserWhoPerformedAction is the user, as RabbitMQ shows it a second time.
	UserWhoPerformedAction string            `json:"user_who_performed_action"`
	VHost                  string            `json:"vhost"`
	State                  string            `json:"state"` // "running"
	ConnectionDetails      ConnectionDetails `json:"connection_details"`
	PrefetchCount          uint16            `json:"prefetch_count"`
	GlobalPrefetchCount    uint16            `json:"global_prefetch_count"`
	Confirm                bool              `json:"confirm"`
	Transactional          bool              `json:"transactional"`
	MessagesUnacked        int               `json:"messages_unacknowledged"`
	MessagesUnconfirmed    int               `json:"messages_unconfirmed"`
	AcksUncommitted        int               `json:"acks_uncommitted"`
	MessagesUncommitted    int               `json:"messages_uncommitted"`
	ConsumerCount          int               `json:"consumer_count"`
	MessageStats           MessageStats      `json:"message_stats,omitempty"`
	// ConsumerDetails are told of one channel, not in lists.
	ConsumerDetails []Consumer `json:"consumer_details,omitzero"`
	// IdleSince is when it was used last, to five seconds, if that is a while ago.
	IdleSince string `json:"idle_since,omitempty"`
	// ID numbers the channels of a node, for the samples.
	ID uint64 `json:"warren_id"`
}

// ConnectionDetails name the connection of a channel.
type ConnectionDetails struct {
	Name     string `json:"name"`
	PeerHost string `json:"peer_host"`
	PeerPort int    `json:"peer_port"`
}

// ChannelName names a channel by its connection's name and its number, as RabbitMQ does.
func ChannelName(connection string, number uint16) string {
	return fmt.Sprintf("%s (%d)", connection, number)
}

// key orders a node's channels.
func (c Channel) key() string { return fmt.Sprintf("%s %05d", c.ConnectionDetails.Name, c.Number) }

// channelOrder is that of their connections' names and their numbers.
func channelOrder(a, b Channel) int {
	return cmp.Or(strings.Compare(a.ConnectionDetails.Name, b.ConnectionDetails.Name), cmp.Compare(a.Number, b.Number))
}

func (a *API) routeChannels() {
	a.handle("GET /api/channels", func(r *http.Request, u User) (any, error) {
		return a.listChannels(r, func(c *Channel) bool { return u.monitors() || c.User == u.Name })
	})
	a.handle("GET /api/channels/{name}", a.getChannel)
	a.handle("GET /api/vhosts/{vhost}/channels", func(r *http.Request, u User) (any, error) {
		vhost, err := a.vhost(r, u)
		if err != nil {
			return nil, err
		}
		return a.listChannels(r, func(c *Channel) bool { return c.VHost == vhost && (u.monitors() || c.User == u.Name) })
	})
	// Not ".../channels", which the mux could not tell from connections/username/{user}.
	a.handle("GET /api/connections/{name}/{of}", func(r *http.Request, u User) (any, error) {
		if r.PathValue("of") != "channels" {
			return nil, errNotFound
		}
		conn, err := a.findConnection(r, u)
		if err != nil {
			return nil, err
		}
		return a.listChannels(r, func(c *Channel) bool { return c.ConnectionDetails.Name == conn.Name && c.Node == conn.Node })
	})
}

func (a *API) channels(ctx context.Context) ([]Channel, error) {
	all, err := gather(ctx, a, peerRequest{Op: opChannels}, a.cfg.Connections.Channels())
	slices.SortFunc(all, channelOrder)
	return all, err
}

func (a *API) listChannels(r *http.Request, wanted func(*Channel) bool) (any, error) {
	all, err := a.channels(r.Context())
	if err != nil {
		a.cfg.Logger.Warn("channels of some nodes are missing", "err", err)
	}
	return paged(r, slices.DeleteFunc(all, func(c Channel) bool { return !wanted(&c) }))
}

func (a *API) getChannel(r *http.Request, u User) (any, error) {
	rates, err := spanOf(r, "msg_rates")
	if err != nil {
		return nil, err
	}
	all, err := a.channels(r.Context())
	i := slices.IndexFunc(all, func(c Channel) bool { return c.Name == r.PathValue("name") })
	switch {
	case i < 0 && err != nil:
		return nil, err
	case i < 0:
		return nil, errNotFound
	case !u.monitors() && all[i].User != u.Name:
		return nil, errNotAuthorised
	}
	c := &all[i]
	c.MessageStats.withPast(countersOfChannel, a.pastAt(r.Context(), c.Node, stats.Key{Kind: stats.Channel, ID: c.ID}, rates))
	consumers, err := a.consumers(r.Context(), 0)
	if err != nil {
		a.cfg.Logger.Info("consumers of some nodes are missing", "err", err)
	}
	c.ConsumerDetails = append([]Consumer{}, slices.DeleteFunc(consumers, func(x Consumer) bool { return x.ChannelDetails.Name != c.Name })...)
	return c, nil
}

// HostPort takes an address apart.
func HostPort(a net.Addr) (host string, port int) {
	if tcp, ok := a.(*net.TCPAddr); ok {
		return tcp.IP.String(), tcp.Port
	}
	return a.String(), 0
}
