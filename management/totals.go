package management

import (
	"context"
	"net/http"
	"sync"
	"time"

	"github.com/warrenmq/warren/stats"
)

// peerTotals is what a node counts as a whole and by virtual host.
type peerTotals struct {
	Node   counted             `json:"node"`
	VHosts map[string]*counted `json:"vhosts"`
	Churn  counted             `json:"churn"`
	// What clients have open, by virtual host.
	Connections map[string]int `json:"connections"`
	Channels    map[string]int `json:"channels"`
	Consumers   map[string]int `json:"consumers"`
}

// totalsHere are those of this node.
func (a *API) totalsHere() *peerTotals {
	b, s := a.cfg.Broker, a.cfg.Sampler
	t := &peerTotals{
		VHosts: map[string]*counted{}, Connections: map[string]int{}, Channels: map[string]int{}, Consumers: map[string]int{},
		Node: counted{b.NodeCounters(), s.Rates(stats.Key{Kind: stats.Node})},
	}
	for name, set := range b.VhostCounters() {
		t.VHosts[name] = &counted{*set, stats.Rates{}}
	}
	s.Each(stats.VHost, func(k stats.Key, r *stats.Rates) {
		if t.VHosts[k.Name] == nil {
			t.VHosts[k.Name] = new(counted)
		}
		t.VHosts[k.Name].Rates = *r
	})
	a.cfg.Churn(func(k stats.Key, set *stats.Set) { t.Churn = counted{*set, s.Rates(k)} })
	for _, c := range a.cfg.Connections.List() {
		t.Connections[c.VHost]++
		t.Channels[c.VHost] += c.Channels
	}
	for _, c := range b.Consumers() {
		t.Consumers[c.VHost]++
	}
	return t
}

func (c *counted) add(other *counted) {
	c.Set.Add(&other.Set)
	c.Rates.Add(&other.Rates)
}

// totals adds up what all nodes have counted.
func (a *API) totals(ctx context.Context) *peerTotals {
	sum := a.totalsHere()
	var mu sync.Mutex
	err := a.eachPeer(ctx, func(ctx context.Context, node string) error {
		var t peerTotals
		if err := a.ask(ctx, node, peerRequest{Op: opTotals}, &t); err != nil {
			return err
		}
		mu.Lock()
		defer mu.Unlock()
		sum.Node.add(&t.Node)
		sum.Churn.add(&t.Churn)
		for name, c := range t.VHosts {
			if sum.VHosts[name] == nil {
				sum.VHosts[name] = new(counted)
			}
			sum.VHosts[name].add(c)
		}
		for of, to := range map[*map[string]int]map[string]int{&t.Connections: sum.Connections, &t.Channels: sum.Channels, &t.Consumers: sum.Consumers} {
			for name, n := range *of {
				to[name] += n
			}
		}
		return nil
	})
	if err != nil {
		a.cfg.Logger.Info("totals of some nodes are missing", "err", err)
	}
	return sum
}

// lengths are the messages in queues, with the rates at which they grow.
type lengths struct {
	Messages               uint64  `json:"messages"`
	MessagesDetails        Details `json:"messages_details"`
	MessagesReady          uint64  `json:"messages_ready"`
	MessagesReadyDetails   Details `json:"messages_ready_details"`
	MessagesUnacked        uint64  `json:"messages_unacknowledged"`
	MessagesUnackedDetails Details `json:"messages_unacknowledged_details"`
	// Uncounted are queues that nobody has told to lead: what is in them is in no number here.
	Uncounted int `json:"warren_queues_uncounted,omitempty"`
}

func (l *lengths) add(f *queueFigures) {
	if f.leader == "" {
		l.Uncounted++
	}
	l.Messages += f.row.Ready + f.row.Unacked + f.row.Delayed
	l.MessagesReady += f.row.Ready
	l.MessagesUnacked += f.row.Unacked
	l.MessagesReadyDetails.Rate += f.readyRate
	l.MessagesUnackedDetails.Rate += f.unackedRate
	l.MessagesDetails.Rate += f.readyRate + f.unackedRate
}

// withPast adds samples.
func (l *lengths) withPast(h *past) {
	l.MessagesDetails = h.details(l.MessagesDetails.Rate, func(s *stats.Set) uint64 { return s[stats.Ready] + s[stats.Unacked] })
	l.MessagesReadyDetails = h.details(l.MessagesReadyDetails.Rate, func(s *stats.Set) uint64 { return s[stats.Ready] })
	l.MessagesUnackedDetails = h.details(l.MessagesUnackedDetails.Rate, func(s *stats.Set) uint64 { return s[stats.Unacked] })
}

// VhostTotals are the figures of a vhost, of all nodes.
type VhostTotals struct {
	lengths
	MessageStats MessageStats      `json:"message_stats,omitempty"`
	ClusterState map[string]string `json:"cluster_state"` // "running" for each node that runs
}

// vhostLengths adds up the queues of each vhost, by figures that may be as old as age.
func (a *API) vhostLengths(ctx context.Context, age time.Duration) map[string]*lengths {
	table := a.queueTableOf(ctx, age)
	m := map[string]*lengths{}
	var at string // queues come by vhost
	var l *lengths
	for _, q := range a.cfg.Broker.QueueNames("") {
		if l == nil || q.VHost != at {
			at, l = q.VHost, new(lengths)
			m[at] = l
		}
		l.add(table.of(q.ID))
	}
	return m
}

// addTotals adds to vhosts what is in their queues and what their clients have done.
func (a *API) addTotals(ctx context.Context, list []VhostJSON) {
	totals, sums := a.totals(ctx), a.vhostLengths(ctx, 0)
	running := map[string]string{}
	for _, n := range a.cfg.Cluster.Nodes() {
		if n.Running {
			running[n.Name] = "running"
		}
	}
	for i := range list {
		t := &VhostTotals{ClusterState: running}
		if l := sums[list[i].Name]; l != nil {
			t.lengths = *l
		}
		if c := totals.VHosts[list[i].Name]; c != nil {
			t.MessageStats = messageStats(countersOfChannel, c, nil)
		}
		list[i].VhostTotals = t
	}
}

// Instant is a time in ms since 1970 as RabbitMQ writes it.
func Instant(ms int64) string {
	return time.UnixMilli(ms).UTC().Format("2006-01-02T15:04:05.000-07:00")
}

// peerExchanges has what was published to exchanges by the clients of a node.
type peerExchanges struct {
	Exchanges []exchangeCounted `json:"exchanges"`
}

type exchangeCounted struct {
	Key string `json:"key"` // vhost, 0, name
	In  uint64 `json:"in"`
	Out uint64 `json:"out"`
	// Rates per second.
	InRate  float64 `json:"in_rate"`
	OutRate float64 `json:"out_rate"`
}

func (a *API) exchangesHere() peerExchanges {
	p := peerExchanges{Exchanges: []exchangeCounted{}}
	a.cfg.Broker.ExchangeCounters(func(k stats.Key, s *stats.Set) {
		r := a.cfg.Sampler.Rates(k)
		p.Exchanges = append(p.Exchanges, exchangeCounted{k.Name, s[stats.PublishIn], s[stats.PublishOut], r[stats.PublishIn], r[stats.PublishOut]})
	})
	return p
}

// exchangeCounts adds up what was published to exchanges, by the key of their samples.
func (a *API) exchangeCounts(ctx context.Context) map[string]*counted {
	m := map[string]*counted{}
	var mu sync.Mutex
	add := func(p peerExchanges) {
		mu.Lock()
		defer mu.Unlock()
		for _, x := range p.Exchanges {
			c := m[x.Key]
			if c == nil {
				c = new(counted)
				m[x.Key] = c
			}
			c.Set[stats.PublishIn] += x.In
			c.Set[stats.PublishOut] += x.Out
			c.Rates[stats.PublishIn] += x.InRate
			c.Rates[stats.PublishOut] += x.OutRate
		}
	}
	add(a.exchangesHere())
	err := a.eachPeer(ctx, func(ctx context.Context, node string) error {
		var p peerExchanges
		err := a.ask(ctx, node, peerRequest{Op: opExchanges}, &p)
		add(p)
		return err
	})
	if err != nil {
		a.cfg.Logger.Info("figures of exchanges of some nodes are missing", "err", err)
	}
	return m
}

// addExchangeStats adds to exchanges what was published to them.
func (a *API) addExchangeStats(r *http.Request, list []Exchange) {
	if asked(r, "disable_stats") {
		return
	}
	counts := a.exchangeCounts(r.Context())
	for i := range list {
		if c := counts[list[i].VHost+"\x00"+list[i].Name]; c != nil {
			list[i].MessageStats = messageStats(countersOfExchange, c, nil)
		}
	}
}
