package management

import (
	"context"
	"net/http"
	"runtime"
	"time"

	"github.com/warrenmq/warren/stats"
)

// ratesMode is that of RabbitMQ in which every figure is there.
const ratesMode = "detailed"

// overview is what a cluster is and does, as RabbitMQ shows it.
type overview struct {
	ManagementVersion string           `json:"management_version"`
	RatesMode         string           `json:"rates_mode"`
	ExchangeTypes     []exchangeType   `json:"exchange_types"`
	ProductName       string           `json:"product_name"`
	ProductVersion    string           `json:"product_version"`
	RabbitMQVersion   string           `json:"rabbitmq_version"`
	ErlangVersion     string           `json:"erlang_version"` // Go's, for tools that show what a node runs on
	ClusterName       string           `json:"cluster_name"`
	DefaultQueueType  string           `json:"default_queue_type"`
	DisableStats      bool             `json:"disable_stats"`
	QueueTotalsOn     bool             `json:"enable_queue_totals"`
	Node              string           `json:"node"`
	ChurnRates        map[string]any   `json:"churn_rates,omitempty"`
	QueueTotals       lengths          `json:"queue_totals"`
	ObjectTotals      map[string]int   `json:"object_totals"`
	EventQueue        int              `json:"statistics_db_event_queue"` // nothing waits to be counted
	MessageStats      MessageStats     `json:"message_stats"`
	Listeners         []Listener       `json:"listeners"`
	Contexts          []map[string]any `json:"contexts"`
}

type exchangeType struct {
	Name        string `json:"name"`
	Description string `json:"description"`
	Enabled     bool   `json:"enabled"`
}

// exchangeTypes are those that can be declared.
var exchangeTypes = []exchangeType{
	{"direct", "AMQP direct exchange, as per the AMQP specification", true},
	{"fanout", "AMQP fanout exchange, as per the AMQP specification", true},
	{"headers", "AMQP headers exchange, as per the AMQP specification", true},
	{"topic", "AMQP topic exchange, as per the AMQP specification", true},
	{"x-consistent-hash", "by a hash of the routing key", true},
	{"x-delayed-message", "delayed messages", true},
	{"x-local-random", "a random queue that is led on the publisher's node", true},
	{"x-modulus-hash", "by a hash of the routing key, modulo the number of queues", true},
	{"x-random", "a random queue", true},
}

func (a *API) routeOverview() {
	a.handle("GET /api/overview", a.overview)
}

func (a *API) overview(r *http.Request, u User) (any, error) {
	lengthsSpan, err := spanOf(r, "lengths")
	if err != nil {
		return nil, err
	}
	rates, err := spanOf(r, "msg_rates")
	if err != nil {
		return nil, err
	}
	return a.overviewOf(r.Context(), u, lengthsSpan, rates, 0)
}

// overviewOf is the overview for a user, with samples of the spans. What is in queues may be as old as age.
func (a *API) overviewOf(ctx context.Context, u User, lengthsSpan, rates span, age time.Duration) (any, error) {
	o := overview{RatesMode: ratesMode, ErlangVersion: runtime.Version(), ExchangeTypes: exchangeTypes, DefaultQueueType: "classic", ObjectTotals: map[string]int{}, ClusterName: a.cfg.Cluster.ClusterName()}
	o.ProductName, o.ProductVersion = a.cfg.Product()
	o.ManagementVersion, o.RabbitMQVersion = o.ProductVersion, o.ProductVersion
	o.Node = a.localName()

	totals, sums := a.totals(ctx), a.vhostLengths(ctx, age)
	all := u.monitors()
	var seen counted
	for _, v := range a.cfg.Broker.VhostInfos() {
		if !a.sees(u, v.Name) {
			continue
		}
		if l := sums[v.Name]; l != nil {
			o.QueueTotals.addAll(l)
		}
		if c := totals.VHosts[v.Name]; c != nil {
			seen.add(c)
		}
		for name, n := range map[string]int{
			"connections": totals.Connections[v.Name], "channels": totals.Channels[v.Name], "consumers": totals.Consumers[v.Name],
			"exchanges": a.cfg.Broker.CountExchanges(v.Name), "queues": len(a.cfg.Broker.QueueNames(v.Name)),
		} {
			o.ObjectTotals[name] += n
		}
	}
	if !all {
		// Samples are kept of the whole only, which is not for them to see.
		o.MessageStats = someStats(messageStats(countersOfChannel, &seen, nil))
		return o, nil
	}
	node := stats.Key{Kind: stats.Node}
	o.QueueTotals.withPast(a.past(ctx, node, lengthsSpan))
	o.MessageStats = someStats(messageStats(countersOfChannel, &totals.Node, a.past(ctx, node, rates)))
	o.ChurnRates = map[string]any{}
	for i, name := range stats.ChurnNames {
		o.ChurnRates[name], o.ChurnRates[name+"_details"] = totals.Churn.Set[i], Details{Rate: totals.Churn.Rates[i]}
	}
	o.Listeners, o.Contexts = []Listener{}, []map[string]any{}
	for _, n := range a.cfg.Cluster.Nodes() {
		o.Listeners = append(o.Listeners, n.Listeners...)
		for _, l := range n.Listeners {
			if l.Protocol == "http" || l.Protocol == "https" {
				o.Contexts = append(o.Contexts, map[string]any{"node": n.Name, "description": "Warren Management", "path": "/", "ip": l.Address, "port": l.Port, "protocol": l.Protocol})
			}
		}
	}
	return o, nil
}

// someStats is an object in JSON even if nothing was counted.
func someStats(m MessageStats) MessageStats {
	if m == nil {
		return MessageStats{}
	}
	return m
}

func (l *lengths) addAll(other *lengths) {
	l.Messages += other.Messages
	l.MessagesReady += other.MessagesReady
	l.MessagesUnacked += other.MessagesUnacked
	l.Uncounted += other.Uncounted
	l.MessagesDetails.Rate += other.MessagesDetails.Rate
	l.MessagesReadyDetails.Rate += other.MessagesReadyDetails.Rate
	l.MessagesUnackedDetails.Rate += other.MessagesUnackedDetails.Rate
}
