package client

import (
	"context"
	"time"

	"google.golang.org/grpc"

	warrenv1 "github.com/warrenmq/warren/api/warren/v1"
)

// Handle names a message that a delayed exchange keeps back. It has no meaning but for CancelDelayed, and may be stored: it is good for the life of the message.
type Handle []byte

// PublishDelayed publishes a message to a delayed exchange (type x-delayed-message), which keeps it back for the delay, by the millisecond, and
// returns what CancelDelayed takes it back by until then. ErrPreconditionFailed: it would go anywhere else than to one such exchange, or not wait.
//
// It is not tried again: when the answer is lost, with ErrUnavailable or the end of ctx, the message may be there, and has no handle.
func (c *Client) PublishDelayed(ctx context.Context, m *Message, delay time.Duration) (_ Handle, err error) {
	if delay <= 0 {
		return nil, invalid("a delay of %v", delay)
	}
	if err := c.checkBody(m.Body); err != nil {
		return nil, err
	}
	m, span := c.tracer.publish(ctx, m)
	outcome := "failed"
	defer func() { span.end(outcome, err) }()
	late := *m
	late.Headers = Table{"x-delay": int64(millis(delay))}
	for name, v := range m.Headers {
		if name != "x-delay" {
			late.Headers[name] = v
		}
	}
	p, err := late.publication()
	if err != nil {
		return nil, err
	}
	resp, err := warrenv1.NewPublishServiceClient(c.Conn()).Publish(ctx, &warrenv1.PublishRequest{Vhost: c.cfg.VHost, Publication: p, Cancellable: true})
	if err != nil {
		return nil, errorOf(ctx, err)
	}
	outcome = "confirmed"
	return resp.GetHandle(), nil
}

// CancelDelayed takes a message back: true says that it goes nowhere, false that it has come due and goes on. One of the two is true of each
// message, whatever fails meanwhile. It is tried again at other nodes while none can do it, and says the same each time; after an error it may have been
// taken back or not, and asking again tells. ErrNotFound: the exchange has been deleted, with its messages.
func (c *Client) CancelDelayed(ctx context.Context, h Handle) (cancelled bool, err error) {
	err = c.call(ctx, func(conn *grpc.ClientConn) error {
		resp, err := warrenv1.NewPublishServiceClient(conn).CancelDelayed(ctx, &warrenv1.CancelDelayedRequest{Vhost: c.cfg.VHost, Handle: h})
		cancelled = resp.GetCancelled()
		return err
	})
	return cancelled && err == nil, err
}
