package config

import (
	"log/slog"
	"os"
	"regexp"
	"strings"
	"time"
)

// Config is the complete set of settings of one node. A Config is a value:
// copies are independent except for its lists, which nobody modifies after Load.
type Config struct {
	// NodeID names this node in the cluster. It must be unique and must not
	// change over the node's life, or the node is taken for a new one. The
	// default is the host's name. At most 63 letters, digits, dots, dashes
	// and underscores.
	NodeID string

	// DataDir is the folder of everything the node keeps. It is created when
	// it is missing. Two processes can not share one. Default "data".
	DataDir string

	// AMQPAddr is the address (host:port) of the AMQP 0-9-1 listener. Port 0
	// takes any free port. Default ":5672".
	AMQPAddr string

	// HTTPAddr is the address of /healthz, /readyz and the management API.
	// Port 0 takes any free port. Default ":15672".
	HTTPAddr string

	// GRPCAddr is the address of the gRPC API for clients. Port 0 takes any
	// free port. Default ":5680".
	GRPCAddr string

	// AMQPSAddr and HTTPSAddr are the addresses of AMQP 0-9-1 and of the management API over
	// TLS; none if empty, which is the default. RabbitMQ's ports are 5671 and 15671.
	AMQPSAddr, HTTPSAddr string

	// ProxyProtocol has the networks (addresses or prefixes, with commas between them) of the proxies whose AMQP connections, with or without TLS, begin with a
	// header of the PROXY protocol; or ProxyProtocolOn, all do, or ProxyProtocolOff, none does. See Proxies.
	ProxyProtocol string

	// TLSCertFile and TLSKeyFile are the PEM files of the certificate, with intermediate ones
	// behind it, and of the key that clients are shown. They are read again when they change.
	// If they are set, the gRPC port speaks TLS only. TLSCAFile has the authorities whose
	// certificates clients may show.
	TLSCertFile, TLSKeyFile, TLSCAFile string

	// TLSClientAuth says whether clients show certificates: "none", "verify" or "require".
	// Default "none".
	TLSClientAuth string

	// TLSLoginFrom is the part of a client's certificate that names its user for EXTERNAL, in
	// RabbitMQ's words (ssl_cert_login_from). Default "distinguished_name". TLSLoginSANType
	// is the kind of name taken from the subject alternative names: "dns", "email" or "uri".
	// Default "dns".
	TLSLoginFrom, TLSLoginSANType string

	// TokenKeysFile has the public keys of the issuer whose tokens clients may log in with, a JSON Web Key Set; TokenKeysURL is where they are fetched from
	// instead, of a server that is verified with the certificates in TokenKeysCAFile, or those of the system. Without keys there are no tokens.
	// TokenIssuer is what their claim iss must be, empty: anything. TokenAudience is what their claim aud must have. Default "warren".
	TokenKeysFile, TokenKeysURL, TokenKeysCAFile, TokenIssuer, TokenAudience string
	// TokenUserClaims are the claims with the user's name, of which the first that a token has counts. Default sub, client_id.
	TokenUserClaims []string
	// TokenScopes is TokenScopesOn if what a login by token may do is what its scopes say, and TokenScopesOff (the default) if it is what the catalog says.
	TokenScopes string
	// TokenScopePrefix is how scopes begin that are meant for this cluster: empty (the default): with TokenAudience and a point, TokenPrefixNone: with what they
	// permit. TokenScopeClaims are claims with scopes beside "scope", by name or as paths with points. TokenScopeAliasesFile says what names of the issuer's stand
	// for, as a JSON object; empty: for nothing.
	TokenScopePrefix      string
	TokenScopeClaims      []string
	TokenScopeAliasesFile string

	// AuthBackends are where logins are looked for, in this order: AuthInternal, AuthHTTP, AuthHTTPInternal. Default AuthInternal.
	AuthBackends []string
	// AuthHTTPMethod is how the server of logins is asked: "get" (the default, as RabbitMQ's) or "post". The URLs are where; those but the user's are needed if
	// AuthBackends has AuthHTTP.
	AuthHTTPMethod                                                           string
	AuthHTTPUserURL, AuthHTTPVhostURL, AuthHTTPResourceURL, AuthHTTPTopicURL string
	// AuthHTTPCAFile has the certificates that the server is verified with, empty: those of the system; AuthHTTPCertFile and AuthHTTPKeyFile are what is shown to
	// it, empty: nothing.
	AuthHTTPCAFile, AuthHTTPCertFile, AuthHTTPKeyFile string
	// AuthHTTPTimeout is for an answer. Default 5 s; more than 8 s would be more than clients wait for a handshake. AuthHTTPTTL is how long one counts without being
	// asked for again, default 15 s, at most an hour; too long and who is to do less does more until then, too short and the server is asked more. AuthHTTPRefusalTTL is the same for a
	// refusal, default 1 s.
	AuthHTTPTimeout, AuthHTTPTTL, AuthHTTPRefusalTTL time.Duration

	// ClusterAddr is the address at which the other nodes reach this one
	// (node-to-node gRPC). Anybody who can connect to it is trusted, so the
	// default is a loopback address: "127.0.0.1:5681".
	ClusterAddr string

	// ClusterTLS says how nodes speak with each other: "off", "accept" or "on". Default "off".
	// ClusterTLSCertFile, ClusterTLSKeyFile and ClusterTLSCAFile are the PEM files of the
	// certificate that this node shows to the others, of its key, and of the authorities of all nodes'
	// certificates. ClusterTLSName is the DNS name that each of those carries. Default "warren-node".
	ClusterTLS                                              string
	ClusterTLSCertFile, ClusterTLSKeyFile, ClusterTLSCAFile string
	ClusterTLSName                                          string

	// ClusterAdvertiseAddr is the address (host:port) that the other nodes are told to use
	// in place of ClusterAddr, where they reach this node through something in between.
	// Empty: ClusterAddr.
	ClusterAdvertiseAddr string

	// GossipAddr is the address (TCP and UDP) of membership gossip. Default
	// "127.0.0.1:5682".
	GossipAddr string

	// AdvertiseHost is the host that other nodes and clients are told in place of an unspecified one (0.0.0.0, ::), for all
	// listeners. Empty: the address from which the machine reaches others.
	AdvertiseHost string

	// Zone names what fails together with this node, such as a rack or a data centre. The replicas of a queue
	// are placed in different zones. At most 63 characters, as a node id. Default "": all nodes without one share a zone.
	Zone string

	// ClusterName tells clusters apart whose nodes may come to each other's addresses: a node that belongs to none does not hear nodes
	// that were given another name. At most 255 bytes without blanks. Default "": all are heard.
	ClusterName string

	// GossipEncryption says what of gossip is sealed: "off", "accept" or "on". Default "off".
	// GossipKeyFile has the keys in base64, one a line, of 16, 24 or 32 bytes; the first seals,
	// all open. It is read again when it changes.
	GossipEncryption, GossipKeyFile string

	// DefaultUser is the user that a new cluster begins with, with all permissions in the virtual host "/" and
	// DefaultUserTags. DefaultPassFile has its password, one line. They count when the cluster is founded and never
	// again. Default "guest", whose password is "guest" without a file and who comes from the node's own machine only, and "administrator".
	DefaultUser, DefaultPassFile string
	DefaultUserTags              []string
	// LoginFailures is after how many failed logins in a row of a user from one address the next ones have to wait, from 1 s to
	// 1 min; 0: never.
	LoginFailures int
	// LoopbackUsers is guest, or none if that user may log in from other machines, too, as in RabbitMQ's container images.
	LoopbackUsers string
	// PasswordHashing is how new passwords of users are hashed: sha256, salted as RabbitMQ does, or bcrypt, with bcrypt:COST at a
	// cost from 4 to 14 (10). Each step of it doubles what a login takes, 50 ms at 10, and what guessing a stolen hash does. Stored
	// hashes stay what they are.
	PasswordHashing string

	// LoadDefinitions is a file with definitions in the JSON of RabbitMQ's tools, which is loaded when the cluster is there,
	// unless the same were loaded last. A founder whose file is missing or wrong does not start. Default none.
	LoadDefinitions string

	// Join lists gossip addresses (host:port, the host may be a DNS name with
	// several addresses) where other nodes may be found. The node's own
	// address may be among them. Empty: wait to be contacted.
	Join []string

	// BootstrapExpect is the number of nodes that found the cluster together
	// on its very first start. Too small, and the first nodes found a cluster
	// of their own; too large, and they wait for nodes that never come. 0 never
	// founds: the node waits for a cluster to join. It has no effect once the
	// node belongs to a cluster. Default 1.
	BootstrapExpect int

	// MemoryHighWatermark is how much memory the node may use. Above it no node of
	// the cluster reads from connections that publish, until it falls. 0 keeps
	// publishers away for good. Default 0.6 of the memory that the node can have.
	MemoryHighWatermark Watermark
	// UnreadMax is how much memory messages may take that are with this node's clients'
	// connections and that the clients have not read.
	UnreadMax Watermark

	// DiskFreeLimit is the free space on the disk of DataDir below which publishers are blocked. Zero, or less
	// than it: 128 MiB, or a sixteenth of the disk if that is less, which the log needs to go on.
	DiskFreeLimit Watermark

	// ConnectionMax is how many AMQP connections may be open on the node: one more is refused
	// (530). ConnectionMaxInfinity, the default: as many as open files and memory allow.
	ConnectionMax int
	// ChannelMax is how many channels an AMQP connection may have, Heartbeat what AMQP clients are suggested.
	ChannelMax int
	Heartbeat  time.Duration
	// MaxMessageSize is the largest body of a message in bytes that clients may publish. Default 16 MiB.
	MaxMessageSize uint64

	// AMQPProduct is the product and version (name/x.y.z) that AMQP clients find in
	// the server-properties. Some act by it and know RabbitMQ only. Default
	// "Warren/0.1.0".
	AMQPProduct string

	// ConsumerTimeout is how long a client may keep a message of a quorum queue without
	// settling it, where neither the queue nor the consumer says otherwise. 0: for ever.
	// Default 30 minutes.
	ConsumerTimeout time.Duration

	// LeaderMoves is how many queues this node gives back in a second, of those that it leads only
	// because the node that should was away. 0: none, ever. Default 10.
	LeaderMoves int

	// HealthAddr is the address of another listener for /healthz, /readyz and /metrics, without TLS and without
	// anything else. Empty, the default: they are on HTTPAddr only.
	HealthAddr string

	// MetricsAddr is the address of a listener for /metrics and what is below, without TLS and without anything else. Empty, the
	// default: they are on HTTPAddr only, and on HealthAddr.
	MetricsAddr string

	// MetricsLogin says whether who reads metrics shows a login with the tag monitoring, wherever they are: "off" or "on". Default "off".
	MetricsLogin string

	// OTLPEndpoint is the URL (http or https, by gRPC) of the collector that traces of messages are sent to. Empty: that of OpenTelemetry's environment
	// variables, or traces are off, which is the default.
	OTLPEndpoint string

	// TraceRatio is which part of the traces that clients sample is recorded here, from 0 to 1: a trace on all nodes or on none. Default 1.
	TraceRatio float64

	// DebugAddr is the address of a listener for /debug/ (profiles, queues) without a login. Empty, the default: that is on
	// HTTPAddr, and profiles for clients of the same machine only.
	DebugAddr string

	// ReadyCatchUpMax is how long a node that was started may be not ready only because its replicas have less
	// than their leaders. Default 5 minutes.
	ReadyCatchUpMax time.Duration

	// DrainTimeout is how long a drain without a time of its own may take. Default 1 minute.
	DrainTimeout time.Duration

	// AwaitQuorum is how long a drain waits for queues that have no quorum without this node. Default 30 s.
	AwaitQuorum time.Duration

	// LameDuck is how long a node that leaves is not ready before it closes its listeners, so that load balancers
	// have heard of it. Default 0.
	LameDuck time.Duration

	// StopTimeout is how long the node may take to stop, from SIGTERM to its end. A third of it is for closing
	// files, the rest for other nodes to take over and for clients to go. Default 30 s.
	StopTimeout time.Duration
	// VoterReplaceAfter is how long a node must be down until another one votes in the catalog's group in its place. Too short, and
	// a restart costs a node its vote; too long, and a second death meanwhile leaves the catalog without a majority. Default 5 minutes.
	VoterReplaceAfter time.Duration

	// SleepAfter is how long a queue must have been idle, without consumers, until its replicas stop their Raft instances. The first use after that waits for
	// an election, some milliseconds. 0: never. Default one minute.
	SleepAfter time.Duration

	// RepairAfter is how long a node must be down until the replicas that it has are made anew on other nodes. Too short, and nodes that are only being
	// replaced or updated cost copies of all they have; too long, and a second loss meanwhile leaves queues without a majority. 0: never.
	// Default 10 minutes.
	RepairAfter time.Duration

	// RepairGroups is how many queues may have their members changed at a time, in the whole cluster. Default 4.
	RepairGroups int

	// RepairRate is how many bytes in a second this node sends at most to fill replicas; 0: no bound. Default 50 MiB.
	RepairRate uint64

	// UpgradeSettle is how long all nodes must run a newer program before the cluster uses what is new in it; older ones are
	// refused from then on. UpgradeManually: not before an operator asks for it. Default 10 minutes.
	UpgradeSettle time.Duration

	// LogLevel is the least severe level that is logged. Default info.
	LogLevel slog.Level

	// LogFormat is "text" or "json". Default "text".
	LogFormat string
}

// Values of MetricsLogin.
const (
	MetricsLoginOff = "off"
	MetricsLoginOn  = "on"
)

// UpgradeManually is the UpgradeSettle of a cluster that waits for `warren ctl enable_feature_flag all`.
const UpgradeManually time.Duration = -1

// Limits of single settings.
const (
	voterReplaceMin    = time.Second
	sleepAfterMin      = time.Second
	sleepAfterMax      = 30 * 24 * time.Hour
	repairAfterMin     = time.Second
	repairAfterMax     = 30 * 24 * time.Hour
	repairGroupsMax    = 100
	repairRateMin      = 1 << 20 // a replica that is filled must not look like one that hangs
	repairRateMax      = 1 << 40
	upgradeSettleMax   = 30 * 24 * time.Hour
	nodeIDBytesMax     = 63
	bootstrapExpectMax = 99
	joinMax            = 256
	clusterNameMax     = 255
	hostBytesMax       = 200
	consumerTimeoutMax = 365 * 24 * time.Hour
	leaderMovesMax     = 1000
	loginFailuresMax   = 1000
	stopTimeoutMin     = time.Second
	stopTimeoutMax     = time.Hour
	drainTimeoutMax    = 24 * time.Hour
	readyCatchUpMax    = 24 * time.Hour
)

var nodeIDPattern = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]*$`)

// Default returns the settings of a node that was given none. NodeID is the
// host's name, or "warren" when the host has none that fits.
func Default() Config {
	return Config{
		NodeID:          defaultNodeID(os.Hostname),
		DataDir:         "data",
		AMQPAddr:        ":5672",
		HTTPAddr:        ":15672",
		GRPCAddr:        ":5680",
		TLSClientAuth:   ClientAuthNone,
		TLSLoginFrom:    "distinguished_name",
		TLSLoginSANType: "dns",
		TokenAudience:   "warren",
		TokenUserClaims: []string{"sub", "client_id"},
		TokenScopes:     TokenScopesOff,
		AuthBackends:    []string{AuthInternal},
		AuthHTTPMethod:  AuthHTTPGet,
		AuthHTTPTimeout: 5 * time.Second, AuthHTTPTTL: 15 * time.Second, AuthHTTPRefusalTTL: time.Second,
		ClusterAddr:      "127.0.0.1:5681",
		ClusterTLS:       ClusterTLSOff,
		ClusterTLSName:   "warren-node",
		GossipEncryption: GossipOff,
		DefaultUser:      guest,
		DefaultUserTags:  []string{"administrator"},
		LoginFailures:    10,
		LoopbackUsers:    guest,
		PasswordHashing:  "sha256",
		GossipAddr:       "127.0.0.1:5682",
		BootstrapExpect:  1,
		AMQPProduct:      "Warren/0.1.0",
		ConsumerTimeout:  30 * time.Minute,
		LeaderMoves:      10,
		ReadyCatchUpMax:  5 * time.Minute,
		DrainTimeout:     time.Minute,
		AwaitQuorum:      30 * time.Second,
		StopTimeout:      30 * time.Second,
		UpgradeSettle:    10 * time.Minute,
		MetricsLogin:     MetricsLoginOff,
		TraceRatio:       1,
		LogLevel:         slog.LevelInfo,
		LogFormat:        "text",

		VoterReplaceAfter: 5 * time.Minute,
		RepairAfter:       10 * time.Minute,
		SleepAfter:        time.Minute,
		RepairGroups:      4,
		RepairRate:        50 << 20,

		MemoryHighWatermark: Watermark{Fraction: 0.6},
		UnreadMax:           Watermark{Bytes: 256 << 20},

		ProxyProtocol:  ProxyProtocolOff,
		ConnectionMax:  ConnectionMaxInfinity,
		ChannelMax:     2047,
		Heartbeat:      time.Minute,
		MaxMessageSize: 16 << 20,
	}
}

func defaultNodeID(hostname func() (string, error)) string {
	name, err := hostname()
	if err != nil || checkNodeID(name) != "" {
		return "warren"
	}
	return name
}

// Product returns the two halves of AMQPProduct.
func (c Config) Product() (name, version string) {
	name, version, _ = strings.Cut(c.AMQPProduct, "/")
	return name, version
}

// productVersion is what clients can take apart and compare.
var productVersion = regexp.MustCompile(`^\d+\.\d+\.\d+$`)
