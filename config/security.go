package config

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// What a client's certificate is for, as values of TLSClientAuth.
const (
	ClientAuthNone    = "none"    // not asked for
	ClientAuthVerify  = "verify"  // a client may have none, but not a wrong one
	ClientAuthRequire = "require" // no connection without one
)

// How nodes speak with each other, as values of ClusterTLS.
const (
	ClusterTLSOff    = "off"
	ClusterTLSAccept = "accept" // with and without TLS, for the time in which a cluster turns it on
	ClusterTLSOn     = "on"
)

// GossipModes are the values of gossip-encryption.
var GossipModes = []string{GossipOff, GossipAccept, GossipOn}

// What of gossip is sealed, as values of GossipEncryption.
const (
	GossipOff    = "off"
	GossipAccept = "accept" // takes both, for the time in which a cluster turns it on
	GossipOn     = "on"
)

// ClusterTLSModes are the values of cluster-tls.
var ClusterTLSModes = []string{ClusterTLSOff, ClusterTLSAccept, ClusterTLSOn}

// ClientAuths, LoginFroms and SANTypes are the values of tls-client-auth,
// tls-login-from and tls-login-san-type.
var (
	ClientAuths = []string{ClientAuthNone, ClientAuthVerify, ClientAuthRequire}
	LoginFroms  = []string{"common_name", "distinguished_name", "subject_alternative_name"}
	SANTypes    = []string{"dns", "email", "uri"}
)

// secureProblems are those of the settings of TLS.
func (c Config) secureProblems(add func(name, problem string)) {
	for _, a := range []struct{ name, addr string }{{"amqps-addr", c.AMQPSAddr}, {"https-addr", c.HTTPSAddr}} {
		if a.addr == "" {
			continue
		}
		add(a.name, checkAddr(a.addr, true))
		if c.TLSCertFile == "" {
			add(a.name, "needs tls-cert-file and tls-key-file")
		}
	}
	if (c.TLSCertFile == "") != (c.TLSKeyFile == "") {
		add("tls-cert-file", "needs tls-key-file, and the other way round")
	}
	add("tls-client-auth", oneOf(c.TLSClientAuth, ClientAuths))
	if (c.TLSClientAuth == ClientAuthVerify || c.TLSClientAuth == ClientAuthRequire) && c.TLSCAFile == "" {
		add("tls-client-auth", fmt.Sprintf("%s needs tls-ca-file", c.TLSClientAuth))
	}
	if c.TLSCAFile != "" && c.TLSCertFile == "" {
		add("tls-ca-file", "needs tls-cert-file and tls-key-file")
	}
	add("tls-login-from", oneOf(c.TLSLoginFrom, LoginFroms))
	add("tls-login-san-type", oneOf(c.TLSLoginSANType, SANTypes))
	if c.TokenKeysFile != "" && c.TokenAudience == "" {
		add("token-audience", "must not be empty: tokens for anybody else would count")
	}
}

// nodeProblems are those of the settings of TLS between nodes.
func (c Config) nodeProblems(add func(name, problem string)) {
	add("gossip-encryption", oneOf(c.GossipEncryption, GossipModes))
	if (c.GossipEncryption == GossipAccept || c.GossipEncryption == GossipOn) && c.GossipKeyFile == "" {
		add("gossip-encryption", fmt.Sprintf("%s needs gossip-key-file", c.GossipEncryption))
	}
	add("cluster-tls", oneOf(c.ClusterTLS, ClusterTLSModes))
	if c.ClusterTLS != ClusterTLSAccept && c.ClusterTLS != ClusterTLSOn {
		return
	}
	if c.ClusterTLSCertFile == "" || c.ClusterTLSKeyFile == "" || c.ClusterTLSCAFile == "" {
		add("cluster-tls", fmt.Sprintf("%s needs cluster-tls-cert-file, cluster-tls-key-file and cluster-tls-ca-file", c.ClusterTLS))
	}
	if !dnsName.MatchString(c.ClusterTLSName) {
		add("cluster-tls-name", fmt.Sprintf("must be a DNS name, got %q", c.ClusterTLSName))
	}
}

var dnsName = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9.-]{0,251}[A-Za-z0-9])?$`)

func oneOf(value string, values []string) string {
	if slices.Contains(values, value) {
		return ""
	}
	last := len(values) - 1
	return fmt.Sprintf("must be %s or %s, got %q", strings.Join(values[:last], ", "), values[last], value)
}
