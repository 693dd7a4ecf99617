package amqp

import (
	"errors"
	"fmt"
	"log/slog"
	"math"
	"time"

	wire "github.com/warrenmq/warren/amqp"
	"github.com/warrenmq/warren/auth"
	"github.com/warrenmq/warren/contain"
	"github.com/warrenmq/warren/gateway/unread"
)

// Config sets what a Server offers and where it stops.
type Config struct {
	// Product, Version and ClusterName appear in the server-properties. Clients
	// compare versions as numbers: x.y.z.
	Product, Version, ClusterName string
	// Mechanisms are the SASL mechanisms on offer, best first. EXTERNAL is offered
	// only to clients with a certificate that was verified.
	Mechanisms []string
	// PeerName is the part of a client's certificate that names its user.
	PeerName auth.PeerName

	// FrameMax is the largest frame in bytes the server offers. Smaller ones cost
	// more frames for a large message, larger ones more memory for a connection.
	FrameMax uint32
	// FrameMaxMin is the smallest frame-max a client may ask for, in bytes.
	FrameMaxMin uint32
	// ChannelMax is how many channels a connection may have.
	ChannelMax uint16
	// Heartbeat is offered to clients, in seconds; what the client answers counts.
	// 0 switches heartbeats off unless the client wants them.
	Heartbeat uint16
	// MessageBytesMax is the largest message body in bytes.
	MessageBytesMax int
	// AssemblyBytesMax bounds the messages that are still arriving on all channels
	// of a connection, in bytes. It is at least MessageBytesMax. Those of many connections
	// wait for the room of AssemblyBytesNodeMax.
	AssemblyBytesMax int
	// AssemblyBytesNodeMax is the room for such messages of all connections together: beyond it connections wait
	// before they begin another one.
	AssemblyBytesNodeMax int
	// AssemblyPatience is how long a connection may not continue such a message while others wait for room; then it is closed.
	AssemblyPatience time.Duration
	// WriteBufferBytes is how many bytes of answers may wait for a client that does
	// not read before the server stops reading from it.
	WriteBufferBytes int
	// Unread counts the messages that wait for clients that do not read, of all protocols.
	Unread *unread.Gauge
	// ConnectionsMax bounds the open connections. One more takes the place of the oldest that has not begun to log in, or is closed at once.
	ConnectionsMax int
	// OpenMax is RabbitMQ's connection_max: while so many connections are open, a further connection.open is refused (530).
	OpenMax int

	// HandshakeTimeout bounds the time from accept to connection.open-ok.
	HandshakeTimeout time.Duration
	// AuthFailureDelay is how long a refused login waits for its answer, against
	// guessing.
	AuthFailureDelay time.Duration
	// CloseTimeout is how long a peer may take to answer connection.close.
	CloseTimeout time.Duration
	// WriteTimeout ends a connection whose peer takes no byte for so long.
	WriteTimeout time.Duration
	// OperationTimeout is the last resort bound for one operation of the broker,
	// which has tighter ones of its own.
	OperationTimeout time.Duration

	// Guard contains faults of this program in the work for one connection. Nil: nobody does.
	Guard *contain.Guard

	Logger *slog.Logger
}

// assemblyMessages is how many of the largest messages, with their headers, may arrive at once on the channels of
// a connection: clients with a goroutine for each channel send them side by side.
const assemblyMessages = 16

// LimitAssembly lets the unfinished messages of a connection, and of all of them, take a quarter of memory at most, which is what the node
// may use, but always room for one of the largest with its headers. 0: it is not known.
func (c *Config) LimitAssembly(memory uint64) {
	if memory == 0 {
		return
	}
	one := c.MessageBytesMax + int(c.FrameMax)
	c.AssemblyBytesNodeMax = max(one, int(memory/4))
	c.AssemblyBytesMax = min(assemblyMessages*one, c.AssemblyBytesNodeMax)
}

// What memory LimitConnections has in mind for connections: an idle one with a channel takes 28 KiB, and a consumer 7 more.
const connectionBytes = 32 << 10

// ConnectionsMin is how many connections may be open at least, if there are files for them.
const ConnectionsMin = 10_000

// LimitConnections lets connections take a quarter of memory, which is what the node may use, while they are idle: that many may be open, but always ConnectionsMin.
func (c *Config) LimitConnections(memory uint64) {
	c.ConnectionsMax = int(max(ConnectionsMin, memory/4/connectionBytes))
}

// Default returns the configuration of RabbitMQ 4 in Warren's name.
func Default() Config {
	return Config{
		Product: "Warren", Version: "0.1.0", ClusterName: "warren",
		Mechanisms:           []string{auth.MechanismPlain, auth.MechanismAMQPLain},
		PeerName:             auth.PeerName{From: auth.PeerDistinguishedName},
		FrameMax:             wire.FrameMaxOffered,
		FrameMaxMin:          8192,
		ChannelMax:           2047,
		Heartbeat:            60,
		MessageBytesMax:      16 << 20,
		AssemblyBytesMax:     assemblyMessages * (16<<20 + 131072),
		AssemblyBytesNodeMax: 1 << 30,
		WriteBufferBytes:     1 << 20,
		Unread:               unread.New(math.MaxInt64, func(bool) {}),
		ConnectionsMax:       ConnectionsMin,
		OpenMax:              math.MaxInt,
		HandshakeTimeout:     10 * time.Second,
		AuthFailureDelay:     time.Second,
		AssemblyPatience:     time.Minute,
		CloseTimeout:         5 * time.Second,
		WriteTimeout:         60 * time.Second,
		OperationTimeout:     60 * time.Second,
		Logger:               slog.Default(),
	}
}

// Validate reports everything that is wrong with c.
func (c *Config) Validate() error {
	var errs []error
	bad := func(cond bool, format string, args ...any) {
		if cond {
			errs = append(errs, fmt.Errorf("amqp gateway: "+format, args...))
		}
	}
	bad(c.Product == "" || c.Version == "", "product and version are needed")
	bad(len(c.Mechanisms) == 0, "no authentication mechanism")
	bad(c.FrameMaxMin < 4096, "frame_max minimum %d is below 4096", c.FrameMaxMin)
	bad(c.FrameMax < c.FrameMaxMin || c.FrameMax > 16<<20, "frame_max %d is not in %d..%d", c.FrameMax, c.FrameMaxMin, 16<<20)
	bad(c.ChannelMax < 1, "channel_max is 0")
	bad(c.MessageBytesMax < 1 || c.MessageBytesMax > bodyBytesCeiling, "message size %d is not in 1..%d", c.MessageBytesMax, bodyBytesCeiling)
	bad(c.AssemblyBytesMax < c.MessageBytesMax, "assembly bound %d is below the message size %d", c.AssemblyBytesMax, c.MessageBytesMax)
	bad(c.AssemblyBytesNodeMax < c.AssemblyBytesMax, "assembly bound %d of the node is below that of a connection, %d", c.AssemblyBytesNodeMax, c.AssemblyBytesMax)
	bad(c.WriteBufferBytes < 4096, "write buffer %d is below 4096", c.WriteBufferBytes)
	bad(c.Unread == nil, "no gauge of unread messages")
	bad(c.ConnectionsMax < 1, "connection limit %d is below 1", c.ConnectionsMax)
	bad(c.OpenMax < 0, "limit of open connections %d is negative", c.OpenMax)
	for name, d := range map[string]time.Duration{
		"handshake timeout": c.HandshakeTimeout, "close timeout": c.CloseTimeout,
		"assembly patience": c.AssemblyPatience, "write timeout": c.WriteTimeout, "operation timeout": c.OperationTimeout,
	} {
		bad(d <= 0, "%s is not positive", name)
	}
	bad(c.AuthFailureDelay < 0, "authentication failure delay is negative")
	bad(c.Logger == nil, "no logger")
	return errors.Join(errs...)
}
