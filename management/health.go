package management

import (
	"context"
	"maps"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Health is what a node knows of its own health.
type Health interface {
	// Unready says why clients should not be sent to this node, "" if they may.
	Unready() string
	// TargetSize is how many nodes the cluster is to have at least, 0: nobody has said.
	TargetSize() int
	// Hosting tells whether the logs of this node's queues are open.
	Hosting() bool
	// QuorumCritical are the queues that would be without a quorum if this node went, and the catalog if it would be.
	QuorumCritical(ctx context.Context) []CriticalQueue
	// Listening are the listeners that are open.
	Listening() []Listener
	// CertificateExpiry is when the certificate expires that a listener of that protocol shows, and when the next of the authorities does that it
	// checks others by; zero if there is none.
	CertificateExpiry(protocol string) (certificate, authorities time.Time)
}

// CriticalQueue is a queue, or the catalog, that cannot do without a node.
type CriticalQueue struct {
	ReadableName string `json:"readable_name"`
	Name         string `json:"name"`
	VHost        string `json:"virtual_host"`
	Type         string `json:"type"`
}

// checkup is the answer of a health check: RabbitMQ's fields, of which each check has some.
type checkup struct {
	Status string `json:"status"` // ok or failed
	Reason string `json:"reason,omitempty"`

	Alarms    []alarmJSON     `json:"alarms,omitempty"`
	Port      int             `json:"port,omitempty"`
	Missing   any             `json:"missing,omitempty"` // port, or protocols
	Ports     []int           `json:"ports,omitempty"`
	Protocols []string        `json:"protocols,omitempty"`
	Expired   []expiring      `json:"expired,omitempty"`
	VHosts    []string        `json:"virtual-hosts,omitempty"`
	Queues    []CriticalQueue `json:"queues,omitempty"`
}

type alarmJSON struct {
	Node     string `json:"node"`
	Resource string `json:"resource"` // memory or disk
}

// expiring is a listener whose certificate, or an authority of the other end's, expires.
type expiring struct {
	Node      string   `json:"node"`
	Protocol  string   `json:"protocol"`
	Interface string   `json:"interface"`
	Port      int      `json:"port"`
	ExpiresOn []string `json:"certfile_expires_on,omitempty"`
	// AuthoritiesExpireOn is of the next one in the CA file.
	AuthoritiesExpireOn []string `json:"cacertfile_expires_on,omitempty"`
}

// healthy is the answer of a check with nothing to tell.
func healthy() checkup { return checkup{Status: "ok"} }

func failed(reason string) checkup { return checkup{Status: "failed", Reason: reason} }

func (a *API) routeHealth() {
	checks := a.moreChecks()
	maps.Copy(checks, map[string]func(*http.Request) (checkup, error){
		"alarms": a.checkAlarms, "local-alarms": a.checkLocalAlarms, "virtual-hosts": a.checkVhosts, "port-listener/{port}": a.checkPort,
		"protocol-listener/{protocol}": a.checkProtocol, "certificate-expiration/{within}/{unit}": a.checkCertificates,
		"node-is-quorum-critical": a.checkQuorumCritical, "ready-to-serve-clients": a.checkReady,
	})
	for path, check := range checks {
		a.serve("GET /api/health/checks/"+path, func(w http.ResponseWriter, r *http.Request) {
			_, err := a.authenticate(r)
			var c checkup
			if err == nil {
				c, err = check(r)
			}
			switch {
			case err != nil:
				a.refuse(w, err)
			case c.Status == "ok":
				a.write(w, http.StatusOK, c)
			default:
				a.write(w, http.StatusServiceUnavailable, c)
			}
		})
	}
}

// alarmsOf lists what a node is short of.
func alarmsOf(node string, s *NodeStats) (list []alarmJSON) {
	if s.MemAlarm {
		list = append(list, alarmJSON{node, "memory"})
	}
	if s.DiskAlarm {
		list = append(list, alarmJSON{node, "disk"})
	}
	return list
}

func (a *API) checkAlarms(r *http.Request) (checkup, error) {
	c := failed("There are alarms in effect in the cluster")
	for _, n := range a.nodes(r.Context()) {
		if n.NodeStats == nil { // it does not answer, and what it said may keep publishers away
			n.NodeStats = new(NodeStats)
			n.MemAlarm, n.DiskAlarm = a.cfg.Cluster.Alarms(n.ID)
		}
		c.Alarms = append(c.Alarms, alarmsOf(n.Name, n.NodeStats)...)
	}
	if c.Alarms == nil {
		return healthy(), nil
	}
	return c, nil
}

func (a *API) checkLocalAlarms(*http.Request) (checkup, error) {
	c, stats := failed("There are alarms in effect on the node"), a.cfg.Cluster.Stats()
	if c.Alarms = alarmsOf(a.localName(), &stats); c.Alarms == nil {
		return healthy(), nil
	}
	return c, nil
}

func (a *API) localName() string {
	name, _, _ := strings.Cut(a.cfg.Cluster.Local(), "/")
	return name
}

// checkVhosts fails while queues of this node are still being opened, those of any virtual host.
func (a *API) checkVhosts(*http.Request) (checkup, error) {
	if a.cfg.Health.Hosting() {
		return healthy(), nil
	}
	c := failed("Some virtual hosts are down")
	c.VHosts = a.cfg.Broker.Vhosts()
	return c, nil
}

func (a *API) checkReady(*http.Request) (checkup, error) {
	if why := a.cfg.Health.Unready(); why != "" {
		return failed(why), nil
	}
	return healthy(), nil
}

func (a *API) checkQuorumCritical(r *http.Request) (checkup, error) {
	c := failed("There are quorum queues that would lose their quorum if the target node is shut down")
	if c.Queues = a.cfg.Health.QuorumCritical(r.Context()); len(c.Queues) == 0 {
		return healthy(), nil
	}
	return c, nil
}

func (a *API) checkPort(r *http.Request) (checkup, error) {
	port, err := strconv.ParseUint(r.PathValue("port"), 10, 16)
	if err != nil {
		return checkup{}, badRequest("Invalid port")
	}
	c := failed("No active listener")
	c.Missing = port
	for _, l := range a.cfg.Health.Listening() {
		if l.Port == int(port) {
			return checkup{Status: "ok", Port: l.Port}, nil
		}
		c.Ports = append(c.Ports, l.Port)
	}
	return c, nil
}

// protocolNames are other names of protocols, as RabbitMQ takes them.
var protocolNames = map[string]string{
	"amqp091": "amqp", "amqp0.9.1": "amqp", "amqp0-9-1": "amqp", "amqp0_9_1": "amqp", "amqps": "amqp/ssl",
	"http1": "http", "http1.1": "http", "http_api": "http", "management": "http", "prometheus": "http/prometheus", "cli": "clustering", "distribution": "clustering",
}

// checkProtocol fails if one of the protocols, separated by commas, has no listener.
func (a *API) checkProtocol(r *http.Request) (checkup, error) {
	protocols := []string{}
	for _, l := range a.cfg.Health.Listening() {
		protocols = append(protocols, l.Protocol)
	}
	var missing []string
	for protocol := range strings.SplitSeq(strings.ToLower(r.PathValue("protocol")), ",") {
		if other := protocolNames[protocol]; other != "" {
			protocol = other
		}
		if !slices.Contains(protocols, protocol) {
			missing = append(missing, protocol)
		}
	}
	c := healthy()
	if missing != nil {
		c = failed("No active listener")
		c.Missing = missing
	}
	c.Protocols = protocols
	return c, nil
}

// units are those of certificate-expiration, in seconds, as RabbitMQ has them.
var units = map[string]float64{"days": 86400, "weeks": 7 * 86400, "months": 86400 * 365 / 12, "years": 365 * 86400}

func (a *API) checkCertificates(r *http.Request) (checkup, error) {
	n, err := strconv.ParseUint(r.PathValue("within"), 10, 31)
	if err != nil {
		return checkup{}, badRequest("Invalid expiration value.")
	}
	unit, ok := units[strings.ToLower(r.PathValue("unit"))]
	if !ok {
		return checkup{}, badRequest("Time unit not recognised. Supported units: days, weeks, months, years.")
	}
	within := time.Duration(min(float64(n)*unit*float64(time.Second), math.MaxInt64/2))
	c := failed("Certificates expiring")
	for _, l := range a.cfg.Health.Listening() {
		certificate, authorities := a.cfg.Health.CertificateExpiry(l.Protocol)
		soon := func(at time.Time) []string {
			if at.IsZero() || time.Until(at) >= within {
				return nil
			}
			return []string{at.UTC().Format(time.DateTime)}
		}
		if e := (expiring{l.Node, l.Protocol, l.Address, l.Port, soon(certificate), soon(authorities)}); e.ExpiresOn != nil || e.AuthoritiesExpireOn != nil {
			c.Expired = append(c.Expired, e)
		}
	}
	if c.Expired == nil {
		return healthy(), nil
	}
	slices.SortFunc(c.Expired, func(x, y expiring) int { return strings.Compare(x.Protocol, y.Protocol) })
	return c, nil
}
