package config

import (
	"cmp"
	"fmt"
	"net"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Problems is the error of settings that can not be used. It holds one
// sentence for each problem and prints them in one line.
type Problems []string

func (p Problems) Error() string { return strings.Join(p, "; ") }

// add notes what is wrong with a setting, unless problem is "".
func (p *Problems) add(name, problem string) {
	if problem != "" {
		*p = append(*p, name+": "+problem)
	}
}

// Validate reports every problem of the settings at once, as Problems, or nil.
func (c Config) Validate() error {
	var p Problems
	c.clusterProblems(&p)
	c.addressProblems(&p)
	c.secureProblems(&p)
	c.nodeProblems(&p)
	c.userProblems(&p)
	c.clientProblems(&p)
	c.limitProblems(&p)
	c.timeProblems(&p)
	c.repairProblems(&p)
	c.watchProblems(&p)
	if len(p) == 0 {
		return nil
	}
	return p
}

// addressProblems are those of where the node listens, and of what others are told of that.
func (c Config) addressProblems(p *Problems) {
	p.add("amqp-addr", checkAddr(c.AMQPAddr, true))
	p.add("http-addr", checkAddr(c.HTTPAddr, true))
	p.add("grpc-addr", checkAddr(c.GRPCAddr, true))
	p.add("cluster-addr", checkAddr(c.ClusterAddr, false))
	if c.ClusterAdvertiseAddr != "" {
		p.add("cluster-advertise-addr", checkPeerAddr(c.ClusterAdvertiseAddr))
	}
	p.add("gossip-addr", checkAddr(c.GossipAddr, false))
	if c.AdvertiseHost != "" {
		p.add("advertise-host", checkHost(c.AdvertiseHost))
	}
	for _, l := range []struct{ name, addr string }{
		{"health-addr", c.HealthAddr},
		{"metrics-addr", c.MetricsAddr},
		{"debug-addr", c.DebugAddr},
	} {
		if l.addr != "" {
			p.add(l.name, checkAddr(l.addr, true))
		}
	}
	c.sharedAddrs(p)
}

// clusterProblems are those of who the node is, and of how it finds the others.
func (c Config) clusterProblems(p *Problems) {
	p.add("node-id", checkNodeID(c.NodeID))
	if c.DataDir == "" {
		p.add("data-dir", "must not be empty")
	}
	if c.Zone != "" {
		p.add("zone", checkNodeID(c.Zone))
	}
	if len(c.ClusterName) > clusterNameMax || strings.ContainsFunc(c.ClusterName, func(r rune) bool { return r <= ' ' || r == utf8.RuneError }) {
		p.add("cluster-name", fmt.Sprintf("must have at most %d bytes and no blanks, got %q", clusterNameMax, c.ClusterName))
	}
	if len(c.Join) > joinMax {
		p.add("join", fmt.Sprintf("at most %d addresses, got %d", joinMax, len(c.Join)))
	}
	for _, addr := range c.Join {
		p.add("join", checkPeerAddr(addr))
	}
	p.add("bootstrap-expect", between(c.BootstrapExpect, 0, bootstrapExpectMax))
	p.add("leader-moves", between(c.LeaderMoves, 0, leaderMovesMax))
	p.add("voter-replace-after", between(c.VoterReplaceAfter, voterReplaceMin, upgradeSettleMax))
	if c.SleepAfter != 0 {
		p.add("sleep-after", orElse("0", between(c.SleepAfter, sleepAfterMin, sleepAfterMax)))
	}
	if c.UpgradeSettle != UpgradeManually {
		p.add("upgrade-settle", orElse("manual", between(c.UpgradeSettle, 0, upgradeSettleMax)))
	}
}

// clientProblems are those of what clients are told and granted.
func (c Config) clientProblems(p *Problems) {
	if name, version := c.Product(); name == "" || !productVersion.MatchString(version) {
		p.add("amqp-product", fmt.Sprintf("must be a name and a version such as RabbitMQ/4.1.0, got %q", c.AMQPProduct))
	}
	p.add("consumer-timeout", between(c.ConsumerTimeout, 0, consumerTimeoutMax))
	p.add("login-failures", between(c.LoginFailures, 0, loginFailuresMax))
}

// timeProblems are those of a start and a stop.
func (c Config) timeProblems(p *Problems) {
	p.add("ready-catch-up-max", between(c.ReadyCatchUpMax, 0, readyCatchUpMax))
	p.add("drain-timeout", between(c.DrainTimeout, stopTimeoutMin, drainTimeoutMax))
	p.add("await-quorum", between(c.AwaitQuorum, 0, drainTimeoutMax))
	if c.LameDuck < 0 || c.LameDuck > max(stopTimeoutMin, c.StopTimeout)/2 {
		p.add("lame-duck", fmt.Sprintf("must be between 0 and half of stop-timeout, got %s", c.LameDuck))
	}
	p.add("stop-timeout", between(c.StopTimeout, stopTimeoutMin, stopTimeoutMax))
}

// repairProblems are those of repairs.
func (c Config) repairProblems(p *Problems) {
	if c.RepairAfter != 0 {
		p.add("repair-after", orElse("0", between(c.RepairAfter, repairAfterMin, repairAfterMax)))
	}
	p.add("repair-groups", between(c.RepairGroups, 1, repairGroupsMax))
	if c.RepairRate != 0 && (c.RepairRate < repairRateMin || c.RepairRate > repairRateMax) {
		p.add("repair-rate", fmt.Sprintf("must be 0 or between 1MiB and 1TiB, got %d bytes", c.RepairRate))
	}
}

// watchProblems are those of metrics, traces and the log.
func (c Config) watchProblems(p *Problems) {
	if c.MetricsLogin != MetricsLoginOff && c.MetricsLogin != MetricsLoginOn {
		p.add("metrics-login", fmt.Sprintf("must be off or on, got %q", c.MetricsLogin))
	}
	if c.OTLPEndpoint != "" {
		p.add("otlp-endpoint", checkURL(c.OTLPEndpoint))
	}
	p.add("trace-ratio", between(c.TraceRatio, 0, 1))
	if c.LogFormat != "text" && c.LogFormat != "json" {
		p.add("log-format", fmt.Sprintf("must be text or json, got %q", c.LogFormat))
	}
}

// sharedAddrs names the listeners that were given the same address.
func (c Config) sharedAddrs(p *Problems) {
	taken := map[string]string{}
	for _, l := range []struct{ name, addr string }{
		{"amqp-addr", c.AMQPAddr},
		{"http-addr", c.HTTPAddr},
		{"grpc-addr", c.GRPCAddr},
		{"amqps-addr", c.AMQPSAddr},
		{"https-addr", c.HTTPSAddr},
		{"cluster-addr", c.ClusterAddr},
		{"gossip-addr", c.GossipAddr},
		{"health-addr", c.HealthAddr},
		{"metrics-addr", c.MetricsAddr},
		{"debug-addr", c.DebugAddr},
	} {
		_, port, err := net.SplitHostPort(l.addr)
		if err != nil || port == "0" {
			continue
		}
		if other, ok := taken[l.addr]; ok {
			p.add(l.name, fmt.Sprintf("%s is already the address of %s", l.addr, other))
			continue
		}
		taken[l.addr] = l.name
	}
}

// between returns what is wrong with a value that has to be from lo to hi, or "".
func between[T cmp.Ordered](value, lo, hi T) string {
	if value >= lo && value <= hi {
		return ""
	}
	var from any = lo
	if zero := *new(T); lo == zero {
		from = 0 // of a duration, too
	}
	return fmt.Sprintf("must be between %v and %v, got %v", from, hi, value)
}

// orElse adds another value that is possible to what between returned.
func orElse(other, problem string) string {
	return strings.Replace(problem, "must be ", "must be "+other+" or ", 1)
}

// checkPeerAddr returns what is wrong with addr as the address of a node for others, or "".
func checkPeerAddr(addr string) string {
	if problem := checkAddr(addr, false); problem != "" {
		return problem
	}
	if strings.HasPrefix(addr, ":") {
		return fmt.Sprintf("%q has no host", addr)
	}
	return ""
}

func checkNodeID(id string) string {
	switch {
	case id == "":
		return "must not be empty"
	case len(id) > nodeIDBytesMax:
		return fmt.Sprintf("at most %d characters, got %d", nodeIDBytesMax, len(id))
	case !nodeIDPattern.MatchString(id):
		return fmt.Sprintf("only letters, digits, dots, dashes and underscores, beginning with a letter or digit, got %q", id)
	}
	return ""
}

// checkHost returns what is wrong with a host that others are told, or "".
func checkHost(host string) string {
	ip := net.ParseIP(host)
	switch {
	case ip != nil && ip.IsUnspecified():
		return fmt.Sprintf("%q is no address that others can use", host)
	case ip == nil && (len(host) > hostBytesMax || !nodeIDPattern.MatchString(host)):
		return fmt.Sprintf("must be an IP address or a host name, without a port, got %q", host)
	}
	return ""
}

// checkAddr returns what is wrong with addr as host:port, or "".
func checkAddr(addr string, anyPort bool) string {
	_, port, err := net.SplitHostPort(addr)
	if err != nil {
		return fmt.Sprintf("%q is not of the form host:port", addr)
	}
	n, err := strconv.ParseUint(port, 10, 16)
	switch {
	case err != nil:
		return fmt.Sprintf("%q has no port number between 0 and 65535", addr)
	case n == 0 && !anyPort:
		return fmt.Sprintf("%q: other nodes must know the port, 0 is not possible here", addr)
	}
	return ""
}
