package grpc

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"unicode/utf8"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	wire "github.com/warrenmq/warren/amqp"
	warrenv1 "github.com/warrenmq/warren/api/warren/v1"
	"github.com/warrenmq/warren/broker"
)

// errorDomain is the domain of the reasons in google.rpc.ErrorInfo.
const errorDomain = "warrenmq.com"

// Reasons beside the names of broker.Kind.
const (
	reasonInvalid     = "INVALID_REQUEST"
	reasonLogin       = "LOGIN_REFUSED"
	reasonHeldUp      = "TOO_MANY_FAILED_LOGINS"
	reasonUnroutable  = "UNROUTABLE"
	reasonRefused     = "REFUSED"
	reasonDeleted     = "QUEUE_DELETED"
	reasonTimeout     = "CONSUMER_TIMEOUT"
	reasonLeaving     = "NODE_LEAVES"
	reasonOpenTimeout = "NOT_OPENED"
	reasonTooMany     = "TOO_MANY_STREAMS"
	reasonSlow        = "SLOW_READER"
	reasonStalled     = "REQUEST_STALLED"
)

// refusal is an error for a client: a canonical code, a reason for machines and words for people.
type refusal struct {
	code   codes.Code
	reason string
	amqp   uint16 // the AMQP code that a client of AMQP would see, 0 if there is none
	text   string // UTF-8, or the answer that has it would break its stream
}

func (r *refusal) Error() string { return r.text }

// GRPCStatus implements what the gRPC library looks for.
func (r *refusal) GRPCStatus() *status.Status {
	info := &errdetails.ErrorInfo{Reason: r.reason, Domain: errorDomain}
	if r.amqp != 0 {
		info.Metadata = map[string]string{"amqp_code": strconv.Itoa(int(r.amqp))}
	}
	s := status.New(r.code, r.text)
	if with, err := s.WithDetails(info); err == nil {
		return with
	}
	return s
}

func (r *refusal) inline() *warrenv1.Error {
	return &warrenv1.Error{Code: int32(r.code), Reason: r.reason, Message: r.text}
}

func refuse(code codes.Code, reason, format string, args ...any) *refusal {
	return &refusal{code: code, reason: reason, text: brief(fmt.Sprintf(format, args...))}
}

// briefMax is how many bytes of a text are told of an error: it may quote what the client has sent, and travels as a header, of which libraries take some KiB in all.
const briefMax = 1 << 10

// brief is a text that is not too long, and UTF-8.
func brief(s string) string {
	if len(s) <= briefMax {
		return text(s)
	}
	cut := briefMax
	for cut > briefMax-utf8.UTFMax && !utf8.RuneStart(s[cut]) {
		cut--
	}
	return text(s[:cut]) + "…"
}

func invalid(format string, args ...any) *refusal {
	return refuse(codes.InvalidArgument, reasonInvalid, format, args...)
}

// kinds maps the broker's kinds of refusal.
var kinds = map[broker.Kind]refusal{
	broker.Internal:           {code: codes.Internal, reason: "INTERNAL", amqp: wire.InternalError},
	broker.NotFound:           {code: codes.NotFound, reason: "NOT_FOUND", amqp: wire.NotFound},
	broker.AccessRefused:      {code: codes.PermissionDenied, reason: "ACCESS_REFUSED", amqp: wire.AccessRefused},
	broker.PreconditionFailed: {code: codes.FailedPrecondition, reason: "PRECONDITION_FAILED", amqp: wire.PreconditionFailed},
	broker.ResourceLocked:     {code: codes.FailedPrecondition, reason: "RESOURCE_LOCKED", amqp: wire.ResourceLocked},
	broker.NotAllowed:         {code: codes.PermissionDenied, reason: "NOT_ALLOWED", amqp: wire.NotAllowed},
	broker.NotImplemented:     {code: codes.Unimplemented, reason: "NOT_IMPLEMENTED", amqp: wire.NotImplemented},
	broker.ContentTooLarge:    {code: codes.InvalidArgument, reason: "CONTENT_TOO_LARGE", amqp: wire.PreconditionFailed},
	broker.ConnectionForced:   {code: codes.Unavailable, reason: "CONNECTION_FORCED", amqp: wire.ConnectionForced},
	broker.Unavailable:        {code: codes.Unavailable, reason: "UNAVAILABLE"},
	broker.TimedOut:           {code: codes.Unavailable, reason: "UNAVAILABLE"},
}

// refusalOf turns whatever a call failed with into what the client is told. The text of an error that was not made for clients
// stays inside.
func refusalOf(err error) *refusal {
	if r, ok := errors.AsType[*refusal](err); ok {
		return r
	}
	if b, ok := errors.AsType[*broker.Error](err); ok {
		r := kinds[b.Kind]
		r.text = brief(b.Text) // it quotes names, which may be any bytes
		return &r
	}
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return refuse(codes.DeadlineExceeded, "DEADLINE_EXCEEDED", "operation timed out")
	case errors.Is(err, context.Canceled):
		return refuse(codes.Canceled, "CANCELLED", "the call was cancelled")
	}
	return refuse(codes.Internal, "INTERNAL", "internal error")
}
