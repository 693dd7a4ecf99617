package main

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/warrenmq/warren/auth"
	"github.com/warrenmq/warren/certs"
	"github.com/warrenmq/warren/cluster/member"
	"github.com/warrenmq/warren/config"
	"github.com/warrenmq/warren/management"
	"github.com/warrenmq/warren/metrics"
	"github.com/warrenmq/warren/transport"
)

// openCertificates reads the certificates and other keys that are set and looks at their files again from
// time to time and on SIGHUP.
func (n *running) openCertificates(context.Context) (err error) {
	if n.cfg.TLSCertFile != "" {
		n.clientTLS, err = certs.Open(
			certs.Files{Cert: n.cfg.TLSCertFile, Key: n.cfg.TLSKeyFile, CA: n.cfg.TLSCAFile},
			certs.Options{Use: "clients", Log: n.log})
		if err != nil {
			return fmt.Errorf("for clients: %w", err)
		}
		n.onClose("certificates for clients", n.clientTLS.Close)
	}
	if err := n.openTokens(); err != nil {
		return err
	}
	if err := n.openRemote(); err != nil {
		return err
	}
	if n.cfg.ClusterTLS != config.ClusterTLSOff {
		n.nodeTLS, err = certs.Open(
			certs.Files{Cert: n.cfg.ClusterTLSCertFile, Key: n.cfg.ClusterTLSKeyFile, CA: n.cfg.ClusterTLSCAFile},
			certs.Options{Use: "nodes", Name: n.cfg.ClusterTLSName, Log: n.log})
		if err != nil {
			return fmt.Errorf("for nodes: %w", err)
		}
		n.onClose("certificates for nodes", n.nodeTLS.Close)
	}
	if n.cfg.GossipEncryption != config.GossipOff {
		if n.gossipKeys, err = member.OpenKeyFile(n.cfg.GossipKeyFile, keyFileEvery, n.log); err != nil {
			return fmt.Errorf("gossip keys: %w", err)
		}
		n.onClose("gossip keys", n.gossipKeys.Close)
	}
	if n.cfg.ClusterTLS != config.ClusterTLSOn && (!localAddr(n.cfg.ClusterAddr) || !localAddr(n.cfg.ClusterAdvertiseAddr)) {
		n.log.Warn("the cluster address can be reached from other machines without TLS: whoever reaches it is trusted and can read everything",
			"cluster", n.cfg.ClusterAddr, "cluster-tls", n.cfg.ClusterTLS)
	}
	n.reloadOnHangup()
	return nil
}

// localAddr tells whether host:port is on this machine only; an address that is not set is.
func localAddr(addr string) bool {
	host, _, err := net.SplitHostPort(addr)
	return addr == "" || err == nil && (host == "localhost" || net.ParseIP(host).IsLoopback())
}

// secure is TLS between nodes, nil without.
func (n *running) secure() *transport.Secure {
	if n.nodeTLS == nil {
		return nil
	}
	return &transport.Secure{
		Server: n.nodeTLS.ServerConfig(tls.RequireAndVerifyClientCert, "h2"), Client: n.nodeTLS.ClientConfig("h2"),
		Plain: n.cfg.ClusterTLS == config.ClusterTLSAccept,
	}
}

// renewLinks makes links anew when certificates were replaced.
func (n *running) renewLinks() {
	if n.nodeTLS != nil {
		n.nodeTLS.OnChange(func(c certs.Change) { n.mesh.RenewLinks(c.Authorities) })
	}
}

// reloadOnHangup looks at watched files on SIGHUP, which else would end the process.
func (n *running) reloadOnHangup() {
	hangup := make(chan os.Signal, 1)
	signal.Notify(hangup, syscall.SIGHUP)
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for {
			select {
			case <-hangup:
				n.log.Info("looking at watched files")
				n.reload()
			case <-stop:
				return
			}
		}
	}()
	n.onClose("hangup signal", func() error {
		signal.Stop(hangup)
		close(stop)
		<-stopped
		return nil
	})
}

// reload looks at all watched files now.
func (n *running) reload() {
	for _, s := range []*certs.Source{n.clientTLS, n.nodeTLS} {
		if s != nil {
			s.Reload()
		}
	}
	if n.gossipKeys != nil {
		n.gossipKeys.Reload()
	}
}

// keyFileEvery is the time between two looks at the file of gossip keys.
const keyFileEvery = 10 * time.Second

// gossipKeyStats are this node's keys, for the management API.
func (n *running) gossipKeyStats() management.GossipKeys {
	s := n.gossip.KeyStats()
	return management.GossipKeys{Node: n.cfg.NodeID, Encryption: string(s.Mode), Keys: append([]string{}, s.Fingerprints...)}
}

// gossipFigures are those for metrics.
func (n *running) gossipFigures() metrics.Gossip {
	s := n.gossip.KeyStats()
	f := metrics.Gossip{Keys: len(s.Fingerprints), Unopened: s.Unopened}
	if n.gossipKeys != nil {
		f.Failures = n.gossipKeys.Failures()
	}
	return f
}

// clientAuth is what clients' certificates are for.
func (n *running) clientAuth() tls.ClientAuthType {
	switch n.cfg.TLSClientAuth {
	case config.ClientAuthVerify:
		return tls.VerifyClientCertIfGiven
	case config.ClientAuthRequire:
		return tls.RequireAndVerifyClientCert
	}
	return tls.NoClientCert
}

// peerName is the part of clients' certificates that names users.
func (n *running) peerName() auth.PeerName {
	return auth.PeerName{From: n.cfg.TLSLoginFrom, SAN: n.cfg.TLSLoginSANType}
}

// certificates are those in use, for metrics.
func (n *running) certificates() (list []metrics.Certificate) {
	for _, c := range []struct {
		use    string
		source *certs.Source
	}{{"clients", n.clientTLS}, {"nodes", n.nodeTLS}} {
		if c.source != nil {
			s := c.source.Stats()
			list = append(list, metrics.Certificate{
				Use: c.use, NotAfter: s.NotAfter, Authorities: n.authoritiesEnd(c.source), Reloads: s.Reloads, Failures: s.Failures,
			})
		}
	}
	return list
}

// authoritiesEnd is when the next of the authorities of a source expires, zero if nobody is checked by them.
func (n *running) authoritiesEnd(source *certs.Source) time.Time {
	if source == n.clientTLS && n.clientAuth() == tls.NoClientCert {
		return time.Time{}
	}
	return source.Stats().Authorities
}
