package storm

import (
	"context"
	"fmt"
	"time"

	warrenv1 "github.com/warrenmq/warren/api/warren/v1"
)

// consumes is a consumer as it is meant, whose end is not.
func (c *caller) consumes(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, c.d.between(0, c.d.between(100*time.Millisecond, 8*time.Second)))
	defer cancel()
	const name = "Consume, well"
	stream, err := warrenv1.NewConsumeServiceClient(c.conn).Consume(ctx)
	if err != nil {
		return c.ended(name, err)
	}
	queue := c.d.lasting()
	c.trace.say("> consumes %s", queue)
	open := &warrenv1.ConsumeOpen{Queue: queue, Prefetch: uint32(c.d.IntN(5)), AutoAck: c.d.chance(.2), Exclusive: c.d.chance(.03), Priority: int32(c.d.IntN(3))}
	if c.d.chance(.1) {
		open.Queue, open.Declare = "", &warrenv1.QueueDeclaration{Exclusive: true}
	}
	err = stream.Send(&warrenv1.ConsumeRequest{Open: open, Credit: uint32(c.d.IntN(30))})
	next, last := uint64(1), uint64(0)
	for err == nil {
		var got *warrenv1.ConsumeResponse
		if got, err = stream.Recv(); err != nil {
			break
		}
		for _, d := range got.GetDeliveries() {
			last = d.GetNumber()
			c.w.answered("grpc delivered")
		}
		if c.d.chance(.1) {
			time.Sleep(c.d.between(0, time.Second))
		}
		req := &warrenv1.ConsumeRequest{Credit: uint32(c.d.IntN(4)), Cancel: c.d.chance(.02)}
		for next <= last && c.d.chance(.8) {
			to := min(last, next+uint64(c.d.IntN(4)))
			req.Settlements = append(req.Settlements, &warrenv1.Settlement{First: next, Last: to, Kind: warrenv1.SettleKind(1 + c.d.IntN(5))})
			next = to + 1
		}
		if err = stream.Send(req); err == nil && c.d.chance(.02) {
			_ = stream.CloseSend()
			for err == nil {
				_, err = stream.Recv()
			}
		}
	}
	return c.ended(name, err)
}

func (c *caller) publication() *warrenv1.Publication {
	p := &warrenv1.Publication{Message: &warrenv1.Message{RoutingKey: c.d.lasting(), Body: c.d.bytes(100)}, Mandatory: c.d.chance(.2)}
	switch {
	case c.d.chance(.2):
		p.Message.Exchange, p.Message.RoutingKey = pick(c.d, exchanges...).name, "a.b"
	case c.d.chance(.1):
		p.DeduplicationId = fmt.Sprint(c.d.IntN(9))
	case c.d.chance(.03):
		p.Message.Body = make([]byte, 300_000)
	}
	return p
}

// publishes is a stream of messages, of whose results not all are read.
func (c *caller) publishes(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, c.d.between(0, c.d.between(100*time.Millisecond, 8*time.Second)))
	defer cancel()
	const name = "PublishStream, well"
	stream, err := warrenv1.NewPublishServiceClient(c.conn).PublishStream(ctx)
	if err != nil {
		return c.ended(name, err)
	}
	c.trace.say("> publishes a stream")
	err = stream.Send(&warrenv1.PublishStreamRequest{Open: &warrenv1.PublishOpen{}})
	unread := c.d.chance(.1)
	for err == nil && c.d.chance(.97) {
		req := &warrenv1.PublishStreamRequest{}
		for range 1 + c.d.IntN(5) {
			req.Publications = append(req.Publications, c.publication())
		}
		if err = stream.Send(req); err == nil && !unread {
			_, err = stream.Recv()
		}
	}
	if err == nil && c.d.chance(.5) {
		_ = stream.CloseSend()
		for err == nil {
			_, err = stream.Recv()
		}
	}
	return c.ended(name, err)
}

// delays publishes a message for later and may take it back.
func (c *caller) delays(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, c.d.between(0, 3*time.Second))
	defer cancel()
	client := warrenv1.NewPublishServiceClient(c.conn)
	p := c.publication()
	p.Message.Exchange = "x-delayed"
	p.Message.Properties = &warrenv1.Properties{Headers: &warrenv1.Table{Fields: map[string]*warrenv1.Value{
		"x-delay": {Kind: &warrenv1.Value_Int64Value{Int64Value: c.d.Int64N(2000)}},
	}}}
	c.trace.say("> publishes for later")
	got, err := client.Publish(ctx, &warrenv1.PublishRequest{Publication: p, Cancellable: true})
	if err == nil {
		time.Sleep(c.d.between(0, time.Second))
		handle := got.GetHandle()
		if n := len(handle); n > 0 && c.d.chance(.1) {
			handle[c.d.IntN(n)]++
		}
		c.w.answered("grpc publishes a message that it may cancel")
		_, err = client.CancelDelayed(ctx, &warrenv1.CancelDelayedRequest{Handle: handle})
	}
	return c.ended("CancelDelayed, well", err)
}
