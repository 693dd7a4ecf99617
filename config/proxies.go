package config

import (
	"fmt"
	"net/netip"
	"strings"
)

// Values of ProxyProtocol that are no networks.
const (
	ProxyProtocolOff = "off"
	ProxyProtocolOn  = "on"
)

// Proxies returns the networks from which AMQP connections begin with a header of the PROXY protocol: none if ProxyProtocol is off, all
// if it is on. The error says what is wrong with it.
func (c Config) Proxies() ([]netip.Prefix, error) {
	switch c.ProxyProtocol {
	case ProxyProtocolOff:
		return nil, nil
	case ProxyProtocolOn:
		return []netip.Prefix{netip.PrefixFrom(netip.IPv4Unspecified(), 0), netip.PrefixFrom(netip.IPv6Unspecified(), 0)}, nil
	}
	var all []netip.Prefix
	for s := range strings.SplitSeq(c.ProxyProtocol, ",") {
		s = strings.TrimSpace(s)
		if addr, err := netip.ParseAddr(s); err == nil && addr.Zone() == "" && !addr.Is4In6() {
			all = append(all, netip.PrefixFrom(addr, addr.BitLen()))
			continue
		}
		p, err := netip.ParsePrefix(s)
		if err != nil || p.Addr().Is4In6() {
			return nil, fmt.Errorf("must be off, on, or networks such as 10.0.0.0/8,192.168.1.4, got %q", s)
		}
		all = append(all, p.Masked())
	}
	return all, nil
}
