package db

import (
	"context"
	"errors"
	"syscall"
	"time"
)

// ErrUnsupported tells that this system cannot do what was asked.
var ErrUnsupported = errors.New("this system under test does not offer it")

// User is the name and the password of the clients' user.
const User = "guest"

// DB is a system under test. Its methods may be called by any goroutine, except that
// those which start and end the process of one node may not overlap.
type DB interface {
	// Name is the name of the system.
	Name() string
	// Nodes returns the names of all nodes, running or not.
	Nodes() []string
	// Start starts all nodes, waits until they are ready.
	Start(ctx context.Context) error
	// Launch starts the process of a node that does not run, and does not wait.
	Launch(node string) error
	// Ready waits until all running nodes are ready.
	Ready(ctx context.Context) error
	// Running tells whether the node's process lives.
	Running(node string) bool
	// Signal sends a signal to the node's process, if it runs.
	Signal(node string, sig syscall.Signal) error
	// Kill ends the node's process by SIGKILL and waits until it is gone.
	Kill(node string) error
	// Stop ends the node's process in order. When ctx ends first it is killed; that is an error.
	Stop(ctx context.Context, node string) error
	// AMQP returns host:port of the node for clients.
	AMQP(node string) string
	// GRPC is the same for clients of Warren's gRPC API, "" if there is none.
	GRPC(node string) string
	// HTTP returns the base of the node's HTTP addresses, without a final slash.
	HTTP(node string) string
	// Break sets what is wrong with the disk of a running node until its process ends.
	Break(ctx context.Context, node string, d Disk) error
	// Arm lets a running node be killed when its process passes the named point for the time number at,
	// from 1.
	Arm(ctx context.Context, node, point string, at uint64) error
	// Disarm takes back what Arm did.
	Disarm(ctx context.Context, node string) error
	// SetClock adds offset to the node's clock from its next start on.
	SetClock(node string, offset time.Duration) error
	// SetForget makes the node's disk lose at SIGKILL, from its next start on, what was not synced, but
	// for keep percent of it.
	SetForget(node string, keep int) error
	// Leader returns the node that leads a queue of the vhost "/" as far as those that
	// answer within a second know, "" if nobody does.
	Leader(ctx context.Context, queue string) (string, error)
	// Count asks a node for what is in a queue.
	Count(ctx context.Context, queue string) (Count, error)
	// Members returns the nodes that have, or shall have, a replica of a queue of the vhost "/".
	Members(ctx context.Context, queue string) ([]string, error)
	// SetMember asks for a replica of a queue on a node, or for none. It does not wait until it is there, or gone.
	SetMember(ctx context.Context, queue, node string, member bool) error
	// Move has a node that does not run come back at the address that its place has by now.
	Move(node string) error
	// States tells what the replicas on a node hold.
	States(ctx context.Context, node string) ([]State, error)
	// LogFile returns the path of what the node's process has written.
	LogFile(node string) string
	// DataDir returns the node's data folder.
	DataDir(node string) string
	// Crashes returns the beginnings of the panics and data races in the logs, or "".
	Crashes() string
	// Close kills what runs.
	Close() error
}

// Disk is what is wrong with a disk. The zero Disk is sound.
type Disk struct {
	// Full: nothing can grow.
	Full bool
	// Failing: writes and syncs fail.
	Failing bool
	// SyncDelay is added to each sync.
	SyncDelay time.Duration
}

// State is what a replica holds.
type State struct {
	// Of names what it is a replica of.
	Of string
	// Applied is the newest entry of its log that it has applied; Digest digests all of its state.
	Applied uint64
	Digest  string
}

// Count is what is in a queue.
type Count struct {
	Ready, Unacked int
	// Leaving are dead letters on their way to other queues.
	Leaving int
	// API is the number of messages by the management HTTP API.
	API int
}
