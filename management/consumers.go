package management

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"

	"github.com/warrenmq/warren/broker"
)

// Consumer is the JSON form of a consumer.
type Consumer struct {
	Queue          objectName     `json:"queue"`
	Tag            string         `json:"consumer_tag"`
	ChannelDetails ChannelDetails `json:"channel_details"`
	AckRequired    bool           `json:"ack_required"`
	Exclusive      bool           `json:"exclusive"`
	PrefetchCount  uint16         `json:"prefetch_count"`
	// Active: it gets messages. ActivityStatus is "up", "single_active" or "waiting".
	Active          bool           `json:"active"`
	ActivityStatus  string         `json:"activity_status"`
	Arguments       map[string]any `json:"arguments"`
	ConsumerTimeout int64          `json:"consumer_timeout"` // ms that it may hold a message; 0: for ever
	Priority        int32          `json:"warren_priority"`
	Delivered       uint64         `json:"warren_delivered"` // messages

	// QueueID, Node and No are for the nodes among each other.
	QueueID uint64 `json:"warren_queue_id"`
	Node    uint64 `json:"warren_node_number"`
	No      uint64 `json:"warren_number"`
}

// objectName names a queue or an exchange.
type objectName struct {
	Name  string `json:"name"`
	VHost string `json:"vhost"`
}

// ChannelDetails name a channel and its connection.
type ChannelDetails struct {
	Name           string `json:"name"` // "peer:port -> host:port (number)"
	Number         uint16 `json:"number"`
	User           string `json:"user"`
	ConnectionName string `json:"connection_name"`
	Node           string `json:"node"`
	PeerHost       string `json:"peer_host"`
	PeerPort       int    `json:"peer_port"`
}

// DeliveriesTo tells what a queue has delivered to a channel.
type DeliveriesTo struct {
	ChannelDetails ChannelDetails `json:"channel_details"`
	Stats          map[string]any `json:"stats"`
}

// key orders a node's consumers.
func (c Consumer) key() string { return fmt.Sprintf("%s %s %020d", c.Queue.VHost, c.Queue.Name, c.No) }

func (a *API) routeConsumers() {
	a.handle("GET /api/consumers", func(r *http.Request, u User) (any, error) { return a.listConsumers(r, u, "") })
	a.handle("GET /api/consumers/{vhost}", func(r *http.Request, u User) (any, error) {
		vhost, err := a.vhost(r, u)
		if err != nil {
			return nil, err
		}
		return a.listConsumers(r, u, vhost)
	})
}

// listConsumers shows the consumers of the vhosts that the user may see.
func (a *API) listConsumers(r *http.Request, u User, vhost string) (any, error) {
	all, err := a.consumers(r.Context(), 0)
	if err != nil {
		a.cfg.Logger.Warn("consumers of some nodes are missing", "err", err)
	}
	seen := map[string]bool{}
	for _, v := range a.cfg.Broker.VhostInfos() {
		seen[v.Name] = (vhost == "" || vhost == v.Name) && a.sees(u, v.Name)
	}
	return paged(r, slices.DeleteFunc(all, func(c Consumer) bool { return !seen[c.Queue.VHost] }))
}

// consumers asks all nodes for the consumers of a queue, or of all with 0, and tells which are active.
func (a *API) consumers(ctx context.Context, queue uint64) ([]Consumer, error) {
	all, err := gather(ctx, a, peerRequest{Op: opConsumers, Queue: queue}, a.consumersHere(queue))
	table := a.queueTable(ctx)
	for i := range all {
		c := &all[i]
		c.Active, c.ActivityStatus = true, "up"
		info, ok := a.cfg.Broker.OutlineQueue(c.QueueID)
		if single, _ := info.Arguments.Get("x-single-active-consumer"); !ok || single != true {
			continue
		}
		row := table.of(c.QueueID).row
		if c.ActivityStatus = "single_active"; row.ActiveNode != c.Node || row.ActiveNumber != c.No {
			c.Active, c.ActivityStatus = false, "waiting"
		}
	}
	slices.SortFunc(all, func(a, b Consumer) int {
		return cmp.Or(strings.Compare(a.Queue.VHost, b.Queue.VHost), strings.Compare(a.Queue.Name, b.Queue.Name), strings.Compare(a.ChannelDetails.Name, b.ChannelDetails.Name), strings.Compare(a.Tag, b.Tag))
	})
	return all, err
}

// consumersHere are those of this node's clients.
func (a *API) consumersHere(queue uint64) []Consumer {
	list := []Consumer{}
	node, _, _ := strings.Cut(a.cfg.Cluster.Local(), "/")
	for _, c := range a.cfg.Broker.Consumers() {
		if queue == 0 || c.QueueID == queue {
			list = append(list, consumerJSON(&c, node))
		}
	}
	return list
}

func consumerJSON(c *broker.ConsumerInfo, node string) Consumer {
	j := Consumer{
		Queue: objectName{c.Queue, c.VHost}, Tag: c.Tag, AckRequired: !c.NoAck, Exclusive: c.Exclusive, PrefetchCount: c.Prefetch,
		Arguments: c.Arguments.JSON(), ConsumerTimeout: c.TimeoutMillis, Priority: c.Priority, Delivered: c.Delivered,
		QueueID: c.QueueID, Node: c.Node, No: c.No,
		ChannelDetails: ChannelDetails{Number: c.Channel, User: c.User, Node: node},
	}
	if c.Peer != nil && c.Local != nil {
		d := &j.ChannelDetails
		d.PeerHost, d.PeerPort = HostPort(c.Peer)
		d.ConnectionName = c.Peer.String() + " -> " + c.Local.String()
		d.Name = ChannelName(d.ConnectionName, c.Channel)
	}
	return j
}

// addConsumers adds to a queue its consumers and what each was delivered.
func (a *API) addConsumers(ctx context.Context, j *Queue, id uint64) {
	list, err := a.consumers(ctx, id)
	if err != nil {
		a.cfg.Logger.Info("consumers of some nodes are missing", "err", err)
	}
	j.ConsumerDetails, j.Deliveries = append([]Consumer{}, list...), []DeliveriesTo{}
	at := map[string]int{}
	for _, c := range list {
		if tag := c.Tag; c.Exclusive {
			j.ExclusiveConsumerTag = &tag
		}
		if tag := c.Tag; c.ActivityStatus == "single_active" {
			j.SingleActiveConsumerTag = &tag
		}
		name := c.ChannelDetails.Name
		i, ok := at[name]
		if !ok {
			i = len(j.Deliveries)
			at[name] = i
			j.Deliveries = append(j.Deliveries, DeliveriesTo{c.ChannelDetails, map[string]any{"deliver": uint64(0), "deliver_no_ack": uint64(0), "deliver_get": uint64(0)}})
		}
		which := "deliver"
		if !c.AckRequired {
			which = "deliver_no_ack"
		}
		s := j.Deliveries[i].Stats
		for _, counter := range []string{which, "deliver_get"} {
			n, _ := s[counter].(uint64)
			s[counter] = n + c.Delivered
		}
	}
}

// keyed items have a key that orders those of a node, and is stable.
type keyed interface{ key() string }

// peerItems is a part of a node's list.
type peerItems[T any] struct {
	Items []T `json:"items"`
	// More: there are items behind the last one.
	More bool `json:"more"`
}

// gather adds to a list of this node those of the others. With an error it is that of the nodes that answered.
func gather[T keyed](ctx context.Context, a *API, req peerRequest, all []T) ([]T, error) {
	var mu sync.Mutex
	err := a.eachPeer(ctx, func(ctx context.Context, node string) error {
		req := req // each node's own place in its list
		for {
			var page peerItems[T]
			if err := a.ask(ctx, node, req, &page); err != nil {
				return err
			}
			mu.Lock()
			all = append(all, page.Items...)
			mu.Unlock()
			if !page.More || len(page.Items) == 0 {
				return nil
			}
			req.After = page.Items[len(page.Items)-1].key()
		}
	})
	return all, err
}

// pageOf encodes what of a list is behind a key, as much as fits an answer.
func pageOf[T keyed](list []T, after string) ([]byte, error) {
	slices.SortFunc(list, func(a, b T) int { return strings.Compare(a.key(), b.key()) })
	list = slices.DeleteFunc(list, func(c T) bool { return c.key() <= after })
	size := 0
	for i := range list {
		raw, err := json.Marshal(&list[i])
		if err != nil {
			return nil, err
		}
		if size += len(raw); size > pageBytes && i > 0 {
			return json.Marshal(peerItems[T]{list[:i], true})
		}
	}
	return json.Marshal(peerItems[T]{Items: list})
}
