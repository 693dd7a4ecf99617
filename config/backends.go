package config

import (
	"fmt"
	"net"
	"net/url"
	"slices"
	"time"
)

// Where logins are looked for, as values of AuthBackends.
const (
	AuthInternal     = "internal"      // the users of the cluster
	AuthHTTP         = "http"          // the server of AuthHTTPUserURL and its kind
	AuthHTTPInternal = "http/internal" // that server for passwords, the users of the cluster for what they may do
)

// The values of AuthHTTPMethod.
const (
	AuthHTTPGet  = "get"
	AuthHTTPPost = "post"
)

// AuthBackendNames and AuthHTTPMethods are the values of auth-backends and auth-http-method.
var (
	AuthBackendNames = []string{AuthInternal, AuthHTTP, AuthHTTPInternal}
	AuthHTTPMethods  = []string{AuthHTTPGet, AuthHTTPPost}
)

// The bounds of auth-http-timeout, and of auth-http-ttl and auth-http-refusal-ttl.
const (
	AuthHTTPTimeoutMin = 100 * time.Millisecond
	AuthHTTPTimeoutMax = 8 * time.Second
	AuthHTTPTTLMax     = time.Hour
)

// AsksHTTP tells whether a server is asked about logins.
func (c Config) AsksHTTP() bool {
	return slices.Contains(c.AuthBackends, AuthHTTP) || slices.Contains(c.AuthBackends, AuthHTTPInternal)
}

// AuthURL is a URL at which a server is asked about logins, with its setting.
type AuthURL struct{ Setting, URL string }

// AuthURLs are those that are set or not, by RabbitMQ's order: user, vhost, resource, topic.
func (c Config) AuthURLs() [4]AuthURL {
	return [4]AuthURL{
		{"auth-http-user-url", c.AuthHTTPUserURL},
		{"auth-http-vhost-url", c.AuthHTTPVhostURL},
		{"auth-http-resource-url", c.AuthHTTPResourceURL},
		{"auth-http-topic-url", c.AuthHTTPTopicURL},
	}
}

// backendProblems are those of where logins are looked for.
func (c Config) backendProblems(p *Problems) {
	if len(c.AuthBackends) == 0 {
		p.add("auth-backends", "must not be empty: nobody could log in")
	}
	for i, name := range c.AuthBackends {
		p.add("auth-backends", oneOf(name, AuthBackendNames))
		if slices.Contains(c.AuthBackends[:i], name) {
			p.add("auth-backends", fmt.Sprintf("has %q twice", name))
		}
	}
	for i, u := range c.AuthURLs() {
		switch {
		case u.URL != "":
			p.add(u.Setting, checkAuthURL(u.URL))
		case c.AsksHTTP() && (i == 0 || slices.Contains(c.AuthBackends, AuthHTTP)):
			p.add(u.Setting, "is needed for auth-backends")
		}
	}
	p.add("auth-http-method", oneOf(c.AuthHTTPMethod, AuthHTTPMethods))
	if (c.AuthHTTPCertFile == "") != (c.AuthHTTPKeyFile == "") {
		p.add("auth-http-cert-file", "needs auth-http-key-file, and the other way round")
	}
	if c.AuthHTTPTimeout < AuthHTTPTimeoutMin || c.AuthHTTPTimeout > AuthHTTPTimeoutMax {
		p.add("auth-http-timeout", fmt.Sprintf("must be from %v to %v, got %v", AuthHTTPTimeoutMin, AuthHTTPTimeoutMax, c.AuthHTTPTimeout))
	}
	for _, ttl := range []struct {
		setting string
		value   time.Duration
	}{{"auth-http-ttl", c.AuthHTTPTTL}, {"auth-http-refusal-ttl", c.AuthHTTPRefusalTTL}} {
		if ttl.value < 0 || ttl.value > AuthHTTPTTLMax {
			p.add(ttl.setting, fmt.Sprintf("must be from 0s to %v, got %v", AuthHTTPTTLMax, ttl.value))
		}
	}
}

// checkAuthURL wants a URL that parameters can be put behind.
func checkAuthURL(text string) string {
	u, err := url.Parse(text)
	switch {
	case err != nil || u.Host == "" || u.Scheme != "https" && u.Scheme != "http":
		return "must be a URL of https or http"
	case u.User != nil:
		return "must have no user and no password in it: settings are shown"
	case u.RawQuery != "" || u.ForceQuery || u.Fragment != "":
		return "must have no query and no fragment: the question is put there"
	}
	return ""
}

// ClearText tells whether what is sent to a URL can be read on the way to another machine.
func (u AuthURL) ClearText() bool {
	at, err := url.Parse(u.URL)
	return u.URL != "" && err == nil && at.Scheme == "http" && at.Hostname() != "localhost" && !net.ParseIP(at.Hostname()).IsLoopback()
}
