package config

import (
	"fmt"
	"net"
	"net/url"
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

// Whether the scopes of a token say what its login may do, as values of TokenScopes.
const (
	TokenScopesOff = "off"
	TokenScopesOn  = "on"
)

// TokenScopeModes are the values of token-scopes.
var TokenScopeModes = []string{TokenScopesOff, TokenScopesOn}

// TokenPrefixNone is the TokenScopePrefix of scopes that begin with what they permit.
const TokenPrefixNone = "none"

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
func (c Config) secureProblems(p *Problems) {
	for _, a := range []struct{ name, addr string }{{"amqps-addr", c.AMQPSAddr}, {"https-addr", c.HTTPSAddr}} {
		if a.addr == "" {
			continue
		}
		p.add(a.name, checkAddr(a.addr, true))
		if c.TLSCertFile == "" {
			p.add(a.name, "needs tls-cert-file and tls-key-file")
		}
	}
	if (c.TLSCertFile == "") != (c.TLSKeyFile == "") {
		p.add("tls-cert-file", "needs tls-key-file, and the other way round")
	}
	p.add("tls-client-auth", oneOf(c.TLSClientAuth, ClientAuths))
	if (c.TLSClientAuth == ClientAuthVerify || c.TLSClientAuth == ClientAuthRequire) && c.TLSCAFile == "" {
		p.add("tls-client-auth", fmt.Sprintf("%s needs tls-ca-file", c.TLSClientAuth))
	}
	if c.TLSCAFile != "" && c.TLSCertFile == "" {
		p.add("tls-ca-file", "needs tls-cert-file and tls-key-file")
	}
	p.add("tls-login-from", oneOf(c.TLSLoginFrom, LoginFroms))
	p.add("tls-login-san-type", oneOf(c.TLSLoginSANType, SANTypes))
	c.tokenProblems(p)
	c.backendProblems(p)
}

// tokenProblems are those of the settings of tokens.
func (c Config) tokenProblems(p *Problems) {
	p.add("token-scopes", oneOf(c.TokenScopes, TokenScopeModes))
	if c.TokenKeysURL != "" && c.TokenKeysFile != "" {
		p.add("token-keys-url", "is set beside token-keys-file: keys come from one of them")
	}
	if c.TokenKeysURL != "" {
		p.add("token-keys-url", checkKeysURL(c.TokenKeysURL))
	}
	if c.TokenKeysCAFile != "" && c.TokenKeysURL == "" {
		p.add("token-keys-ca-file", "needs token-keys-url")
	}
	if c.TokenKeysFile == "" && c.TokenKeysURL == "" {
		if c.TokenScopes == TokenScopesOn {
			p.add("token-scopes", "needs token-keys-file or token-keys-url")
		}
		return
	}
	if c.TokenAudience == "" {
		p.add("token-audience", "must not be empty: tokens for anybody else would count")
	}
	if len(c.TokenUserClaims) == 0 {
		p.add("token-user-claims", "must not be empty: tokens would name nobody")
	}
}

// checkKeysURL wants a URL for which nobody on the way can answer: who did could log in as anybody.
func checkKeysURL(text string) string {
	u, err := url.Parse(text)
	switch {
	case err != nil || u.Host == "" || u.Scheme != "https" && u.Scheme != "http":
		return "must be a URL of https"
	case u.User != nil:
		return "must have no user and no password in it: settings are shown"
	case u.Scheme == "http" && u.Hostname() != "localhost" && !net.ParseIP(u.Hostname()).IsLoopback():
		return "must be a URL of https: http is for a server on this machine only"
	}
	return ""
}

// nodeProblems are those of the settings of TLS between nodes.
func (c Config) nodeProblems(p *Problems) {
	p.add("gossip-encryption", oneOf(c.GossipEncryption, GossipModes))
	if (c.GossipEncryption == GossipAccept || c.GossipEncryption == GossipOn) && c.GossipKeyFile == "" {
		p.add("gossip-encryption", fmt.Sprintf("%s needs gossip-key-file", c.GossipEncryption))
	}
	p.add("cluster-tls", oneOf(c.ClusterTLS, ClusterTLSModes))
	if c.ClusterTLS != ClusterTLSAccept && c.ClusterTLS != ClusterTLSOn {
		return
	}
	if c.ClusterTLSCertFile == "" || c.ClusterTLSKeyFile == "" || c.ClusterTLSCAFile == "" {
		p.add("cluster-tls", fmt.Sprintf("%s needs cluster-tls-cert-file, cluster-tls-key-file and cluster-tls-ca-file", c.ClusterTLS))
	}
	if !dnsName.MatchString(c.ClusterTLSName) {
		p.add("cluster-tls-name", fmt.Sprintf("must be a DNS name, got %q", c.ClusterTLSName))
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
