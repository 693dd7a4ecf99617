package config

import (
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"time"
)

// EnvPrefix begins the name of every environment variable.
const EnvPrefix = "WARREN_"

// Option describes one setting to documents and to the command line.
type Option struct {
	Name  string // as a flag and as a key of the file
	Kind  string // what a value looks like
	Usage string

	set func(*Config, string) error
	get func(Config) string
}

// Env returns the name of the option's environment variable.
func (o Option) Env() string {
	return EnvPrefix + strings.ToUpper(strings.ReplaceAll(o.Name, "-", "_"))
}

// Value returns the option's value in c as a flag would give it.
func (o Option) Value(c Config) string { return o.get(c) }

// Options returns all settings in the order in which they are documented.
func Options() []Option {
	return []Option{
		text("node-id", "name", "unique name of this node; must never change", func(c *Config) *string { return &c.NodeID }),
		text("data-dir", "directory", "directory for everything the node stores", func(c *Config) *string { return &c.DataDir }),
		text("amqp-addr", "host:port", "listen here for AMQP 0-9-1 clients", func(c *Config) *string { return &c.AMQPAddr }),
		text("http-addr", "host:port", "listen here for health checks and management", func(c *Config) *string { return &c.HTTPAddr }),
		text("grpc-addr", "host:port", "listen here for gRPC clients", func(c *Config) *string { return &c.GRPCAddr }),
		text("amqps-addr", "host:port", "listen here for AMQP 0-9-1 over TLS", func(c *Config) *string { return &c.AMQPSAddr }),
		text("https-addr", "host:port", "listen here for management over TLS", func(c *Config) *string { return &c.HTTPSAddr }),
		text("proxy-protocol", "networks", "networks of the proxies whose AMQP connections begin with a header of the PROXY protocol (1 or 2); on: all do; off: none", func(c *Config) *string { return &c.ProxyProtocol }),
		text("tls-cert-file", "file", "server certificate for client connections, with its chain (PEM); reloaded when it changes", func(c *Config) *string { return &c.TLSCertFile }),
		text("tls-key-file", "file", "private key of that certificate (PEM)", func(c *Config) *string { return &c.TLSKeyFile }),
		text("tls-ca-file", "file", "CA certificates that client certificates are verified against (PEM)", func(c *Config) *string { return &c.TLSCAFile }),
		text("tls-client-auth", "how", "client certificates: none, verify (optional, verified if presented) or require", func(c *Config) *string { return &c.TLSClientAuth }),
		text("tls-login-from", "part", "which part of a client certificate is the user name: common_name, distinguished_name or subject_alternative_name", func(c *Config) *string { return &c.TLSLoginFrom }),
		text("tls-login-san-type", "kind", "type of subject alternative name to use: dns, email or uri", func(c *Config) *string { return &c.TLSLoginSANType }),
		text("token-keys-file", "file", "public keys (JWKS) of the issuer of the tokens that clients log in with; reloaded when it changes", func(c *Config) *string { return &c.TokenKeysFile }),
		text("token-keys-url", "URL", "fetch these keys from here instead (https), again and again", func(c *Config) *string { return &c.TokenKeysURL }),
		text("token-keys-ca-file", "file", "CA certificates that the server of token-keys-url is verified with (PEM); empty: those of the system", func(c *Config) *string { return &c.TokenKeysCAFile }),
		text("token-issuer", "URL", "required value of the tokens' iss claim; empty: any", func(c *Config) *string { return &c.TokenIssuer }),
		text("token-audience", "name", "value that the tokens' aud claim must contain", func(c *Config) *string { return &c.TokenAudience }),
		list("token-user-claims", "claim,...", "claims that the user's name is in; the first that a token has counts", func(c *Config) *[]string { return &c.TokenUserClaims }),
		text("token-scopes", "mode", "what a login by token may do: off: what the user of its name may; on: what the token's scopes say, as with RabbitMQ", func(c *Config) *string { return &c.TokenScopes }),
		text("token-scope-prefix", "prefix", "how scopes for this cluster begin; empty: with token-audience and a point; none: with what they permit", func(c *Config) *string { return &c.TokenScopePrefix }),
		list("token-scope-claims", "claim,...", "claims with scopes beside scope; points lead into objects", func(c *Config) *[]string { return &c.TokenScopeClaims }),
		text("token-scope-aliases-file", "file", "JSON object: names that the issuer uses as scopes, and the scopes that they stand for; read at the start", func(c *Config) *string { return &c.TokenScopeAliasesFile }),
		list("auth-backends", "backend,...", "where logins are looked for, in this order: internal, the users of the cluster; http, the server of auth-http-...; http/internal, that server for passwords and the users of the cluster for what they may do", func(c *Config) *[]string { return &c.AuthBackends }),
		text("auth-http-method", "method", "how the server is asked: get or post, which keeps passwords out of URLs", func(c *Config) *string { return &c.AuthHTTPMethod }),
		text("auth-http-user-url", "URL", "asked who may log in, with which tags", func(c *Config) *string { return &c.AuthHTTPUserURL }),
		text("auth-http-vhost-url", "URL", "asked who may open a virtual host", func(c *Config) *string { return &c.AuthHTTPVhostURL }),
		text("auth-http-resource-url", "URL", "asked who may do something with a queue or an exchange", func(c *Config) *string { return &c.AuthHTTPResourceURL }),
		text("auth-http-topic-url", "URL", "asked who may use a routing key with a topic exchange", func(c *Config) *string { return &c.AuthHTTPTopicURL }),
		text("auth-http-ca-file", "file", "CA certificates that the server is verified with (PEM); empty: those of the system", func(c *Config) *string { return &c.AuthHTTPCAFile }),
		text("auth-http-cert-file", "file", "certificate that is shown to the server, with its chain (PEM); empty: none", func(c *Config) *string { return &c.AuthHTTPCertFile }),
		text("auth-http-key-file", "file", "private key of that certificate (PEM)", func(c *Config) *string { return &c.AuthHTTPKeyFile }),
		{
			Name: "auth-http-timeout", Kind: "duration", Usage: "how long an answer of the server is waited for, up to 8s",
			set: setDuration(func(c *Config) *time.Duration { return &c.AuthHTTPTimeout }),
			get: func(c Config) string { return c.AuthHTTPTimeout.String() },
		},
		{
			Name: "auth-http-ttl", Kind: "duration", Usage: "how long what the server has allowed counts without asking again, up to 1h",
			set: setDuration(func(c *Config) *time.Duration { return &c.AuthHTTPTTL }),
			get: func(c Config) string { return c.AuthHTTPTTL.String() },
		},
		{
			Name: "auth-http-refusal-ttl", Kind: "duration", Usage: "the same for what it has denied",
			set: setDuration(func(c *Config) *time.Duration { return &c.AuthHTTPRefusalTTL }),
			get: func(c Config) string { return c.AuthHTTPRefusalTTL.String() },
		},
		text("cluster-addr", "host:port", "listen here for the other nodes", func(c *Config) *string { return &c.ClusterAddr }),
		text("cluster-advertise-addr", "host:port", "address to announce to the other nodes, if it differs from cluster-addr (NAT, proxy)", func(c *Config) *string { return &c.ClusterAdvertiseAddr }),
		text("cluster-tls", "mode", "TLS between nodes: off, accept (both with and without TLS) or on", func(c *Config) *string { return &c.ClusterTLS }),
		text("cluster-tls-cert-file", "file", "certificate for connections between nodes, with its chain (PEM); reloaded when it changes", func(c *Config) *string { return &c.ClusterTLSCertFile }),
		text("cluster-tls-key-file", "file", "private key of that certificate (PEM)", func(c *Config) *string { return &c.ClusterTLSKeyFile }),
		text("cluster-tls-ca-file", "file", "CA certificates that the nodes' certificates are verified against (PEM)", func(c *Config) *string { return &c.ClusterTLSCAFile }),
		text("cluster-tls-name", "name", "DNS name that every node's certificate must contain", func(c *Config) *string { return &c.ClusterTLSName }),
		text("gossip-addr", "host:port", "address for membership gossip (TCP and UDP)", func(c *Config) *string { return &c.GossipAddr }),
		text("advertise-host", "host", "host to announce to nodes and clients for listeners bound to all interfaces", func(c *Config) *string { return &c.AdvertiseHost }),
		text("zone", "name", "failure domain of this node; replicas of new queues are placed in different zones", func(c *Config) *string { return &c.Zone }),
		text("cluster-name", "name", "a node configured with another name is never joined", func(c *Config) *string { return &c.ClusterName }),
		text("gossip-encryption", "mode", "encryption of gossip: off, accept (encrypted or not) or on", func(c *Config) *string { return &c.GossipEncryption }),
		text("gossip-key-file", "file", "gossip keys in base64, one per line; the first encrypts, all can decrypt; reloaded when it changes", func(c *Config) *string { return &c.GossipKeyFile }),
		text("default-user", "name", "initial user of a new cluster", func(c *Config) *string { return &c.DefaultUser }),
		text("default-pass-file", "file", "file with that user's password on one line; read only when the cluster is first formed", func(c *Config) *string { return &c.DefaultPassFile }),
		{
			Name: "default-user-tags", Kind: "tag,...", Usage: "that user's tags",
			set: func(c *Config, s string) error { c.DefaultUserTags = splitList(s); return nil },
			get: func(c Config) string { return strings.Join(c.DefaultUserTags, ",") },
		},
		{
			Name: "login-failures", Kind: "count", Usage: "consecutive failed logins of a user from one address after which further attempts are delayed; 0: never",
			set: setInt(func(c *Config) *int { return &c.LoginFailures }),
			get: func(c Config) string { return strconv.Itoa(c.LoginFailures) },
		},
		text("loopback-users", "who", "who may log in from the node's own machine only: guest, or none if guest may log in from everywhere", func(c *Config) *string { return &c.LoopbackUsers }),
		text("password-hashing", "how", "how new passwords are hashed: sha256, as RabbitMQ does, bcrypt or bcrypt:COST", func(c *Config) *string { return &c.PasswordHashing }),
		text("load-definitions", "file", "definitions file (JSON) to import once the cluster is up, unless the same content was imported last", func(c *Config) *string { return &c.LoadDefinitions }),
		{
			Name: "join", Kind: "host:port,...", Usage: "gossip addresses of the nodes to join; the node's own may be among them",
			set: func(c *Config, s string) error { c.Join = splitList(s); return nil },
			get: func(c Config) string { return strings.Join(c.Join, ",") },
		},
		{
			Name: "bootstrap-expect", Kind: "count", Usage: "number of nodes that form the cluster together; 0: only join an existing one",
			set: setInt(func(c *Config) *int { return &c.BootstrapExpect }),
			get: func(c Config) string { return strconv.Itoa(c.BootstrapExpect) },
		},
		{
			Name: "memory-high-watermark", Kind: "part or size", Usage: "block publishers when the node uses more memory than this: a fraction such as 0.6, or a size such as 512MiB",
			set: func(c *Config, s string) (err error) { c.MemoryHighWatermark, err = ParseWatermark(s); return err },
			get: func(c Config) string { return c.MemoryHighWatermark.String() },
		},
		{
			Name: "unread-max", Kind: "part or size", Usage: "limit of deliveries sent to clients of this node and not yet read by them; above it, consumers are sent no more than they read",
			set: func(c *Config, s string) (err error) { c.UnreadMax, err = ParseWatermark(s); return err },
			get: func(c Config) string { return c.UnreadMax.String() },
		},
		{
			Name: "disk-free-limit", Kind: "part or size", Usage: "block publishers when less is free on the disk of data-dir: a fraction of it such as 0.1, or a size such as 2GiB; auto, the least there is: 128MiB, or a sixteenth of a small disk",
			set: setDiskFreeLimit, get: func(c Config) string { return diskFreeLimitText(c.DiskFreeLimit) },
		},
		{
			Name: "connection-max", Kind: "count", Usage: "how many AMQP connections may be open on this node; infinity: as many as open files and memory allow",
			set: setConnectionMax, get: func(c Config) string { return connectionMaxText(c.ConnectionMax) },
		},
		{
			Name: "channel-max", Kind: "count", Usage: "how many channels an AMQP connection may have",
			set: setInt(func(c *Config) *int { return &c.ChannelMax }),
			get: func(c Config) string { return strconv.Itoa(c.ChannelMax) },
		},
		{
			Name: "heartbeat", Kind: "duration", Usage: "heartbeat interval suggested to AMQP clients, in whole seconds; 0: none unless a client wants them",
			set: setDuration(func(c *Config) *time.Duration { return &c.Heartbeat }),
			get: func(c Config) string { return c.Heartbeat.String() },
		},
		{
			Name: "max-message-size", Kind: "size", Usage: "largest body of a message that clients may publish, up to 128MiB",
			set: func(c *Config, s string) (err error) { c.MaxMessageSize, err = parseSize(s); return err },
			get: func(c Config) string { return sizeOf(c.MaxMessageSize) },
		},
		text("amqp-product", "name/x.y.z", "product and version reported to AMQP clients", func(c *Config) *string { return &c.AMQPProduct }),
		{
			Name: "consumer-timeout", Kind: "duration", Usage: "how long a consumer may hold a message of a quorum queue unacknowledged; 0: forever",
			set: setDuration(func(c *Config) *time.Duration { return &c.ConsumerTimeout }),
			get: func(c Config) string { return c.ConsumerTimeout.String() },
		},
		{
			Name: "leader-moves", Kind: "count", Usage: "rate (queues per second) at which leaders are moved back to their preferred nodes; 0: never",
			set: setInt(func(c *Config) *int { return &c.LeaderMoves }),
			get: func(c Config) string { return strconv.Itoa(c.LeaderMoves) },
		},
		text("health-addr", "host:port", "additional address that serves only health checks and metrics", func(c *Config) *string { return &c.HealthAddr }),
		text("metrics-addr", "host:port", "additional address that serves only metrics", func(c *Config) *string { return &c.MetricsAddr }),
		text("metrics-login", "mode", "off, or on: metrics require a user with the tag monitoring", func(c *Config) *string { return &c.MetricsLogin }),
		text("otlp-endpoint", "URL", "export message traces to this collector (OTLP over gRPC)", func(c *Config) *string { return &c.OTLPEndpoint }),
		{
			Name: "trace-ratio", Kind: "part", Usage: "fraction of the traces sampled by clients that is recorded, from 0 to 1",
			set: func(c *Config, s string) (err error) {
				if c.TraceRatio, err = strconv.ParseFloat(s, 64); err != nil {
					return fmt.Errorf("must be a number from 0 to 1, got %q", s)
				}
				return nil
			},
			get: func(c Config) string { return strconv.FormatFloat(c.TraceRatio, 'g', -1, 64) },
		},
		text("debug-addr", "host:port", "address for profiles, which are then not on http-addr", func(c *Config) *string { return &c.DebugAddr }),
		{
			Name: "ready-catch-up-max", Kind: "duration", Usage: "after a start, how long the node may report not ready merely because its replicas lag behind",
			set: setDuration(func(c *Config) *time.Duration { return &c.ReadyCatchUpMax }),
			get: func(c Config) string { return c.ReadyCatchUpMax.String() },
		},
		{
			Name: "drain-timeout", Kind: "duration", Usage: "time limit of ctl drain if the command gives none",
			set: setDuration(func(c *Config) *time.Duration { return &c.DrainTimeout }),
			get: func(c Config) string { return c.DrainTimeout.String() },
		},
		{
			Name: "await-quorum", Kind: "duration", Usage: "how long a drain waits for queues that would lose their quorum without this node",
			set: setDuration(func(c *Config) *time.Duration { return &c.AwaitQuorum }),
			get: func(c Config) string { return c.AwaitQuorum.String() },
		},
		{
			Name: "lame-duck", Kind: "duration", Usage: "how long a node that drains or stops reports not ready before it closes its listeners",
			set: setDuration(func(c *Config) *time.Duration { return &c.LameDuck }),
			get: func(c Config) string { return c.LameDuck.String() },
		},
		{
			Name: "stop-timeout", Kind: "duration", Usage: "time limit for stopping: handing over leaders and clients, and closing",
			set: setDuration(func(c *Config) *time.Duration { return &c.StopTimeout }),
			get: func(c Config) string { return c.StopTimeout.String() },
		},
		{
			Name: "voter-replace-after", Kind: "duration", Usage: "how long a node may be down before another node takes over its vote in the catalog",
			set: setDuration(func(c *Config) *time.Duration { return &c.VoterReplaceAfter }),
			get: func(c Config) string { return c.VoterReplaceAfter.String() },
		},
		{
			Name: "sleep-after", Kind: "duration", Usage: "how long a queue without consumers must be idle before its replicas sleep; 0: never",
			set: setDuration(func(c *Config) *time.Duration { return &c.SleepAfter }),
			get: func(c Config) string { return c.SleepAfter.String() },
		},
		{
			Name: "repair-after", Kind: "duration", Usage: "how long a node may be down before its replicas are rebuilt on other nodes; 0: never",
			set: setDuration(func(c *Config) *time.Duration { return &c.RepairAfter }),
			get: func(c Config) string { return c.RepairAfter.String() },
		},
		{
			Name: "repair-groups", Kind: "count", Usage: "number of queues whose members are changed at the same time, in the whole cluster",
			set: setInt(func(c *Config) *int { return &c.RepairGroups }),
			get: func(c Config) string { return strconv.Itoa(c.RepairGroups) },
		},
		{
			Name: "repair-rate", Kind: "size", Usage: "bytes per second that this node sends to rebuild replicas elsewhere, such as 50MiB; 0: unlimited",
			set: func(c *Config, s string) (err error) { c.RepairRate, err = parseSize(s); return err },
			get: func(c Config) string { return sizeOf(c.RepairRate) },
		},
		{
			Name: "upgrade-settle", Kind: "duration", Usage: "how long all nodes must have run a newer version before the cluster enables its new features, or manual",
			set: setSettle,
			get: func(c Config) string {
				if c.UpgradeSettle == UpgradeManually {
					return manual
				}
				return c.UpgradeSettle.String()
			},
		},
		{
			Name: "log-level", Kind: "level", Usage: "debug, info, warn or error",
			set: setLogLevel,
			get: func(c Config) string { return strings.ToLower(c.LogLevel.String()) },
		},
		text("log-format", "format", "text or json", func(c *Config) *string { return &c.LogFormat }),
	}
}

func text(name, kind, usage string, field func(*Config) *string) Option {
	return Option{
		Name: name, Kind: kind, Usage: usage,
		set: func(c *Config, s string) error { *field(c) = s; return nil },
		get: func(c Config) string { return *field(&c) },
	}
}

// setInt reads a whole number.
func setInt(field func(*Config) *int) func(*Config, string) error {
	return func(c *Config, s string) error {
		n, err := strconv.Atoi(s)
		if err != nil {
			return fmt.Errorf("must be a whole number, got %q", s)
		}
		*field(c) = n
		return nil
	}
}

// setDuration reads a duration such as 90s, 30m or 2h.
func setDuration(field func(*Config) *time.Duration) func(*Config, string) error {
	return func(c *Config, s string) error {
		d, err := time.ParseDuration(s)
		if err != nil {
			return fmt.Errorf("must be a duration such as 90s or 30m, got %q", s)
		}
		*field(c) = d
		return nil
	}
}

// manual is the value of upgrade-settle that is no duration.
const manual = "manual"

func setSettle(c *Config, s string) error {
	if s == manual {
		c.UpgradeSettle = UpgradeManually
		return nil
	}
	d, err := time.ParseDuration(s)
	if err != nil || d < 0 {
		return fmt.Errorf("must be manual or a duration such as 90s or 30m, got %q", s)
	}
	c.UpgradeSettle = d
	return nil
}

func setLogLevel(c *Config, s string) (err error) {
	c.LogLevel, err = ParseLogLevel(s)
	return err
}

// ParseLogLevel reads the name of a level.
func ParseLogLevel(s string) (slog.Level, error) {
	levels := map[string]slog.Level{
		"debug": slog.LevelDebug, "info": slog.LevelInfo, "warn": slog.LevelWarn, "error": slog.LevelError,
	}
	level, ok := levels[strings.ToLower(s)]
	if !ok {
		return 0, fmt.Errorf("must be debug, info, warn or error, got %q", s)
	}
	return level, nil
}

// list is an option of several texts.
func list(name, kind, usage string, of func(*Config) *[]string) Option {
	return Option{
		Name: name, Kind: kind, Usage: usage,
		set: func(c *Config, s string) error { *of(c) = splitList(s); return nil },
		get: func(c Config) string { return strings.Join(*of(&c), ",") },
	}
}

// splitList splits at commas, trims blanks and leaves out empty items.
func splitList(s string) []string {
	var list []string
	for item := range strings.SplitSeq(s, ",") {
		if item = strings.TrimSpace(item); item != "" {
			list = append(list, item)
		}
	}
	return list
}
