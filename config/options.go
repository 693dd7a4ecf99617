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
		text("node-id", "name", "unique name of this node, never to change", func(c *Config) *string { return &c.NodeID }),
		text("data-dir", "folder", "folder of everything the node keeps", func(c *Config) *string { return &c.DataDir }),
		text("amqp-addr", "host:port", "listen here for AMQP 0-9-1 clients", func(c *Config) *string { return &c.AMQPAddr }),
		text("http-addr", "host:port", "listen here for health checks and management", func(c *Config) *string { return &c.HTTPAddr }),
		text("grpc-addr", "host:port", "listen here for gRPC clients", func(c *Config) *string { return &c.GRPCAddr }),
		text("amqps-addr", "host:port", "listen here for AMQP 0-9-1 over TLS", func(c *Config) *string { return &c.AMQPSAddr }),
		text("https-addr", "host:port", "listen here for management over TLS", func(c *Config) *string { return &c.HTTPSAddr }),
		text("tls-cert-file", "file", "certificate for clients and its chain (PEM), read again when it changes", func(c *Config) *string { return &c.TLSCertFile }),
		text("tls-key-file", "file", "key of the certificate for clients (PEM)", func(c *Config) *string { return &c.TLSKeyFile }),
		text("tls-ca-file", "file", "authorities of clients' certificates (PEM)", func(c *Config) *string { return &c.TLSCAFile }),
		text("tls-client-auth", "how", "certificates of clients: none, verify or require", func(c *Config) *string { return &c.TLSClientAuth }),
		text("tls-login-from", "part", "what of a client's certificate names its user: common_name, distinguished_name or subject_alternative_name", func(c *Config) *string { return &c.TLSLoginFrom }),
		text("tls-login-san-type", "kind", "which subject alternative name that is: dns, email or uri", func(c *Config) *string { return &c.TLSLoginSANType }),
		text("token-keys-file", "file", "public keys (JWKS) of the issuer of tokens that clients of gRPC log in with, read again when it changes", func(c *Config) *string { return &c.TokenKeysFile }),
		text("token-issuer", "URL", "what the tokens' iss must be; empty: anything", func(c *Config) *string { return &c.TokenIssuer }),
		text("token-audience", "name", "what the tokens' aud must have", func(c *Config) *string { return &c.TokenAudience }),
		text("cluster-addr", "host:port", "address for the other nodes (node-to-node gRPC)", func(c *Config) *string { return &c.ClusterAddr }),
		text("cluster-advertise-addr", "host:port", "tell the other nodes this address in place of cluster-addr", func(c *Config) *string { return &c.ClusterAdvertiseAddr }),
		text("cluster-tls", "mode", "TLS between nodes: off, accept (with and without it) or on", func(c *Config) *string { return &c.ClusterTLS }),
		text("cluster-tls-cert-file", "file", "certificate for the other nodes and its chain (PEM), read again when it changes", func(c *Config) *string { return &c.ClusterTLSCertFile }),
		text("cluster-tls-key-file", "file", "key of that certificate (PEM)", func(c *Config) *string { return &c.ClusterTLSKeyFile }),
		text("cluster-tls-ca-file", "file", "authorities of the nodes' certificates (PEM)", func(c *Config) *string { return &c.ClusterTLSCAFile }),
		text("cluster-tls-name", "name", "DNS name that the certificate of every node carries", func(c *Config) *string { return &c.ClusterTLSName }),
		text("gossip-addr", "host:port", "address for membership gossip (TCP and UDP)", func(c *Config) *string { return &c.GossipAddr }),
		text("advertise-host", "host", "tell nodes and clients this host where a listener has none of its own", func(c *Config) *string { return &c.AdvertiseHost }),
		text("zone", "name", "what fails together with this node; replicas are placed in different zones", func(c *Config) *string { return &c.Zone }),
		text("cluster-name", "name", "nodes that were given another name are not joined", func(c *Config) *string { return &c.ClusterName }),
		text("gossip-encryption", "mode", "sealing of gossip: off, accept (sealed or not) or on", func(c *Config) *string { return &c.GossipEncryption }),
		text("gossip-key-file", "file", "keys of gossip in base64, one a line, the first seals; read again when it changes", func(c *Config) *string { return &c.GossipKeyFile }),
		text("default-user", "name", "user that a new cluster begins with", func(c *Config) *string { return &c.DefaultUser }),
		text("default-pass-file", "file", "that user's password, one line; read when the cluster is founded", func(c *Config) *string { return &c.DefaultPassFile }),
		{
			Name: "default-user-tags", Kind: "tag,...", Usage: "that user's tags",
			set: func(c *Config, s string) error { c.DefaultUserTags = splitList(s); return nil },
			get: func(c Config) string { return strings.Join(c.DefaultUserTags, ",") },
		},
		{
			Name: "login-failures", Kind: "count", Usage: "failed logins in a row of a user from one address before the next ones have to wait; 0: they never do",
			set: setInt(func(c *Config) *int { return &c.LoginFailures }),
			get: func(c Config) string { return strconv.Itoa(c.LoginFailures) },
		},
		text("password-hashing", "how", "how new passwords are hashed: sha256, as RabbitMQ does, bcrypt or bcrypt:COST", func(c *Config) *string { return &c.PasswordHashing }),
		text("load-definitions", "file", "definitions (JSON) to load once the cluster is there, unless the same were loaded last", func(c *Config) *string { return &c.LoadDefinitions }),
		{
			Name: "join", Kind: "host:port,...", Usage: "gossip addresses of nodes to join, its own may be among them",
			set: func(c *Config, s string) error { c.Join = splitList(s); return nil },
			get: func(c Config) string { return strings.Join(c.Join, ",") },
		},
		{
			Name: "bootstrap-expect", Kind: "count", Usage: "number of nodes that found the cluster together; 0: only join one",
			set: setInt(func(c *Config) *int { return &c.BootstrapExpect }),
			get: func(c Config) string { return strconv.Itoa(c.BootstrapExpect) },
		},
		{
			Name: "memory-high-watermark", Kind: "part or size", Usage: "block publishers when the node uses more memory: 0.6 of it, or 512MiB",
			set: func(c *Config, s string) (err error) { c.MemoryHighWatermark, err = ParseWatermark(s); return err },
			get: func(c Config) string { return c.MemoryHighWatermark.String() },
		},
		{
			Name: "unread-max", Kind: "part or size", Usage: "give consumers no more than they read while their clients leave more than this unread",
			set: func(c *Config, s string) (err error) { c.UnreadMax, err = ParseWatermark(s); return err },
			get: func(c Config) string { return c.UnreadMax.String() },
		},
		text("amqp-product", "name/x.y.z", "product and version that AMQP clients are told", func(c *Config) *string { return &c.AMQPProduct }),
		{
			Name: "consumer-timeout", Kind: "duration", Usage: "how long a client may keep a message of a quorum queue unsettled; 0: for ever",
			set: setDuration(func(c *Config) *time.Duration { return &c.ConsumerTimeout }),
			get: func(c Config) string { return c.ConsumerTimeout.String() },
		},
		{
			Name: "leader-moves", Kind: "count", Usage: "queues given back in a second to the nodes that should lead them; 0: none",
			set: setInt(func(c *Config) *int { return &c.LeaderMoves }),
			get: func(c Config) string { return strconv.Itoa(c.LeaderMoves) },
		},
		text("health-addr", "host:port", "listen here, too, for health checks and metrics alone", func(c *Config) *string { return &c.HealthAddr }),
		text("metrics-addr", "host:port", "listen here, too, for metrics alone", func(c *Config) *string { return &c.MetricsAddr }),
		text("metrics-login", "mode", "off, or on: metrics are for users with the tag monitoring", func(c *Config) *string { return &c.MetricsLogin }),
		text("otlp-endpoint", "URL", "send traces of messages to this collector (OTLP by gRPC)", func(c *Config) *string { return &c.OTLPEndpoint }),
		{
			Name: "trace-ratio", Kind: "part", Usage: "which part of clients' sampled traces is recorded, from 0 to 1",
			set: func(c *Config, s string) (err error) {
				if c.TraceRatio, err = strconv.ParseFloat(s, 64); err != nil {
					return fmt.Errorf("must be a number from 0 to 1, got %q", s)
				}
				return nil
			},
			get: func(c Config) string { return strconv.FormatFloat(c.TraceRatio, 'g', -1, 64) },
		},
		text("debug-addr", "host:port", "listen here for profiles, which are not on http-addr then", func(c *Config) *string { return &c.DebugAddr }),
		{
			Name: "ready-catch-up-max", Kind: "duration", Usage: "how long a started node may be not ready only because its replicas lag",
			set: setDuration(func(c *Config) *time.Duration { return &c.ReadyCatchUpMax }),
			get: func(c Config) string { return c.ReadyCatchUpMax.String() },
		},
		{
			Name: "drain-timeout", Kind: "duration", Usage: "how long ctl drain may take if it does not say",
			set: setDuration(func(c *Config) *time.Duration { return &c.DrainTimeout }),
			get: func(c Config) string { return c.DrainTimeout.String() },
		},
		{
			Name: "await-quorum", Kind: "duration", Usage: "how long a drain waits for queues that have no quorum without this node",
			set: setDuration(func(c *Config) *time.Duration { return &c.AwaitQuorum }),
			get: func(c Config) string { return c.AwaitQuorum.String() },
		},
		{
			Name: "lame-duck", Kind: "duration", Usage: "how long a node that leaves is not ready before it closes its listeners",
			set: setDuration(func(c *Config) *time.Duration { return &c.LameDuck }),
			get: func(c Config) string { return c.LameDuck.String() },
		},
		{
			Name: "stop-timeout", Kind: "duration", Usage: "how long the node may take to stop: to hand over its queues and clients, and to close",
			set: setDuration(func(c *Config) *time.Duration { return &c.StopTimeout }),
			get: func(c Config) string { return c.StopTimeout.String() },
		},
		{
			Name: "voter-replace-after", Kind: "duration", Usage: "how long a node is down until another one votes in the catalog's group in its place",
			set: setDuration(func(c *Config) *time.Duration { return &c.VoterReplaceAfter }),
			get: func(c Config) string { return c.VoterReplaceAfter.String() },
		},
		{
			Name: "sleep-after", Kind: "duration", Usage: "how long a queue without consumers is idle until its replicas sleep; 0: never",
			set: setDuration(func(c *Config) *time.Duration { return &c.SleepAfter }),
			get: func(c Config) string { return c.SleepAfter.String() },
		},
		{
			Name: "repair-after", Kind: "duration", Usage: "how long a node is down until its replicas are made anew on others; 0: never",
			set: setDuration(func(c *Config) *time.Duration { return &c.RepairAfter }),
			get: func(c Config) string { return c.RepairAfter.String() },
		},
		{
			Name: "repair-groups", Kind: "count", Usage: "queues whose members are changed at a time, in the whole cluster",
			set: setInt(func(c *Config) *int { return &c.RepairGroups }),
			get: func(c Config) string { return strconv.Itoa(c.RepairGroups) },
		},
		{
			Name: "repair-rate", Kind: "size", Usage: "bytes in a second that this node sends to fill replicas, such as 50MiB; 0: no bound",
			set: func(c *Config, s string) (err error) { c.RepairRate, err = parseSize(s); return err },
			get: func(c Config) string { return sizeOf(c.RepairRate) },
		},
		{
			Name: "upgrade-settle", Kind: "duration", Usage: "how long all nodes run a newer program before the cluster uses what is new in it, or manual",
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
