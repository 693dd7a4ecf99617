package main

import (
	"context"
	"net"
	"strconv"
	"time"

	"github.com/warrenmq/warren/certs"
	"github.com/warrenmq/warren/management"
	"github.com/warrenmq/warren/metrics"
)

// checks is what this node knows of itself, for health checks.
type checks struct{ n *running }

// Unready implements management.Health.
func (h checks) Unready() string { return h.n.readiness().Reason }

// TargetSize implements management.Health. It is the number of founders that this node was told of.
func (h checks) TargetSize() int { return h.n.cfg.BootstrapExpect }

// Hosting implements management.Health.
func (h checks) Hosting() bool { return h.n.broker.Hosting() }

// criticalWait is how long other nodes have to tell which replicas they run.
const criticalWait = 3 * time.Second

// QuorumCritical implements management.Health. The catalog is named as RabbitMQ names its metadata store.
func (h checks) QuorumCritical(ctx context.Context) []management.CriticalQueue {
	ctx, cancel := context.WithTimeout(ctx, criticalWait)
	defer cancel()
	list := []management.CriticalQueue{}
	cat := h.n.catalog.Load()
	if cat.Critical() {
		list = append(list, management.CriticalQueue{ReadableName: "the catalog", Name: "rabbitmq_metadata", VHost: "(not applicable)", Type: "process"})
	}
	view := cat.View()
	for _, id := range h.n.host.CriticalGroups(ctx) {
		q := view.QueueByID(uint64(id))
		if q == nil {
			continue
		}
		name := metrics.ObjectName(q.Name, q.DelayOf)
		list = append(list, management.CriticalQueue{
			ReadableName: "queue '" + name + "' in vhost '" + q.Vhost + "'", Name: name, VHost: q.Vhost, Type: "rabbit_quorum_queue",
		})
	}
	return list
}

// Listening implements management.Health. The listeners for clients of AMQP and gRPC are closed while the node is drained.
func (h checks) Listening() (list []management.Listener) {
	add := func(protocol string, ln net.Listener) {
		if ln == nil {
			return
		}
		host, text, err := net.SplitHostPort(ln.Addr().String())
		port, bad := strconv.Atoi(text)
		if err == nil && bad == nil {
			list = append(list, management.Listener{Node: h.n.cfg.NodeID, Protocol: protocol, Address: host, Port: port, Purpose: purposes[protocol]})
		}
	}
	l := h.n.listeners
	if phase(h.n.phase.Load()) == serving {
		add("amqp", l.amqp)
		add("amqp/ssl", l.amqps)
		add("grpc", l.grpc)
	}
	add("http", l.http)
	add("https", l.https)
	add("http/prometheus", l.metrics)
	add("clustering", l.cluster)
	add("health", l.health)
	add("debug", l.debug)
	return list
}

// CertificateExpiry implements management.Health.
func (h checks) CertificateExpiry(protocol string) (certificate, authorities time.Time) {
	var source *certs.Source
	switch protocol {
	case "amqp/ssl", "https", "grpc":
		source = h.n.clientTLS
	case "clustering":
		source = h.n.nodeTLS
	}
	if source == nil {
		return time.Time{}, time.Time{}
	}
	return source.Stats().NotAfter, h.n.authoritiesEnd(source)
}
