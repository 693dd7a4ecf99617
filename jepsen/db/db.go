package db

import (
	"context"
	"errors"
	"syscall"
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
	// HTTP returns the base of the node's HTTP addresses, without a final slash.
	HTTP(node string) string
	// Leader returns the node that leads a queue of the vhost "/" as far as those that
	// answer within a second know, "" if nobody does.
	Leader(ctx context.Context, queue string) (string, error)
	// Count asks a node for what is in a queue.
	Count(ctx context.Context, queue string) (Count, error)
	// LogFile returns the path of what the node's process has written.
	LogFile(node string) string
	// DataDir returns the node's data folder.
	DataDir(node string) string
	// Crashes returns the beginnings of the panics and data races in the logs, or "".
	Crashes() string
	// Close kills what runs.
	Close() error
}

// Count is what is in a queue.
type Count struct {
	Ready, Unacked int
	// Leaving are dead letters on their way to other queues.
	Leaving int
	// API is the number of messages by the management HTTP API.
	API int
}
