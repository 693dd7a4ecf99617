package transport

import (
	"context"
	"errors"
	"fmt"
)

// Errors that callers decide by. They may be wrapped.
var (
	// ErrPeerDown reports that no link to the peer is up. What was in flight when a
	// link broke has an unknown outcome.
	ErrPeerDown = errors.New("peer is down")
	// ErrBacklog reports that the byte bound of the queue to that peer is full.
	ErrBacklog = errors.New("backlog to peer is full")
	// ErrClosed reports that the mesh or the group's transport was closed.
	ErrClosed = errors.New("transport closed")
	// ErrVirgin reports that this node belongs to no cluster yet, so that only
	// CallAddr works.
	ErrVirgin = errors.New("node belongs to no cluster yet")
	// ErrUnhealthy reports that AppendEntries was withheld because Config.Healthy
	// said that the local log is stuck.
	ErrUnhealthy = errors.New("local log is stuck, not speaking as a leader")
	// ErrUnresolved reports that Config.Resolve knows no address for a node.
	ErrUnresolved = errors.New("no address known for node")
	// ErrTimeout reports that an answer did not come within its bound; the outcome
	// is unknown.
	ErrTimeout = errors.New("no answer in time")
	// ErrBusy reports that a local inbox is full.
	ErrBusy = errors.New("inbox is full")
	// ErrTooLarge reports a payload beyond Config.FrameBytesMax.
	ErrTooLarge = errors.New("payload exceeds the frame limit")
	// ErrUnknownGroup reports that no Raft transport is open for the group here.
	ErrUnknownGroup = errors.New("group does not run here")
)

// Codes of RemoteError used by this package. Handlers may use any other code;
// those from CodeFirstFree on are never used by the transport.
const (
	CodeInternal        uint16 = 1  // a handler failed with an error without a code
	CodeBusy            uint16 = 2  // inbox, worker queue or snapshot slots are full
	CodeUnknownGroup    uint16 = 3  // the group does not run there
	CodeUnknownMethod   uint16 = 4  // no handler for the method
	CodeCluster         uint16 = 5  // cluster ids differ
	CodeVirgin          uint16 = 6  // the other node belongs to no cluster yet
	CodeTarget          uint16 = 7  // the frame was meant for another node or incarnation
	CodeVersion         uint16 = 8  // protocol versions do not meet
	CodeMalformed       uint16 = 9  // the bytes could not be decoded
	CodeStale           uint16 = 10 // an older stream, or a replayed or reordered message
	CodeRaft            uint16 = 11 // raft itself answered with an error
	CodeDeadline        uint16 = 12 // the handler's deadline passed
	CodeClosed          uint16 = 13 // the group or the node is closing
	CodeNotOpen         uint16 = 14 // the method is not open to callers outside the cluster
	CodeFirstFree       uint16 = 1000
	errorTextBytesMax          = 4096
	unexpectedErrorText        = "the other side gave no text"
)

// RemoteError is an error that crossed the network. Code is for machines, Text a
// sentence for people.
type RemoteError struct {
	Code uint16
	Text string
}

func (e *RemoteError) Error() string {
	if e.Text == "" {
		return fmt.Sprintf("%s (code %d)", unexpectedErrorText, e.Code)
	}
	return e.Text
}

// Is makes the transport's own codes comparable with the sentinels that mean the
// same thing locally.
func (e *RemoteError) Is(target error) bool {
	switch target {
	case ErrBusy:
		return e.Code == CodeBusy
	case ErrUnknownGroup:
		return e.Code == CodeUnknownGroup
	case ErrClosed:
		return e.Code == CodeClosed
	default:
		return false
	}
}

// remoteOf turns any error into the one that is sent, so that local and remote
// calls fail alike.
func remoteOf(err error) *RemoteError {
	if re, ok := errors.AsType[*RemoteError](err); ok {
		return re
	}
	code := CodeInternal
	switch {
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, ErrTimeout):
		code = CodeDeadline
	case errors.Is(err, ErrClosed), errors.Is(err, context.Canceled):
		code = CodeClosed
	case errors.Is(err, ErrBusy):
		code = CodeBusy
	case errors.Is(err, ErrUnknownGroup):
		code = CodeUnknownGroup
	}
	text := err.Error()
	if len(text) > errorTextBytesMax {
		text = text[:errorTextBytesMax]
	}
	return &RemoteError{Code: code, Text: text}
}
