package amqp

import (
	"context"
	"errors"
	"fmt"
	"testing"

	wire "github.com/warrenmq/warren/amqp"
	"github.com/warrenmq/warren/broker"
)

func TestProtocolError(t *testing.T) {
	for _, tc := range []struct {
		err  error
		id   wire.MethodID
		code uint16
		text string
	}{
		{broker.Errorf(broker.NotFound, "x"), wire.MethodQueueBind, 404, "NOT_FOUND - x"},
		{broker.Errorf(broker.AccessRefused, "x"), wire.MethodQueueBind, 403, "ACCESS_REFUSED - x"},
		{broker.Errorf(broker.PreconditionFailed, "x"), wire.MethodQueueBind, 406, "PRECONDITION_FAILED - x"},
		{broker.Errorf(broker.ContentTooLarge, "x"), wire.MethodBasicPublish, 406, "PRECONDITION_FAILED - x"},
		{broker.Errorf(broker.ResourceLocked, "x"), wire.MethodQueueBind, 405, "RESOURCE_LOCKED - x"},
		{broker.Errorf(broker.NotAllowed, "x"), wire.MethodConnectionOpen, 530, "NOT_ALLOWED - x"},
		{broker.Errorf(broker.NotImplemented, "x"), wire.MethodBasicGet, 540, "NOT_IMPLEMENTED - x"},
		{broker.Errorf(broker.ConnectionForced, "x"), 0, 320, "CONNECTION_FORCED - x"},
		{broker.Errorf(broker.Unavailable, "x"), wire.MethodQueueDeclare, 404, "NOT_FOUND - x"},
		{broker.Errorf(broker.Unavailable, "x"), wire.MethodBasicConsume, 404, "NOT_FOUND - x"},
		{broker.Errorf(broker.Unavailable, "x"), wire.MethodBasicGet, 404, "NOT_FOUND - x"},
		{broker.Errorf(broker.Unavailable, "x"), wire.MethodExchangeDeclare, 541, "INTERNAL_ERROR - x"},
		{broker.Errorf(broker.TimedOut, "x"), wire.MethodQueueDeclare, 541, "INTERNAL_ERROR - x"},
		{broker.Errorf(broker.TimedOut, "x"), wire.MethodQueueBind, 541, "INTERNAL_ERROR - x"},
		{broker.Errorf(broker.Internal, "x"), wire.MethodQueueDeclare, 541, "INTERNAL_ERROR - x"},
		{fmt.Errorf("wrapped: %w", broker.Errorf(broker.NotFound, "x")), wire.MethodQueueBind, 404, "NOT_FOUND - x"},
		{context.DeadlineExceeded, wire.MethodQueueBind, 541, "INTERNAL_ERROR - operation timed out"},
		{errors.New("secret detail"), wire.MethodQueueBind, 541, "INTERNAL_ERROR - internal error"},
		{&wire.Error{Code: 406, Text: "x"}, wire.MethodQueueBind, 406, "PRECONDITION_FAILED - x"},
	} {
		e := protocolError(tc.err, tc.id)
		if e.Code != tc.code || e.ReplyText() != tc.text || wire.NewMethodID(e.ClassID, e.MethodID) != tc.id {
			t.Errorf("%v in %v: %v", tc.err, tc.id, e)
		}
	}
}
