package rabbitconf

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/warrenmq/warren/config"
)

// translated is what a file becomes, and the settings of a node that is started with it.
func translated(t *testing.T, content string) (Translation, map[string]string) {
	t.Helper()
	entries, err := Read("rabbitmq.conf", []byte(content))
	if err != nil {
		t.Fatal(err)
	}
	tr := Translate(entries)
	missing(t, entries, tr)
	return tr, settings(t, tr)
}

// settings reads what is printed as YAML.
func settings(t *testing.T, tr Translation) map[string]string {
	t.Helper()
	var text strings.Builder
	if err := tr.Print(&text); err != nil {
		t.Fatal(err)
	}
	var got map[string]string
	if err := yaml.Unmarshal([]byte(text.String()), &got); err != nil {
		t.Fatalf("%v\n%s", err, text.String())
	}
	return got
}

// missing fails for entries of which nothing is said.
func missing(t *testing.T, entries []Entry, tr Translation) {
	t.Helper()
	last, said := map[string]Entry{}, map[string]bool{}
	for _, e := range entries {
		last[e.Key] = e
	}
	for _, s := range tr.Settings {
		for _, e := range s.From {
			said[e.Key] = true
		}
	}
	for _, r := range tr.Remarks {
		said[r.Key] = true
	}
	for key, e := range last {
		if !said[key] {
			t.Errorf("nothing is said of %s = %s", key, e.Value)
		}
	}
}

// TestNode: a file as many have one becomes settings that a node starts with.
func TestNode(t *testing.T) {
	dir := t.TempDir()
	_, got := translated(t, `
# A comment.
listeners.tcp.default = 5673
listeners.ssl.default = 10.0.0.1:5671
ssl_options.cacertfile = /etc/ca.pem
ssl_options.certfile = /etc/cert.pem
ssl_options.keyfile = '/etc/key.pem'   # quoted
ssl_options.verify = verify_peer
ssl_options.fail_if_no_peer_cert = true
management.tcp.port = 15672
management.tcp.ip = 127.0.0.1
prometheus.tcp.port = 15692
proxy_protocol = true
default_user = admin
default_pass = 'it is # secret'
default_user_tags.administrator = true
default_user_tags.monitoring = true
default_user_tags.policymaker = false
loopback_users.guest = false
vm_memory_high_watermark.relative = 0.4
disk_free_limit.absolute = 2GB
heartbeat = 30
channel_max = 0
connection_max = infinity
max_message_size = 134217728
consumer_timeout = 3600000
cluster_formation.peer_discovery_backend = rabbit_peer_discovery_classic_config
cluster_formation.classic_config.nodes.1 = rabbit@a.example
cluster_formation.classic_config.nodes.2 = rabbit@b.example
cluster_formation.classic_config.nodes.3 = rabbit@c.example
cluster_partition_handling = pause_minority
cluster_name = shop
log.console.level = warning
log.console.formatter = json
load_definitions = /etc/definitions.json
auth_backends.1 = rabbit_auth_backend_oauth2
auth_backends.2 = internal
auth_backends.3.authn = rabbit_auth_backend_cache
auth_backends.3.authz = internal
auth_cache.cached_backend = http
auth_cache.cache_ttl = 30000
auth_http.http_method = post
auth_http.user_path = https://logins.example/user
auth_http.request_timeout = 20000
auth_http.ssl_options.cacertfile = /etc/logins.pem
auth_http.ssl_options.verify = verify_peer
auth_oauth2.resource_server_id = rabbitmq
auth_oauth2.jwks_url = https://sso.example/keys
auth_oauth2.preferred_username_claims.1 = user_name
auth_oauth2.additional_scopes_key = roles realm_access.roles
product.name = RabbitMQ
product.version = 4.1.0
`)
	want := map[string]string{
		"amqp-addr": ":5673", "amqps-addr": "10.0.0.1:5671", "http-addr": "127.0.0.1:15672", "metrics-addr": ":15692", "proxy-protocol": "on",
		"tls-ca-file": "/etc/ca.pem", "tls-cert-file": "/etc/cert.pem", "tls-key-file": "/etc/key.pem", "tls-client-auth": "require",
		"default-user": "admin", "default-pass-file": "default-pass", "default-user-tags": "administrator,monitoring", "loopback-users": "none",
		"memory-high-watermark": "0.4", "disk-free-limit": "2000000000B", "heartbeat": "30s", "channel-max": "65535", "connection-max": "infinity", "max-message-size": "134217728",
		"consumer-timeout": "1h0m0s", "join": "a.example:5682,b.example:5682,c.example:5682", "bootstrap-expect": "3", "gossip-addr": "0.0.0.0:5682", "cluster-addr": "0.0.0.0:5681",
		"log-level": "warn", "log-format": "json", "load-definitions": "/etc/definitions.json", "token-scopes": "on", "token-audience": "rabbitmq", "token-keys-url": "https://sso.example/keys",
		"token-user-claims": "user_name,sub,client_id", "token-scope-claims": "roles,realm_access.roles", "amqp-product": "RabbitMQ/4.1.0",
		"auth-backends": "internal,http/internal", "auth-http-method": "post", "auth-http-user-url": "https://logins.example/user", "auth-http-ca-file": "/etc/logins.pem", "auth-http-timeout": "8s", "auth-http-ttl": "30s",
	}
	for name, value := range want {
		if got[name] != value {
			t.Errorf("%s is %q, want %q", name, got[name], value)
		}
	}
	if len(got) != len(want) {
		t.Errorf("%d settings, want %d: %v", len(got), len(want), got)
	}
	file := filepath.Join(dir, "warren.yaml")
	text, err := yaml.Marshal(got)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := config.Load(config.Sources{File: file}); err != nil {
		t.Errorf("a node does not start with it: %v", err)
	}
}

// TestEntries: what single entries become: a setting, or a remark (those that somebody has to look at begin with !).
func TestEntries(t *testing.T) {
	for _, c := range []struct{ in, want string }{
		{"listeners.tcp = none", "amqp-addr: 127.0.0.1:5672; !a Warren node always has"},
		{"listeners.ssl = none", "nothing to set"},
		{"listeners.tcp.a = ::1:5672", "amqp-addr: [::1]:5672"},
		{"listeners.tcp.a = 0.0.0.0:5672\nlisteners.tcp.b = 5674", "amqp-addr: :5672; !Warren has one such listener"},
		{"listeners.tcp.a = 70000", "!it is neither a port nor an address"},
		{"management.tcp.port = http", "!it is no port"},
		{"management.ssl.certfile = /a.pem", "tls-cert-file: /a.pem"},
		{"ssl_options.certfile = /a.pem\nmanagement.ssl.certfile = /b.pem", "tls-cert-file: /a.pem; !Warren has one certificate"},
		{"ssl_options.cacertfile = /a.pem", "clients are not asked"},
		{"auth_mechanisms.1 = ANONYMOUS", "!Warren has PLAIN, AMQPLAIN and EXTERNAL"},
		{"auth_backends.1 = ldap", "!Warren does not have it"},
		{"auth_backends.1 = internal\nauth_http.user_path = http://127.0.0.1/user", "nothing to set; no backend of auth_backends"},
		{"auth_backends.2 = internal\nauth_backends.1 = rabbit_auth_backend_http\nauth_http.vhost_path = http://127.0.0.1/v", "auth-backends: http,internal; auth-http-vhost-url: http://127.0.0.1/v"},
		{"auth_backends.10 = http\nauth_backends.9 = internal\nauth_cache.cache_refusals = true", "auth-backends: internal,http; auth-http-refusal-ttl says"},
		{"auth_backends.1 = http\nauth_cache.cache_refusals = true\nauth_cache.cache_ttl = 5000", "auth-backends: http; auth-http-ttl: 5s; auth-http-refusal-ttl: 5s"},
		{"auth_backends.1.authn = http\nauth_backends.1.authz = ldap", "auth-backends: http; !permissions are looked for"},
		{"auth_backends.1 = http\nauth_http.ssl_options.verify = verify_none", "auth-backends: http; !the server is always verified"},
		{"loopback_users = none", "loopback-users: none"},
		{"loopback_users.ann = true", "!only guest can be bound"},
		{"default_user = ann", "default-user: ann; default-pass-file: default-pass; !write this user's password"},
		{"default_pass = $(RABBIT_PASS)", "!it is an environment variable of RabbitMQ's"},
		{"default_pass = encrypted:abc", "!it is encrypted for RabbitMQ"},
		{"default_users.ann.password = secret", "!make further users"},
		{"max_message_size = 536870912", "max-message-size: 134217728; !Warren takes messages of up to 128 MiB"},
		{"consumer_timeout = infinity", "consumer-timeout: 0s"},
		{"consumer_timeout = 31622400001000", "consumer-timeout: 0s"},
		{"heartbeat = soon", "!it is no whole number"},
		{"max_channels_per_connection = 100\nchannel_max = 200", "channel-max: 100; max_channels_per_connection counts"},
		{"vm_memory_high_watermark.relative = 1.5", "!it is no part of the memory"},
		{"vm_memory_high_watermark.absolute = 1024MiB", "memory-high-watermark: 1073741824B"},
		{"vm_memory_high_watermark.absolute = 8g", "memory-high-watermark: 8589934592B"},
		{"vm_memory_high_watermark.absolute = much", "!it is no size"},
		{"disk_free_limit.relative = 1.0", "!it is a multiple of the machine's memory"},
		{"cluster_formation.dns.hostname = nodes.example", "join: nodes.example:5682; gossip-addr: 0.0.0.0:5682; cluster-addr: 0.0.0.0:5681; !set bootstrap-expect; !keep the ports"},
		{"cluster_formation.peer_discovery_backend = k8s", "!in Kubernetes use the chart"},
		{"cluster_formation.peer_discovery_backend = rabbitmq_peer_discovery_consul\ncluster_formation.target_cluster_size_hint = 5", "bootstrap-expect: 5; !nodes find each other"},
		{"log.file.level = none", "log-level: error"},
		{"load_definitions = /etc/definitions", "load-definitions: /etc/definitions; !Warren loads one file"},
		{"default_queue_type = quorum", "!set it for each virtual host"},
		{"mqtt.listeners.tcp.default = 1883", "!Warren speaks AMQP 0-9-1"},
		{"federation.x = 1", "!there is no federation"},
		{"tcp_listen_options.backlog = 128", "Warren has its own values for sockets"},
		{"heartbeats = 1", "!no such key"},
		{"heartbeat = 1\nheartbeat = 2", "heartbeat: 2s"},
	} {
		tr, _ := translated(t, c.in)
		var got []string
		for _, s := range tr.Settings {
			got = append(got, s.Name+": "+s.Value)
		}
		for _, r := range tr.Remarks {
			got = append(got, map[bool]string{true: "!"}[r.Todo]+r.Text)
		}
		for want := range strings.SplitSeq(c.want, "; ") {
			if len(got) == 0 || !strings.HasPrefix(got[0], want) {
				t.Errorf("%s: want %q at the beginning of %q", c.in, want, got)
				break
			}
			got = got[1:]
		}
		if len(got) > 0 {
			t.Errorf("%s: unexpected: %q", c.in, got)
		}
	}
}

// TestEveryKeyIsKnown: of all of RabbitMQ's keys something is said, and not that they are unknown; no password is printed.
func TestEveryKeyIsKnown(t *testing.T) {
	raw, err := os.ReadFile("testdata/keys.txt")
	if err != nil {
		t.Fatal(err)
	}
	for _, value := range []string{"true", "7", "secret"} {
		var content strings.Builder
		n := 0
		for line := range strings.Lines(string(raw)) {
			if line = strings.TrimSpace(line); line != "" && line[0] != '#' {
				fmt.Fprintf(&content, "%s = %s\n", strings.ReplaceAll(line, "$", ""), value)
				n++
			}
		}
		tr, _ := translated(t, content.String())
		for _, r := range tr.Remarks {
			if strings.HasPrefix(r.Text, "no such key") {
				t.Errorf("%s: %s", r.Key, r.Text)
			}
			if value == "secret" && r.Value == value && (strings.HasSuffix(r.Key, "pass") || strings.HasSuffix(r.Key, "password") || strings.Contains(r.Key, "secret")) {
				t.Errorf("%s is printed", r.Key)
			}
		}
		if n < 400 {
			t.Errorf("%d keys", n)
		}
	}
}

// TestRead: the format, as RabbitMQ's parser has it.
func TestRead(t *testing.T) {
	for _, c := range []struct{ in, want string }{
		{"", ""},
		{"a = b", "1 a=b"},
		{"  a.b-c_d\t=\tb c  # d\r\n\n#x\n\t\ne=f#g", "1 a.b-c_d=b c; 5 e=f"},
		{`a.b\.c = d`, `1 a.b\.c=d`},
		{"a = 'b # c'", "1 a=b # c"},
		{"a = 'b\nc'  # d\ne = f", "1 a=b\nc; 3 e=f"},
		{"a = ''", "1 a="},
		{"a = b=c", "1 a=b=c"},
		{"a", "!f:1: expected KEY = VALUE"},
		{"a =", "!f:1: a has no value"},
		{"a = # b", "!f:1: a has no value"},
		{"x = y\n= b", "!f:2: expected KEY"},
		{"a..b = c", "!f:1: expected KEY"},
		{"a b = c", "!f:1: expected KEY"},
		{"include conf.d/*.conf", "!f:1: include is not followed"},
		{"a = 'b", "!f:1: a: the quotation mark is not closed"},
		{"a = 'b' c", "!f:1: a: there is \"c\" behind the value"},
		{"a = \xff", "!f: is not UTF-8"},
		{strings.Repeat("#", FileBytesMax+1), "!f: larger than"},
	} {
		entries, err := Read("f", []byte(c.in))
		var got []string
		for _, e := range entries {
			got = append(got, fmt.Sprintf("%d %s=%s", e.Line, e.Key, e.Value))
		}
		text := strings.Join(got, "; ")
		if err != nil {
			text = "!" + err.Error()
		}
		if refused := strings.HasPrefix(c.want, "!") && strings.HasPrefix(text, c.want); !refused && text != c.want {
			t.Errorf("%.40q: got %q, want %q", c.in, text, c.want)
		}
	}
}

// FuzzTranslate: whatever a file has, something is said of each entry, and what is printed is YAML with settings that there are.
func FuzzTranslate(f *testing.F) {
	f.Add("listeners.tcp.default = 5672\nvm_memory_high_watermark.absolute = 1GB\n")
	f.Add("a = 'x\ny'\ncluster_formation.classic_config.nodes.1 = rabbit@a\nheartbeat=-1")
	f.Add("1=\u0093¨")
	f.Add("default_pass = \"\u2028\ncluster_name = \x7f")
	known := map[string]bool{}
	for _, o := range config.Options() {
		known[o.Name] = true
	}
	f.Fuzz(func(t *testing.T, content string) {
		entries, err := Read("f", []byte(content))
		if err != nil {
			return
		}
		tr := Translate(entries)
		missing(t, entries, tr)
		for name := range settings(t, tr) {
			if !known[name] {
				t.Errorf("%s is no setting", name)
			}
		}
	})
}
