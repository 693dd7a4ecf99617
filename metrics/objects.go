package metrics

// Exchange is one of the cluster's exchanges. The default exchange is none of them: it has no name and no bindings of its own.
type Exchange struct {
	Name, Type string
	Bindings   int // from it
}

// Connections of clients.
var (
	connectionIn       = define(def{of: connection, objectOnly: true, family: familyConnectionCoarse, kind: counterKind, name: "rabbitmq_connection_incoming_bytes_total", help: "Bytes received on the connection"})
	connectionOut      = define(def{of: connection, objectOnly: true, family: familyConnectionCoarse, kind: counterKind, name: "rabbitmq_connection_outgoing_bytes_total", help: "Bytes sent on the connection"})
	connectionChannels = define(def{of: connection, objectOnly: true, family: familyConnection, kind: gaugeKind, name: "rabbitmq_connection_channels", help: "Channels open on the connection"})
)

// The cluster's, the same on every node.
var (
	vhostStatus      = define(def{of: vhost, family: familyVhosts, kind: gaugeKind, name: "rabbitmq_cluster_vhost_status", help: "1 for each virtual host: what there is runs"})
	exchangeName     = define(def{of: exchange, family: familyExchanges, kind: gaugeKind, name: "rabbitmq_cluster_exchange_name", help: "1 for each exchange but the default one", labels: []string{"type"}})
	exchangeBindings = define(def{of: exchange, family: familyBindings, kind: gaugeKind, name: "rabbitmq_cluster_exchange_bindings", help: "Bindings from the exchange", labels: []string{"type"}})
)

// connections puts the figures of each connection.
func (s *scrape) connections() {
	if s.cfg.Connections == nil || !s.wants(connectionIn, connectionChannels) {
		return
	}
	for _, c := range s.cfg.Connections() {
		if !s.shows(c.VHost) {
			continue
		}
		labels := []string{c.Name, c.VHost, c.User}
		s.count(connectionIn, c.ReceivedBytes, labels...)
		s.count(connectionOut, c.WrittenBytes, labels...)
		s.count(connectionChannels, uint64(max(0, c.Channels)), labels...)
	}
}

// topology puts what the catalog has.
func (s *scrape) topology() {
	if s.cfg.Vhosts == nil || !s.wants(vhostStatus, exchangeName, exchangeBindings) {
		return
	}
	for _, vhost := range s.cfg.Vhosts() {
		if !s.shows(vhost) {
			continue
		}
		s.put(vhostStatus, 1, vhost)
		if !s.wants(exchangeName, exchangeBindings) {
			continue
		}
		for _, e := range s.cfg.Exchanges(vhost) {
			s.put(exchangeName, 1, vhost, e.Name, e.Type)
			s.put(exchangeBindings, float64(e.Bindings), vhost, e.Name, e.Type)
		}
	}
}

// wants tells whether one of the metrics is asked for.
func (s *scrape) wants(list ...*def) bool {
	for _, d := range list {
		if s.form(d) != nil {
			return true
		}
	}
	return false
}
