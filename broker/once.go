package broker

import (
	"context"
	"time"
)

// PublishOnce publishes one message for a user who has no connection: mandatory and
// with a confirm, as RabbitMQ's management API does. routed false means that no queue took it,
// a refusal that at least one did not. The limits of the vhost and the user hold for it. Errors are
// *Error; with one of ctx the message may or may not be stored.
func (b *Broker) PublishOnce(ctx context.Context, u User, vhost string, p Publish) (routed bool, confirm Confirm, err error) {
	c, err := b.Open(ctx, u, vhost, ConnInfo{Protocol: "HTTP", Kick: func(*Error) {}})
	if err != nil {
		return false, confirm, err
	}
	defer c.Close(context.WithoutCancel(ctx))
	sink := onceSink{confirmed: make(chan Confirm, 1), failed: make(chan *Error, 1)}
	ch, err := c.OpenChannel(ctx, &sink)
	if err != nil {
		return false, confirm, err
	}
	p.Tag, p.Mandatory, p.Immediate = 1, true, false
	if routed, err = ch.Publish(ctx, &p); err != nil || !routed {
		return false, confirm, err
	}
	ch.Flush()
	select {
	case confirm = <-sink.confirmed:
		return true, confirm, nil
	case err := <-sink.failed:
		return true, confirm, err
	case <-ctx.Done():
		return true, confirm, Errorf(Unavailable, "the message was not confirmed in time")
	}
}

// onceSink is the channel of one publish.
type onceSink struct {
	confirmed chan Confirm
	failed    chan *Error
}

func (s *onceSink) Confirm(results []Confirm) {
	select {
	case s.confirmed <- results[0]:
	default:
	}
}

func (s *onceSink) Failed(err *Error) {
	select {
	case s.failed <- err:
	default:
	}
}

func (s *onceSink) Deliver(*Delivery)                 {}
func (s *onceSink) Cancelled(*Consumer)               {}
func (s *onceSink) TimedOut(*Consumer, time.Duration) {}
