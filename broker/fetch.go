package broker

import (
	"context"

	"github.com/warrenmq/warren/amqp"
	"github.com/warrenmq/warren/dlx"
	"github.com/warrenmq/warren/fsm"
)

// Fetch says which messages to take from a queue, and what becomes of them.
type Fetch struct {
	// Count is how many to take at most.
	Count int
	// Truncate is how many bytes of a body to keep; negative: all.
	Truncate int
	// BytesMax bounds what the answer holds: what is ready behind that stays where it is. The first message is taken whatever
	// its size.
	BytesMax int
	// End is how the messages end once all are there.
	End SettleKind
	// Detail says why, of a Discard, "" for nothing.
	Detail string
}

// Fetched is a message that was taken.
type Fetched struct {
	Exchange, Key string
	Redelivered   bool
	Remaining     uint32 // ready ones behind it
	// Acquired and Failed are as in a Delivery.
	Acquired, Failed uint32
	Properties       amqp.RawProperties
	Body             []byte
	BodyBytes        int // of the whole body
}

// messageBytes is about what a message costs in an answer beside its body and properties.
const messageBytes = 512

// FetchOnce takes messages from the head of a queue for a user who has no connection. They are settled when the last one is
// there, so that none comes twice; when the node dies before that they go back. Errors are *Error; with one every message
// is in the queue, or goes back.
func (b *Broker) FetchOnce(ctx context.Context, u User, vhost, name string, f Fetch) (list []Fetched, err error) {
	err = b.withConn(ctx, u, vhost, func(c *Conn) error {
		sink := onceSink{confirmed: make(chan Confirm, 1), failed: make(chan *Error, 1)}
		ch, err := c.OpenChannel(ctx, &sink)
		if err != nil {
			return err
		}
		var held []*Delivery
		for room := f.BytesMax; len(held) < f.Count && (room > 0 || len(held) == 0); {
			d, remaining, err := ch.Get(ctx, name, false)
			if err != nil {
				ch.Settle(fsm.RequeueCounted, held) // nobody has seen them
				return err
			}
			if d == nil {
				break
			}
			held = append(held, d)
			m := Fetched{
				Exchange: d.Exchange, Key: d.Key, Redelivered: d.Redelivered, Remaining: remaining, Acquired: d.Acquired, Failed: d.Failed,
				Properties: d.PropertiesWithCounts(), Body: d.Body, BodyBytes: len(d.Body),
			}
			if f.Truncate >= 0 && len(m.Body) > f.Truncate {
				m.Body = append([]byte(nil), m.Body[:f.Truncate]...)
				d.Body = nil
			}
			list = append(list, m)
			room -= len(m.Body) + len(m.Properties) + messageBytes
		}
		if f.Detail == "" {
			ch.Settle(f.End, held)
		} else if err := ch.Reject(f.Detail, held); err != nil {
			return err // they go back with the channel
		}
		ch.Flush()
		if q, err := c.find(ctx, name); err == nil {
			_, _ = b.status(ctx, q, false) // the leader answers behind the settlements; they count without its answer too
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return list, nil
}

// PropertiesWithCounts are the properties as clients get them: with the counts of earlier attempts in the headers.
func (d *Delivery) PropertiesWithCounts() amqp.RawProperties {
	if d.Acquired == 0 && d.Failed == 0 {
		return d.Properties
	}
	raw, err := amqp.Rewrite(d.Properties, func(p *amqp.Properties) {
		headers, _ := p.Headers()
		headers = headers.Clone()
		if d.Failed > 0 {
			headers.Set("x-delivery-count", int64(d.Failed))
		}
		if d.Acquired > 0 {
			headers.Set("x-acquired-count", int64(d.Acquired))
		}
		p.SetHeaders(headers)
	})
	if err != nil {
		return d.Properties // they were validated when published
	}
	return raw
}

// Fit makes the properties as clients get them no larger than size bytes, for a client that can take no more, by leaving out what does not
// fit of their deaths, or else the counts. The message itself keeps all. false: they are larger by themselves.
func (d *Delivery) Fit(size int) bool {
	counts := len(d.PropertiesWithCounts()) - len(d.Properties)
	short, ok := dlx.Shorten(d.Properties, size-counts)
	if !ok && counts > 0 {
		d.Acquired, d.Failed = 0, 0
		short, ok = dlx.Shorten(d.Properties, size)
	}
	if ok {
		d.Properties = short
	}
	return ok
}
