package amqp

import (
	"context"
	"errors"
	"fmt"

	wire "github.com/warrenmq/warren/amqp"
	"github.com/warrenmq/warren/broker"
)

// Ends of a connection that are not errors of the protocol.
var (
	errClientClosed   = errors.New("client closed the connection")
	errKicked         = errors.New("connection is to be closed")
	errHeartbeat      = errors.New("missed heartbeats from client")
	errHandshakeLate  = errors.New("handshake timed out")
	errWrongProtocol  = errors.New("peer does not speak AMQP 0-9-1")
	errAuthentication = errors.New("authentication refused")
)

// replyCode maps a kind of refusal to its reply code. Unavailable depends on the
// operation: a queue that cannot be reached is "not found" to its user, as with a
// queue whose node is down; elsewhere it is the server's failure.
func replyCode(kind broker.Kind, id wire.MethodID) uint16 {
	switch kind {
	case broker.NotFound:
		return wire.NotFound
	case broker.AccessRefused:
		return wire.AccessRefused
	case broker.PreconditionFailed, broker.ContentTooLarge:
		return wire.PreconditionFailed
	case broker.ResourceLocked:
		return wire.ResourceLocked
	case broker.NotAllowed:
		return wire.NotAllowed
	case broker.NotImplemented:
		return wire.NotImplemented
	case broker.ConnectionForced:
		return wire.ConnectionForced
	case broker.Unavailable:
		if id.Class() == wire.ClassQueue || id == wire.MethodBasicConsume || id == wire.MethodBasicGet {
			return wire.NotFound
		}
	}
	return wire.InternalError
}

// protocolError turns whatever a method failed with into what the client is
// told. The text of an error that was not made for clients stays inside.
func protocolError(err error, id wire.MethodID) *wire.Error {
	if e, ok := errors.AsType[*wire.Error](err); ok {
		if e.ClassID == 0 && e.MethodID == 0 && id != 0 && e.Code != wire.FrameError { // a malformed frame blames no method
			with := *e
			with.ClassID, with.MethodID = id.Class(), id.Method()
			return &with
		}
		return e
	}
	e := &wire.Error{ClassID: id.Class(), MethodID: id.Method(), Err: err}
	if b, ok := errors.AsType[*broker.Error](err); ok {
		e.Code, e.Text = replyCode(b.Kind, id), b.Text
		return e
	}
	e.Code = wire.InternalError
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		e.Text = "operation timed out"
	default:
		e.Text = "internal error"
	}
	return e
}

func unexpectedMethod(id wire.MethodID) *wire.Error {
	return wire.Errorf(wire.CommandInvalid, id, "unexpected method %s", id)
}

func notFoundf(id wire.MethodID, format string, args ...any) *wire.Error {
	return &wire.Error{Code: wire.NotFound, Text: fmt.Sprintf(format, args...), ClassID: id.Class(), MethodID: id.Method()}
}
