package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	warrenv1 "github.com/warrenmq/warren/api/warren/v1"
)

// What a node refuses, for errors.Is. The error itself is an *Error, with the node's words.
var (
	// ErrUnroutable: the message is mandatory and no queue gets it.
	ErrUnroutable = errors.New("no queue gets the message")
	// ErrRefused: a queue refuses the message: it is full, or was deleted while the message was on its way, and declared anew; then it is an ErrQueueDeleted, too. Others that it went to may have taken it.
	ErrRefused = errors.New("a queue refuses the message")
	// ErrNotFound: there is no such queue or exchange, or it was deleted.
	ErrNotFound = errors.New("not found")
	// ErrQueueDeleted: the queue was deleted under its consumer, which is an ErrNotFound, too, or a message's on its way, which is an ErrRefused.
	ErrQueueDeleted = errors.New("queue deleted")
	// ErrAccessRefused: the user has no permission.
	ErrAccessRefused = errors.New("access refused")
	// ErrNotAllowed: there is no such virtual host, or a limit of it or of the user is reached.
	ErrNotAllowed = errors.New("not allowed")
	// ErrPreconditionFailed: there is another queue or exchange of that name, it is in use, and so on.
	ErrPreconditionFailed = errors.New("precondition failed")
	// ErrResourceLocked: the queue is another connection's.
	ErrResourceLocked = errors.New("resource locked")
	// ErrInvalid: a request or a message that cannot be one.
	ErrInvalid = errors.New("invalid")
	// ErrLoginRefused: a wrong user, password or certificate.
	ErrLoginRefused = errors.New("login refused")
	// ErrUnavailable: the node cannot do it now; another one may.
	ErrUnavailable = errors.New("unavailable")
)

// Errors of the client itself.
var (
	// ErrClosed: the client or the publisher is closed.
	ErrClosed = errors.New("closed")
	// ErrResultUnknown: the message may or may not have been taken.
	ErrResultUnknown = errors.New("the message may or may not have been taken")
	// ErrSettled: the delivery has been settled before.
	ErrSettled = errors.New("the delivery is settled already")
	// ErrDeliveryLost: the delivery cannot be settled any more, as its stream has ended. Its message goes back to the queue.
	ErrDeliveryLost = errors.New("the stream of the delivery has ended")
)

// Error is a node's refusal. errors.Is tells which of the above it is.
type Error struct {
	Code codes.Code
	// Reason is that of the API, as NOT_FOUND; "" when the error is not the node's but its gRPC library's, or the way's to it.
	Reason string
	// AMQPCode is the code that a client of AMQP would get, as 404; 0 if there is none.
	AMQPCode int
	// Message is for people.
	Message string
}

func (e *Error) Error() string {
	if e.Reason == "" {
		return fmt.Sprintf("warren: %s (%s)", e.Message, e.Code)
	}
	return fmt.Sprintf("warren: %s (%s)", e.Message, e.Reason)
}

// GRPCStatus makes the error one of gRPC, for status.Code and status.FromError.
func (e *Error) GRPCStatus() *status.Status { return status.New(e.Code, e.Message) }

// Is implements what errors.Is asks.
func (e *Error) Is(target error) bool {
	switch target {
	case ErrNotFound:
		return e.Code == codes.NotFound
	case ErrInvalid:
		return e.Code == codes.InvalidArgument
	case ErrLoginRefused:
		return e.Code == codes.Unauthenticated
	case ErrUnavailable:
		return e.Code == codes.Unavailable
	case ErrRefused:
		return e.Reason == "REFUSED" || e.Code == codes.Aborted && e.Reason == "QUEUE_DELETED"
	}
	return reasons[e.Reason] == target
}

var reasons = map[string]error{
	"UNROUTABLE": ErrUnroutable, "QUEUE_DELETED": ErrQueueDeleted, "ACCESS_REFUSED": ErrAccessRefused,
	"NOT_ALLOWED": ErrNotAllowed, "PRECONDITION_FAILED": ErrPreconditionFailed, "RESOURCE_LOCKED": ErrResourceLocked,
}

// errorDomain is the domain of the API's reasons.
const errorDomain = "warrenmq.com"

// errorOf turns what a call or a stream failed with into an *Error, or into why ctx ended.
func errorOf(ctx context.Context, err error) error {
	if err == nil {
		return nil
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if errors.Is(err, io.EOF) {
		return &Error{Code: codes.Unavailable, Message: "the node has ended the stream"}
	}
	s, ok := status.FromError(err)
	if !ok {
		return err
	}
	e := &Error{Code: s.Code(), Message: s.Message()}
	for _, d := range s.Details() {
		if info, ok := d.(*errdetails.ErrorInfo); ok && info.GetDomain() == errorDomain {
			e.Reason = info.GetReason()
			e.AMQPCode, _ = strconv.Atoi(info.GetMetadata()["amqp_code"])
		}
	}
	return e
}

// resultOf is the error that a result stands for, nil if the message is confirmed.
func resultOf(r *warrenv1.PublishResult) error {
	switch r.GetOutcome() {
	case warrenv1.PublishOutcome_PUBLISH_OUTCOME_CONFIRMED:
		return nil
	case warrenv1.PublishOutcome_PUBLISH_OUTCOME_UNROUTABLE:
		return &Error{Code: codes.FailedPrecondition, Reason: "UNROUTABLE", Message: ErrUnroutable.Error()}
	case warrenv1.PublishOutcome_PUBLISH_OUTCOME_REFUSED:
		if r.GetError() == nil { // older nodes do not say why
			return &Error{Code: codes.ResourceExhausted, Reason: "REFUSED", Message: "a queue refuses the message: it is full, or was deleted if the node is an older one"}
		}
		fallthrough
	case warrenv1.PublishOutcome_PUBLISH_OUTCOME_FAILED:
		return &Error{Code: codes.Code(r.GetError().GetCode()), Reason: r.GetError().GetReason(), Message: r.GetError().GetMessage()}
	}
	return fmt.Errorf("%w: the node says %v", ErrResultUnknown, r.GetOutcome())
}

// passing tells whether what a stream or a call failed with may be otherwise at another node or later.
func passing(err error) bool {
	e, ok := errors.AsType[*Error](err)
	if !ok {
		return false
	}
	switch e.Code {
	case codes.Unavailable, codes.Internal, codes.Unknown, codes.Aborted, codes.Canceled, codes.DeadlineExceeded:
		return true
	case codes.ResourceExhausted: // of streams or logins; without a reason it is a request that is too large, and stays so
		return e.Reason != ""
	}
	return false
}

// broken tells whether a stream ended by a fault, which may be that of what it was sent, and not by the way to the node or its end.
func broken(err error) bool {
	e, ok := errors.AsType[*Error](err)
	return ok && (e.Code == codes.Internal || e.Code == codes.Unknown)
}

// ofRequest tells whether a stream ended because of what it was sent. Otherwise the node does not take such streams, and the next one fails as well.
func ofRequest(err error) bool {
	e, ok := errors.AsType[*Error](err)
	return ok && (e.Code == codes.ResourceExhausted || e.Code == codes.InvalidArgument)
}

func invalid(format string, args ...any) error {
	return &Error{Code: codes.InvalidArgument, Reason: "INVALID_REQUEST", Message: fmt.Sprintf(format, args...)}
}
