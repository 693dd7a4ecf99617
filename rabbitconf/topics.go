package rabbitconf

import (
	"cmp"
	"fmt"
	"net"
	"strconv"
	"strings"
)

// listeners are the addresses: of AMQP, management and metrics.
func (t *translator) listeners() {
	t.listener("listeners.tcp", "amqp-addr")
	t.listener("listeners.ssl", "amqps-addr")
	t.address("http-addr", t.take("management.tcp.ip"), t.take("management.tcp.port"), 15672)
	t.address("https-addr", t.take("management.ssl.ip"), t.take("management.ssl.port"), 15671)
	t.address("metrics-addr", t.take("prometheus.tcp.ip"), t.take("prometheus.tcp.port"), 15692)
	old, name, port := t.take("management.listener.ssl"), "http-addr", 15672
	if is, ok := t.truth(old); is {
		name, port = "https-addr", 15671
		t.note(old, "management.listener is https-addr then")
	} else if ok {
		t.note(old, isDefault)
	}
	t.address(name, t.take("management.listener.ip"), t.take("management.listener.port"), port)
	t.flag("metrics-login", "prometheus.authentication.enabled")
	for _, e := range append(t.takeAll("prometheus.ssl.ip"), t.takeAll("prometheus.ssl.port")...) {
		t.todo(e, "metrics over TLS are at https-addr, under /metrics")
	}
	t.flag("proxy-protocol", "proxy_protocol")
}

// flag sets what is off by default.
func (t *translator) flag(name, key string) {
	e := t.take(key)
	if is, ok := t.truth(e); is {
		t.set(name, "on", e)
	} else if ok {
		t.note(e, isDefault)
	}
}

// listener reads the listeners of a kind, of which Warren has one.
func (t *translator) listener(prefix, name string) {
	switch e := t.take(prefix); {
	case e.Value != "none":
		t.todo(e, "it is none, or has a name behind it")
	case name == "amqp-addr":
		t.set(name, "127.0.0.1:5672", e)
		t.todo(e, "a Warren node always has a listener without TLS: this one is for its own machine only")
	default:
		t.note(e, isDefault)
	}
	for i, e := range t.takeAll(prefix + ".") {
		addr, ok := listenAddr(e.Value)
		switch {
		case !ok:
			t.todo(e, "it is neither a port nor an address with one")
		case i > 0:
			t.todo(e, "Warren has one such listener: "+name)
		default:
			t.set(name, addr, e)
		}
	}
}

// address sets an address of an IP and a port, either of which may be missing.
func (t *translator) address(name string, ip, port Entry, byDefault int) {
	if port.Key == "" {
		port.Value = strconv.Itoa(byDefault)
	}
	addr, ok := listenAddr(net.JoinHostPort(ip.Value, port.Value))
	if !ok {
		t.todo(ip, "the port is none")
		t.todo(port, "it is no port")
		return
	}
	t.set(name, addr, ip, port)
}

// listenAddr reads "5672", "127.0.0.1:5672" or "::1:5672".
func listenAddr(s string) (string, bool) {
	host, port := "", s
	if i := strings.LastIndexByte(s, ':'); i >= 0 {
		host, port = strings.Trim(s[:i], "[]"), s[i+1:]
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
		return "", false
	}
	if host == "0.0.0.0" || host == "::" {
		host = ""
	}
	return net.JoinHostPort(host, port), true
}

// tls is what clients' TLS needs.
func (t *translator) tls() {
	cert, key := t.take("ssl_options.certfile"), t.take("ssl_options.keyfile")
	t.set("tls-cert-file", cert.Value, cert)
	t.set("tls-key-file", key.Value, key)
	ca, verify, required := t.take("ssl_options.cacertfile"), t.take("ssl_options.verify"), t.take("ssl_options.fail_if_no_peer_cert")
	must, _ := t.truth(required)
	switch verify.Value {
	case "verify_peer":
		t.set("tls-ca-file", ca.Value, ca)
		t.set("tls-client-auth", map[bool]string{false: "verify", true: "require"}[must], verify, required)
	default:
		t.note(ca, "clients are not asked for certificates (ssl_options.verify), so that no authorities are needed; the server's chain belongs into tls-cert-file")
		t.note(verify, isDefault)
		t.note(required, "clients are not asked for certificates (ssl_options.verify)")
	}
	for _, prefix := range []string{"management.ssl.", "management.listener.ssl_opts.", "prometheus.ssl."} {
		for _, e := range []Entry{t.take(prefix + "certfile"), t.take(prefix + "keyfile")} {
			switch {
			case e.Key == "":
			case e.Value == cert.Value || e.Value == key.Value:
				t.note(e, "the certificate of tls-cert-file is for all client listeners")
			case cert.Key == "" && strings.HasSuffix(e.Key, "certfile"):
				t.set("tls-cert-file", e.Value, e)
			case key.Key == "" && strings.HasSuffix(e.Key, "keyfile"):
				t.set("tls-key-file", e.Value, e)
			default:
				t.todo(e, "Warren has one certificate for all client listeners: tls-cert-file")
			}
		}
	}
	for _, e := range t.takeAll("ssl_options.versions.") {
		t.note(e, "Warren speaks TLS 1.2 and 1.3")
	}
	if e := t.take("ssl_options.password"); e.Key != "" {
		t.todo(e, "keys are read without a password: keep the key in a file that only Warren can read")
	}
}

// logins is how clients log in.
func (t *translator) logins() {
	for _, e := range t.takeAll("auth_mechanisms.") {
		switch e.Value {
		case "PLAIN", "AMQPLAIN":
			t.note(e, "nothing to set: it is always there")
		case "EXTERNAL":
			t.note(e, "it is there when tls-client-auth is verify or require")
		default:
			t.todo(e, "Warren has PLAIN, AMQPLAIN and EXTERNAL")
		}
	}
	t.copied("tls-login-from", "ssl_cert_login_from")
	t.copied("tls-login-san-type", "ssl_cert_login_san_type")
	if e := t.take("ssl_cert_login_san_index"); e.Value == "0" {
		t.note(e, isDefault)
	} else {
		t.todo(e, "Warren takes the first name of its type")
	}
	if e := t.take("password_hashing_module"); e.Key != "" {
		if e.Value == "rabbit_password_hashing_sha256" {
			t.note(e, isDefault)
		} else {
			t.todo(e, "new passwords are hashed by SHA-256 or bcrypt (password-hashing); hashes that are imported are kept, whatever made them")
		}
	}
	if e := t.take("loopback_users"); e.Key != "" {
		if e.Value == "none" {
			t.set("loopback-users", "none", e)
		} else {
			t.todo(e, "it is none, or has a user behind it")
		}
	}
	for _, e := range t.takeAll("loopback_users.") {
		is, ok := t.truth(e)
		switch user := strings.TrimPrefix(e.Key, "loopback_users."); {
		case !ok:
		case user == "guest" && !is:
			t.set("loopback-users", "none", e)
		case user == "guest", !is:
			t.note(e, isDefault)
		default:
			t.todo(e, "only guest can be bound to the node's own machine")
		}
	}
	t.backends()
}

// tokens are OAuth 2's.
func (t *translator) tokens() {
	const p = "auth_oauth2."
	t.copied("token-audience", p+"resource_server_id")
	if e := t.take(p + "scope_prefix"); e.Key != "" {
		t.set("token-scope-prefix", cmp.Or(e.Value, "none"), e)
	}
	keys := t.first(p+"jwks_uri", p+"jwks_url")
	t.set("token-keys-url", keys.Value, keys)
	t.copied("token-keys-ca-file", p+"https.cacertfile")
	t.copied("token-issuer", p+"issuer")
	if claims := t.takeAll(p + "preferred_username_claims."); len(claims) > 0 {
		var names []string
		for _, e := range claims {
			names = append(names, e.Value)
		}
		t.set("token-user-claims", strings.Join(append(names, "sub", "client_id"), ","), claims...)
	}
	if e := t.take(p + "additional_scopes_key"); e.Key != "" {
		t.set("token-scope-claims", strings.Join(strings.Fields(e.Value), ","), e)
	}
	for _, e := range t.takeAll(p) {
		switch key := strings.TrimPrefix(e.Key, p); {
		case key == "verify_aud" && e.Value == "true":
			t.note(e, "nothing to set: the audience is always looked at")
		case strings.HasPrefix(key, "scope_aliases."):
			t.todo(e, "aliases are in a JSON file: token-scope-aliases-file")
		case strings.HasPrefix(key, "signing_keys.") || strings.HasPrefix(key, "default_key"):
			t.todo(e, "keys are in a JSON Web Key Set: token-keys-file")
		case strings.HasPrefix(key, "https."):
			t.note(e, "the provider's certificate is always verified")
		default:
			t.todo(e, "there is no counterpart: see docs/moving-from-rabbitmq.md on OAuth 2")
		}
	}
}

// passFile is the file that the password of default_user is to be written into: it is not for settings.
const passFile = "default-pass"

// users are those of the first start.
func (t *translator) users() {
	user, pass := t.take("default_user"), t.take("default_pass")
	t.set("default-user", user.Value, user)
	if pass.Key == "" && user.Value != "" && user.Value != "guest" {
		t.set("default-pass-file", passFile, user)
		t.todo(user, "write this user's password (guest in RabbitMQ, unless set) into a file that only Warren can read, and its path into default-pass-file")
	}
	if pass.Key != "" {
		t.set("default-pass-file", passFile, pass)
		t.todo(pass, "write the password into a file that only Warren can read, and its path into default-pass-file")
	}
	var tags []string
	from := t.takeAll("default_user_tags.")
	for _, e := range from {
		if is, _ := t.truth(e); is {
			tags = append(tags, strings.TrimPrefix(e.Key, "default_user_tags."))
		}
	}
	t.set("default-user-tags", strings.Join(tags, ","), from...)
	if e := t.take("default_vhost"); e.Key != "" {
		if e.Value == "/" {
			t.note(e, isDefault)
		} else {
			t.todo(e, fmt.Sprintf("the first virtual host is /: make this one with warren ctl add_vhost %s, or import definitions", e.Value))
		}
	}
	for _, e := range t.takeAll("default_permissions.") {
		if e.Value == ".*" {
			t.note(e, isDefault)
		} else {
			t.todo(e, "the first user may do everything in /: warren ctl set_permissions changes that")
		}
	}
	for _, e := range t.takeAll("default_users.") {
		t.todo(e, "make further users with warren ctl add_user and set_permissions, or import definitions")
	}
	for _, key := range []string{"anonymous_login_user", "anonymous_login_pass"} {
		t.todo(t.take(key), "there are no anonymous logins")
	}
}
