package config

import (
	"errors"
	"fmt"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestDefaultsAreValid(t *testing.T) {
	c := Default()
	if err := c.Validate(); err != nil {
		t.Fatalf("defaults: %v", err)
	}
	if c.NodeID == "" || c.NodeID != Default().NodeID {
		t.Errorf("node id %q is not stable", c.NodeID)
	}
}

func TestDefaultNodeID(t *testing.T) {
	for _, tc := range []struct {
		host string
		err  error
		want string
	}{
		{"worker-7.example", nil, "worker-7.example"},
		{"", nil, "warren"},
		{"bad name", nil, "warren"},
		{"host", errors.New("none"), "warren"},
		{strings.Repeat("a", 64), nil, "warren"},
	} {
		got := defaultNodeID(func() (string, error) { return tc.host, tc.err })
		if got != tc.want {
			t.Errorf("host %q, %v: got %q, want %q", tc.host, tc.err, got, tc.want)
		}
	}
}

func TestValidate(t *testing.T) {
	for _, tc := range []struct {
		name   string
		change func(*Config)
		want   []string // one problem each, in order
	}{
		{"defaults", func(*Config) {}, nil},
		{"empty node id", func(c *Config) { c.NodeID = "" }, []string{"node-id: must not be empty"}},
		{"long node id", func(c *Config) { c.NodeID = strings.Repeat("n", 64) }, []string{"node-id: at most 63 characters, got 64"}},
		{"node id with a slash", func(c *Config) { c.NodeID = "a/b" }, []string{"node-id: only letters, digits"}},
		{"node id with a line feed", func(c *Config) { c.NodeID = "a\n" }, []string{"node-id: only letters, digits"}},
		{"node id that begins with a dash", func(c *Config) { c.NodeID = "-a" }, []string{"node-id: only letters, digits"}},
		{"limits", func(c *Config) {
			c.ConnectionMax, c.ChannelMax, c.Heartbeat, c.MaxMessageSize, c.DiskFreeLimit = -1, 65536, 1500*time.Millisecond, 128<<20+1, Watermark{Fraction: 1}
		}, []string{
			"disk-free-limit: a disk is never free as a whole: must be below 1", "connection-max: must be infinity or between 0 and 10000000, got -1",
			"channel-max: must be between 1 and 65535, got 65536", "heartbeat: must be whole seconds, got 1.5s", "max-message-size: must be between 1B and 128MiB, got 134217729B",
		}},
		{"least limits", func(c *Config) {
			c.ConnectionMax, c.ChannelMax, c.Heartbeat, c.MaxMessageSize, c.DiskFreeLimit = 0, 1, 0, 1, Watermark{Bytes: 1}
		}, nil},
		{"no message, no end of heartbeats", func(c *Config) { c.MaxMessageSize, c.Heartbeat = 0, 65536*time.Second }, []string{
			"heartbeat: must be between 0 and 18h12m15s, got 18h12m16s", "max-message-size: must be between 1B and 128MiB, got 0",
		}},
		{"empty data dir", func(c *Config) { c.DataDir = "" }, []string{"data-dir: must not be empty"}},
		{"address without port", func(c *Config) { c.AMQPAddr = "localhost" }, []string{`amqp-addr: "localhost" is not of the form host:port`}},
		{"empty address", func(c *Config) { c.HTTPAddr = "" }, []string{`http-addr: "" is not of the form host:port`}},
		{"port too large", func(c *Config) { c.GRPCAddr = ":65536" }, []string{"grpc-addr: \":65536\" has no port number"}},
		{"port that is a word", func(c *Config) { c.AMQPAddr = ":amqp" }, []string{"amqp-addr: \":amqp\" has no port number"}},
		{"any port for clients", func(c *Config) { c.AMQPAddr, c.HTTPAddr, c.GRPCAddr = ":0", ":0", ":0" }, nil},
		{"any port for nodes", func(c *Config) { c.ClusterAddr = "127.0.0.1:0" }, []string{"cluster-addr: \"127.0.0.1:0\": other nodes must know the port"}},
		{"an address without a host for the others", func(c *Config) { c.ClusterAdvertiseAddr = ":5681" }, []string{"cluster-advertise-addr: \":5681\" has no host"}},
		{"a host for the others", func(c *Config) { c.AdvertiseHost = "2001:db8::1" }, nil},
		{"a host with a port", func(c *Config) { c.AdvertiseHost = "a.example:5672" }, []string{`advertise-host: must be an IP address or a host name, without a port, got "a.example:5672"`}},
		{"any host", func(c *Config) { c.AdvertiseHost = "::" }, []string{`advertise-host: "::" is no address that others can use`}},
		{"a cluster's name", func(c *Config) { c.ClusterName = "shop/warren" }, nil},
		{"a cluster's name with a blank", func(c *Config) { c.ClusterName = "a b" }, []string{`cluster-name: must have at most 255 bytes and no blanks, got "a b"`}},
		{"a zone", func(c *Config) { c.Zone = "us-east-1a" }, nil},
		{"a zone with a blank", func(c *Config) { c.Zone = "us east" }, []string{`zone: only letters, digits, dots, dashes and underscores, beginning with a letter or digit, got "us east"`}},
		{"any port for gossip", func(c *Config) { c.GossipAddr = "127.0.0.1:0" }, []string{"gossip-addr: \"127.0.0.1:0\": other nodes must know the port"}},
		{"TLS without a certificate", func(c *Config) { c.AMQPSAddr, c.HTTPSAddr = ":5671", ":15671" }, []string{"amqps-addr: needs tls-cert-file", "https-addr: needs tls-cert-file"}},
		{"a certificate without a key", func(c *Config) { c.TLSCertFile = "a" }, []string{"tls-cert-file: needs tls-key-file"}},
		{"TLS", func(c *Config) { c.AMQPSAddr, c.TLSCertFile, c.TLSKeyFile = ":0", "a", "b" }, nil},
		{"clients' certificates without authorities", func(c *Config) { c.TLSCertFile, c.TLSKeyFile, c.TLSClientAuth = "a", "b", "verify" }, []string{"tls-client-auth: verify needs tls-ca-file"}},
		{"words of TLS", func(c *Config) {
			c.TLSClientAuth, c.TLSLoginFrom, c.TLSLoginSANType, c.TLSCAFile = "yes", "cn", "ip", "c"
		}, []string{`tls-client-auth: must be none, verify or require, got "yes"`, "tls-ca-file: needs", `tls-login-from: must be common_name, `, `tls-login-san-type: must be dns, email or uri, got "ip"`}},
		{"AMQP with and without TLS at one address", func(c *Config) { c.AMQPSAddr, c.TLSCertFile, c.TLSKeyFile = ":5672", "a", "b" }, []string{"amqps-addr: :5672 is already the address of amqp-addr"}},
		{"TLS between nodes without files", func(c *Config) { c.ClusterTLS, c.ClusterTLSName = "accept", "-" }, []string{"cluster-tls: accept needs cluster-tls-cert-file", `cluster-tls-name: must be a DNS name, got "-"`}},
		{"TLS between nodes", func(c *Config) {
			c.ClusterTLS, c.ClusterTLSCertFile, c.ClusterTLSKeyFile, c.ClusterTLSCAFile = "on", "a", "b", "c"
		}, nil},
		{"gossip without keys", func(c *Config) { c.GossipEncryption = "on" }, []string{"gossip-encryption: on needs gossip-key-file"}},
		{"TLS between nodes, perhaps", func(c *Config) { c.ClusterTLS = "maybe" }, []string{`cluster-tls: must be off, accept or on, got "maybe"`}},
		{"one address twice", func(c *Config) { c.HTTPAddr = ":5672" }, []string{"http-addr: :5672 is already the address of amqp-addr"}},
		{"join without port", func(c *Config) { c.Join = []string{"a:1", "b"} }, []string{`join: "b" is not of the form host:port`}},
		{"join without host", func(c *Config) { c.Join = []string{":5682"} }, []string{`join: ":5682" has no host`}},
		{"join with an IPv6 address", func(c *Config) { c.Join = []string{"[::1]:5682"} }, nil},
		{"too many to join", func(c *Config) { c.Join = strings.Split(strings.Repeat("a:1,", 256)+"a:1", ",") }, []string{"join: at most 256 addresses, got 257"}},
		{"join only", func(c *Config) { c.BootstrapExpect = 0 }, nil},
		{"expect less than nobody", func(c *Config) { c.BootstrapExpect = -1 }, []string{"bootstrap-expect: must be between 0 and 99, got -1"}},
		{"no patience", func(c *Config) { c.ConsumerTimeout = -time.Second }, []string{"consumer-timeout: must be between 0 and 8760h0m0s, got -1s"}},
		{"patience for ever", func(c *Config) { c.ConsumerTimeout = 0 }, nil},
		{"expect a crowd", func(c *Config) { c.BootstrapExpect = 100 }, []string{"bootstrap-expect: must be between 0 and 99, got 100"}},
		{"a product without a version", func(c *Config) { c.AMQPProduct = "RabbitMQ" }, []string{`amqp-product: must be a name and a version such as RabbitMQ/4.1.0, got "RabbitMQ"`}},
		{"another product", func(c *Config) { c.AMQPProduct = "RabbitMQ/4.1.0" }, nil},
		{"another user on loopback only", func(c *Config) { c.LoopbackUsers = "admin" }, []string{"loopback-users: must be guest or none, got \"admin\""}},
		{"a hashing that is none", func(c *Config) { c.PasswordHashing = "bcrypt:15" }, []string{"password-hashing: must be sha256, bcrypt or bcrypt:COST with a cost from 4 to 14, got \"bcrypt:15\""}},
		{"tokens for anybody", func(c *Config) { c.TokenKeysFile, c.TokenAudience = "keys.json", "" }, []string{"token-audience: must not be empty: tokens for anybody else would count"}},
		{"keys of tokens from two places", func(c *Config) { c.TokenKeysFile, c.TokenKeysURL = "keys.json", "https://issuer.example/keys" }, []string{"token-keys-url: is set beside token-keys-file: keys come from one of them"}},
		{"keys of tokens that anybody on the way can change", func(c *Config) { c.TokenKeysURL = "http://issuer.example/keys" }, []string{"token-keys-url: must be a URL of https: http is for a server on this machine only"}},
		{"keys of tokens with a password", func(c *Config) { c.TokenKeysURL = "https://user:secret@issuer.example/keys" }, []string{"token-keys-url: must have no user and no password in it: settings are shown"}},
		{"keys of tokens from nowhere", func(c *Config) { c.TokenKeysURL = "issuer.example" }, []string{"token-keys-url: must be a URL of https"}},
		{"keys of tokens from this machine", func(c *Config) { c.TokenKeysURL = "http://127.0.0.1:8080/keys" }, nil},
		{"a CA for no URL", func(c *Config) { c.TokenKeysCAFile = "ca.pem" }, []string{"token-keys-ca-file: needs token-keys-url"}},
		{"no backend", func(c *Config) { c.AuthBackends = nil }, []string{"auth-backends: must not be empty: nobody could log in"}},
		{"strange backends", func(c *Config) { c.AuthBackends = []string{"ldap", "internal", "internal"} }, []string{`auth-backends: must be internal, http or http/internal, got "ldap"`, `auth-backends: has "internal" twice`}},
		{"http without URLs", func(c *Config) { c.AuthBackends = []string{"internal", "http"} }, []string{
			"auth-http-user-url: is needed for auth-backends", "auth-http-vhost-url: is needed for auth-backends", "auth-http-resource-url: is needed for auth-backends", "auth-http-topic-url: is needed for auth-backends",
		}},
		{"http for passwords without URLs", func(c *Config) { c.AuthBackends = []string{"http/internal"} }, []string{"auth-http-user-url: is needed for auth-backends"}},
		{"http for passwords", func(c *Config) {
			c.AuthBackends, c.AuthHTTPUserURL = []string{"http/internal"}, "https://logins.example/user"
		}, nil},
		{"bad URLs of logins", func(c *Config) {
			c.AuthHTTPUserURL, c.AuthHTTPVhostURL, c.AuthHTTPTopicURL = "http://a:b@c/user", "http://c/vhost?x=y", "ftp://c"
		}, []string{
			"auth-http-user-url: must have no user and no password in it: settings are shown", "auth-http-vhost-url: must have no query and no fragment: the question is put there", "auth-http-topic-url: must be a URL of https or http",
		}},
		{"how logins are asked about", func(c *Config) { c.AuthHTTPMethod, c.AuthHTTPCertFile = "put", "cert.pem" }, []string{`auth-http-method: must be get or post, got "put"`, "auth-http-cert-file: needs auth-http-key-file, and the other way round"}},
		{"times of logins", func(c *Config) {
			c.AuthHTTPTimeout, c.AuthHTTPTTL, c.AuthHTTPRefusalTTL = 9*time.Second, 2*time.Hour, -1
		}, []string{
			"auth-http-timeout: must be from 100ms to 8s, got 9s", "auth-http-ttl: must be from 0s to 1h0m0s, got 2h0m0s", "auth-http-refusal-ttl: must be from 0s to 1h0m0s, got -1ns",
		}},
		{"scopes without tokens", func(c *Config) { c.TokenScopes = "on" }, []string{"token-scopes: needs token-keys-file or token-keys-url"}},
		{"scopes, perhaps", func(c *Config) { c.TokenScopes = "maybe" }, []string{`token-scopes: must be off or on, got "maybe"`}},
		{"tokens of nobody", func(c *Config) { c.TokenKeysFile, c.TokenUserClaims = "keys.json", nil }, []string{"token-user-claims: must not be empty: tokens would name nobody"}},
		{"guesses without end", func(c *Config) { c.LoginFailures = -1 }, []string{"login-failures: must be between 0 and 1000, got -1"}},
		{"leaders that flee", func(c *Config) { c.LeaderMoves = -1 }, []string{"leader-moves: must be between 0 and 1000, got -1"}},
		{"leaders that stay away", func(c *Config) { c.LeaderMoves = 0 }, nil},
		{"health checks without a port", func(c *Config) { c.HealthAddr = "here" }, []string{`health-addr: "here" is not of the form host:port`}},
		{"health checks where clients are", func(c *Config) { c.HealthAddr = ":5672" }, []string{"health-addr: :5672 is already the address of amqp-addr"}},
		{"metrics without a port", func(c *Config) { c.MetricsAddr = "here" }, []string{`metrics-addr: "here" is not of the form host:port`}},
		{"metrics where clients are", func(c *Config) { c.MetricsAddr = ":5672" }, []string{"metrics-addr: :5672 is already the address of amqp-addr"}},
		{"metrics for some", func(c *Config) { c.MetricsLogin = "yes" }, []string{`metrics-login: must be off or on, got "yes"`}},
		{"a collector with a password", func(c *Config) { c.OTLPEndpoint = "https://user:secret@collector:4317" }, []string{"otlp-endpoint: must have no user and no password in it: OTEL_EXPORTER_OTLP_HEADERS takes an authorization"}},
		{"a collector without a scheme", func(c *Config) { c.OTLPEndpoint = "collector:4317" }, []string{`otlp-endpoint: must be a URL such as http://collector:4317 (https for TLS), got "collector:4317"`}},
		{"a collector", func(c *Config) { c.OTLPEndpoint = "https://collector.example:4317" }, nil},
		{"more than all traces", func(c *Config) { c.TraceRatio = 1.5 }, []string{"trace-ratio: must be between 0 and 1, got 1.5"}},
		{"no number of traces", func(c *Config) { c.TraceRatio = math.NaN() }, []string{"trace-ratio: must be between 0 and 1, got NaN"}},
		{"no traces", func(c *Config) { c.TraceRatio = 0 }, nil},
		{"profiles without a port", func(c *Config) { c.DebugAddr = "here" }, []string{`debug-addr: "here" is not of the form host:port`}},
		{"profiles where clients are", func(c *Config) { c.DebugAddr = ":15672" }, []string{"debug-addr: :15672 is already the address of http-addr"}},
		{"readiness before the beginning", func(c *Config) { c.ReadyCatchUpMax = -1 }, []string{"ready-catch-up-max: must be between 0 and 24h0m0s, got -1ns"}},
		{"no time to drain", func(c *Config) { c.DrainTimeout = 0 }, []string{"drain-timeout: must be between 1s and 24h0m0s, got 0s"}},
		{"no wait for a quorum", func(c *Config) { c.AwaitQuorum = 0 }, nil},
		{"a quorum before the beginning", func(c *Config) { c.AwaitQuorum = -1 }, []string{"await-quorum: must be between 0 and 24h0m0s, got -1ns"}},
		{"a duck that lives too long", func(c *Config) { c.LameDuck = 20 * time.Second }, []string{"lame-duck: must be between 0 and half of stop-timeout, got 20s"}},
		{"no time to stop", func(c *Config) { c.StopTimeout = 0 }, []string{"stop-timeout: must be between 1s and 1h0m0s, got 0s"}},
		{"repairs at once", func(c *Config) { c.RepairAfter = time.Millisecond }, []string{"repair-after: must be 0 or between 1s and 720h0m0s, got 1ms"}},
		{"sleeps at once", func(c *Config) { c.SleepAfter = time.Millisecond }, []string{"sleep-after: must be 0 or between 1s and 720h0m0s, got 1ms"}},
		{"never sleeps", func(c *Config) { c.SleepAfter = 0 }, nil},
		{"no repairs", func(c *Config) { c.RepairAfter = 0 }, nil},
		{"repairs of nothing", func(c *Config) { c.RepairGroups = 0 }, []string{"repair-groups: must be between 1 and 100, got 0"}},
		{"repairs that hang", func(c *Config) { c.RepairRate = 1000 }, []string{"repair-rate: must be 0 or between 1MiB and 1TiB, got 1000 bytes"}},
		{"a vote lost at once", func(c *Config) { c.VoterReplaceAfter = 0 }, []string{"voter-replace-after: must be between 1s and 720h0m0s, got 0s"}},
		{"an upgrade by hand", func(c *Config) { c.UpgradeSettle = UpgradeManually }, nil},
		{"an upgrade at once", func(c *Config) { c.UpgradeSettle = 0 }, nil},
		{"an upgrade next year", func(c *Config) { c.UpgradeSettle = 8760 * time.Hour }, []string{"upgrade-settle: must be manual or between 0 and 720h0m0s, got 8760h0m0s"}},
		{"a user without a password", func(c *Config) { c.DefaultUser = "admin" }, []string{`default-user: "admin" needs default-pass-file`}},
		{"a user with a password", func(c *Config) { c.DefaultUser, c.DefaultPassFile = "admin", "f" }, nil},
		{"guest with a password of its own and no tags", func(c *Config) { c.DefaultPassFile, c.DefaultUserTags = "f", nil }, nil},
		{"nobody", func(c *Config) { c.DefaultUser = "" }, []string{"default-user: must not be empty"}},
		{"a user of two lines", func(c *Config) { c.DefaultUser, c.DefaultPassFile = "a\nb", "f" }, []string{`default-user: must be one line, got "a\nb"`}},
		{"a long user", func(c *Config) { c.DefaultUser, c.DefaultPassFile = strings.Repeat("u", 256), "f" }, []string{"default-user: at most 255 bytes, got 256"}},
		{"too many tags", func(c *Config) { c.DefaultUserTags = strings.Split("t"+strings.Repeat(",t", 16), ",") }, []string{"default-user-tags: at most 16, got 17"}},
		{"a long tag", func(c *Config) { c.DefaultUserTags = []string{strings.Repeat("t", 65)} }, []string{"default-user-tags: at most 64 bytes each, got 65"}},
		{"log format", func(c *Config) { c.LogFormat = "xml" }, []string{`log-format: must be text or json, got "xml"`}},
		{
			"every problem at once",
			func(c *Config) { *c = Config{BootstrapExpect: -1} },
			[]string{"node-id", "data-dir", "bootstrap-expect", "voter-replace-after", "amqp-addr", "http-addr", "grpc-addr", "cluster-addr", "gossip-addr", "tls-client-auth", "tls-login-from", "tls-login-san-type", "token-scopes", "auth-backends", "auth-http-method", "auth-http-timeout", "gossip-encryption", "cluster-tls", "default-user", "loopback-users", "password-hashing", "amqp-product", "proxy-protocol", "channel-max", "max-message-size", "drain-timeout", "stop-timeout", "repair-groups", "metrics-login", "log-format"},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := Default()
			tc.change(&c)
			checkProblems(t, c.Validate(), tc.want)
		})
	}
}

func TestLoadOrder(t *testing.T) {
	file := write(t, "node-id: from-file\ndata-dir: from-file\namqp-addr: :1\njoin: [a:1, b:2]\n")
	env := map[string]string{"WARREN_NODE_ID": "from-env", "WARREN_DATA_DIR": "from-env", "WARREN_HTTP_ADDR": ""}
	c, err := Load(Sources{
		File:  file,
		Env:   lookup(env),
		Flags: map[string]string{"node-id": "from-flag", "log-level": "debug", "bootstrap-expect": "3"},
	})
	if err != nil {
		t.Fatal(err)
	}
	for name, pair := range map[string][2]string{
		"flag over environment":         {c.NodeID, "from-flag"},
		"environment over file":         {c.DataDir, "from-env"},
		"file over default":             {c.AMQPAddr, ":1"},
		"default, for an empty setting": {c.HTTPAddr, ":15672"},
		"list of the file":              {strings.Join(c.Join, " "), "a:1 b:2"},
	} {
		if pair[0] != pair[1] {
			t.Errorf("%s: got %q, want %q", name, pair[0], pair[1])
		}
	}
	if c.LogLevel != slog.LevelDebug || c.BootstrapExpect != 3 {
		t.Errorf("log level %v, bootstrap-expect %d", c.LogLevel, c.BootstrapExpect)
	}
}

func TestLoadFileFromEnvironment(t *testing.T) {
	file := write(t, "node-id: n7\n")
	c, err := Load(Sources{Env: lookup(map[string]string{"WARREN_CONFIG": file})})
	if err != nil || c.NodeID != "n7" {
		t.Fatalf("got %q, %v", c.NodeID, err)
	}
}

func TestLoadProblems(t *testing.T) {
	for _, tc := range []struct {
		name  string
		file  string
		env   map[string]string
		flags map[string]string
		want  []string
	}{
		{name: "unknown key", file: "node-id: a\nqueue-depth: 3\n", want: []string{`:2: unknown key "queue-depth"`}},
		{name: "key with underscores", file: "amqp_addr: :1\n", want: []string{`:1: unknown key "amqp_addr", did you mean "amqp-addr"?`}},
		{name: "nested key", file: "amqp:\n  addr: :1\n", want: []string{`:1: unknown key "amqp"`}},
		{name: "key twice", file: "node-id: a\nnode-id: b\n", want: []string{`:2: key "node-id" is given twice`}},
		{name: "no value", file: "node-id:\n", want: []string{":1: node-id has no value"}},
		{name: "map for a value", file: "node-id: {a: b}\n", want: []string{":1: node-id must be a plain value"}},
		{name: "list of maps", file: "join: [{a: b}]\n", want: []string{":1: join must be a list of plain values"}},
		{name: "not YAML", file: "node-id: [a\n", want: []string{"yaml: line"}},
		{name: "not a mapping", file: "just words\n", want: []string{"must be a list of key: value lines"}},
		{name: "two documents", file: "node-id: a\n---\nnode-id: b\n", want: []string{"holds more than one document"}},
		{name: "duration in file", file: "consumer-timeout: 30\n", want: []string{`consumer-timeout: must be a duration such as 90s or 30m, got "30"`}},
		{name: "settle in file", file: "upgrade-settle: -1ns\n", want: []string{`upgrade-settle: must be manual or a duration such as 90s or 30m, got "-1ns"`}},
		{name: "number in file", file: "bootstrap-expect: three\n", want: []string{`bootstrap-expect: must be a whole number, got "three"`}},
		{name: "too large", file: strings.Repeat("#", fileBytesMax+1), want: []string{"larger than 1048576 bytes"}},
		{name: "number in environment", env: map[string]string{"WARREN_BOOTSTRAP_EXPECT": "1.5"}, want: []string{`WARREN_BOOTSTRAP_EXPECT: must be a whole number, got "1.5"`}},
		{name: "level on the command line", flags: map[string]string{"log-level": "loud"}, want: []string{`--log-level: must be debug, info, warn or error, got "loud"`}},
		{name: "empty flag is a value", flags: map[string]string{"data-dir": ""}, want: []string{"data-dir: must not be empty"}},
		{
			name: "several sources", file: "colour: red\n",
			env:   map[string]string{"WARREN_LOG_LEVEL": "no"},
			flags: map[string]string{"amqp-addr": "nowhere"},
			want:  []string{"unknown key", "WARREN_LOG_LEVEL", "amqp-addr"},
		},
		{name: "empty file", file: ""},
		{name: "only comments", file: "# nothing yet\n"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, err := Load(Sources{File: write(t, tc.file), Env: lookup(tc.env), Flags: tc.flags})
			checkProblems(t, err, tc.want)
		})
	}
}

func TestLoadMissingFile(t *testing.T) {
	_, err := Load(Sources{File: filepath.Join(t.TempDir(), "none.yaml")})
	if !errors.Is(err, os.ErrNotExist) {
		t.Fatalf("got %v, want a missing file", err)
	}
	if strings.Contains(err.Error(), "\n") {
		t.Errorf("%q is not one line", err)
	}
}

func TestOptionsCoverConfig(t *testing.T) {
	want := Default()
	want.Join = []string{"a:1", "b:2"}
	var got Config
	seen := map[string]bool{}
	for _, o := range Options() {
		if seen[o.Name] || o.Usage == "" || o.Kind == "" {
			t.Errorf("option %q is repeated or not described", o.Name)
		}
		seen[o.Name] = true
		if err := o.set(&got, o.Value(want)); err != nil {
			t.Errorf("%s does not read its own value: %v", o.Name, err)
		}
	}
	for _, o := range Options() {
		if o.Value(got) != o.Value(want) {
			t.Errorf("%s: got %q, want %q", o.Name, o.Value(got), o.Value(want))
		}
	}
	if err := got.Validate(); err != nil {
		t.Errorf("settings that went through every option: %v", err)
	}
}

func FuzzParse(f *testing.F) {
	for _, seed := range []string{"", "node-id: a", "join: [a:1]", "a: &x [*x]", "---\n---", "? [a]\n: b", "\x00", "node-id: !!binary aGk="} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		_, err := parse("file", data, Options())
		if err == nil {
			return
		}
		var p Problems
		if !errors.As(err, &p) || len(p) == 0 {
			t.Fatalf("%v is not a problem of the file", err)
		}
		if strings.ContainsAny(err.Error(), "\n") {
			t.Fatalf("%q is not one line", err)
		}
	})
}

func checkProblems(t *testing.T, err error, want []string) {
	t.Helper()
	if len(want) == 0 {
		if err != nil {
			t.Fatalf("got %v, want no problem", err)
		}
		return
	}
	var p Problems
	if !errors.As(err, &p) {
		t.Fatalf("got %v, want problems %q", err, want)
	}
	if len(p) != len(want) {
		t.Fatalf("got %d problems %q, want %d %q", len(p), []string(p), len(want), want)
	}
	for i := range want {
		if !strings.Contains(p[i], want[i]) {
			t.Errorf("problem %d: got %q, want %q in it", i, p[i], want[i])
		}
	}
	if strings.Contains(err.Error(), "\n") {
		t.Errorf("%q is not one line", err)
	}
}

func write(t *testing.T, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "warren.yaml")
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func lookup(env map[string]string) func(string) (string, bool) {
	return func(name string) (string, bool) {
		v, ok := env[name]
		return v, ok
	}
}

func TestLimitsAsText(t *testing.T) {
	for text, want := range map[string]string{
		"connection-max 12": "12", "connection-max infinity": "infinity", "connection-max 0": "0",
		"connection-max many": `connection-max: must be a whole number or infinity, got "many"`, "connection-max 9223372036854775807": `connection-max: must be a whole number or infinity`,
		"disk-free-limit auto": "auto", "disk-free-limit 0": "auto", "disk-free-limit 0.25": "0.25", "disk-free-limit 2GB": "1953125KiB",
		"disk-free-limit half": "disk-free-limit: must be a fraction", "max-message-size 134217728": "128MiB", "max-message-size 0.5": "max-message-size: must be",
		"heartbeat 30": "heartbeat: must be a duration", "heartbeat 30s": "30s", "channel-max none": "channel-max: must be a whole number",
	} {
		name, value, _ := strings.Cut(text, " ")
		c, err := Load(Sources{Flags: map[string]string{name: value}})
		if err != nil {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %v, want %s", text, err, want)
			}
			continue
		}
		for _, o := range Options() {
			if o.Name == name && o.Value(c) != want {
				t.Errorf("%s: it is %s, want %s", text, o.Value(c), want)
			}
		}
	}
}

func TestProxies(t *testing.T) {
	for text, want := range map[string]string{
		"off": "[]", "on": "[0.0.0.0/0 ::/0]", "10.1.2.3": "[10.1.2.3/32]", "10.1.2.3/8, 2001:db8::1": "[10.0.0.0/8 2001:db8::1/128]",
		"": "got", "yes": "got", "10.0.0.0/33": "got", "fe80::1%eth0": "got", "::ffff:10.0.0.0/104": "got", "::ffff:10.0.0.1": "got", "10.0.0.1,": "got",
	} {
		c := Default()
		c.ProxyProtocol = text
		all, err := c.Proxies()
		if got := fmt.Sprint(all); err == nil && got != want || err != nil && want != "got" {
			t.Errorf("%q: %s, %v", text, got, err)
		}
		if (c.Validate() == nil) != (err == nil) {
			t.Errorf("%q: %v, and Validate says %v", text, err, c.Validate())
		}
	}
}
