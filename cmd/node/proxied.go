package main

import (
	"errors"
	"net"
	"net/netip"
	"slices"
	"time"

	proxyproto "github.com/pires/go-proxyproto"
)

// proxyHeaderWait is how long a proxy may take to say for whom it connects.
const proxyHeaderWait = 5 * time.Second

// Headers that are not taken, besides what the library refuses.
var (
	errProxyTransport = errors.New("the header of the PROXY protocol names no TCP client")
	errProxyLoopback  = errors.New("the header of the PROXY protocol names a client on this machine, and comes from another one")
)

// behindProxies returns ln for clients that may come through proxies: a connection from one of the networks begins with a header of the PROXY protocol, version 1 or 2,
// and is then one from the address that the header has. Other connections are what they are. Nothing is read before somebody asks for
// the address or for data.
func behindProxies(ln net.Listener, networks []netip.Prefix) net.Listener {
	if len(networks) == 0 {
		return ln
	}
	return &proxied{ln, networks}
}

type proxied struct {
	net.Listener
	networks []netip.Prefix
}

func (p *proxied) Accept() (net.Conn, error) {
	nc, err := p.Listener.Accept()
	if err != nil || !p.isProxy(nc.RemoteAddr()) {
		return nc, err
	}
	return proxyproto.NewConn(nc, proxyproto.WithPolicy(proxyproto.REQUIRE), proxyproto.SetReadHeaderTimeout(proxyHeaderWait),
		proxyproto.ValidateHeader(func(h *proxyproto.Header) error { return checkProxied(h, nc.RemoteAddr()) })), nil
}

func (p *proxied) isProxy(a net.Addr) bool {
	addr, ok := ipOf(a)
	return ok && slices.ContainsFunc(p.networks, func(n netip.Prefix) bool { return n.Contains(addr) })
}

// checkProxied refuses what would make a client more than it is: guest may log in from the node's own machine.
func checkProxied(h *proxyproto.Header, proxy net.Addr) error {
	if h.Command.IsLocal() {
		return nil // the proxy itself, which looks whether the node is there
	}
	source, ok := ipOf(h.SourceAddr)
	if !ok || !h.TransportProtocol.IsStream() {
		return errProxyTransport
	}
	if direct, ok := ipOf(proxy); source.IsLoopback() && (!ok || !direct.IsLoopback()) {
		return errProxyLoopback
	}
	return nil
}

func ipOf(a net.Addr) (netip.Addr, bool) {
	tcp, ok := a.(*net.TCPAddr)
	if !ok {
		return netip.Addr{}, false
	}
	addr, ok := netip.AddrFromSlice(tcp.IP)
	return addr.Unmap(), ok
}
