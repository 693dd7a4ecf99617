package shovel

import (
	"context"
	"errors"
	"fmt"

	amqp "github.com/rabbitmq/amqp091-go"
)

// openSource connects to the source and begins to consume.
func (f *forwarder) openSource(ctx context.Context) error {
	s := &f.w.def.Source
	l, err := f.w.connect(ctx, s.URIs, "source", f.w.cfg.Budget)
	if err != nil {
		return err
	}
	// The library has no contexts: what hangs ends with the connection.
	stop := context.AfterFunc(ctx, func() { _ = l.raw.Close() })
	defer stop()
	if err := f.consume(l, s); err != nil {
		l.close()
		return errors.Join(err, ctx.Err())
	}
	f.src = l
	return nil
}

func (f *forwarder) consume(l *link, s *Source) error {
	queue := s.Queue
	var err error
	if s.Exchange != "" {
		queue, err = ownQueue(l.ch, s)
	} else if !s.Predeclared {
		err = ensureQueue(l, queue, s.QueueArgs)
	}
	if err != nil {
		return err
	}
	if !f.counted {
		if f.remaining, err = toCome(l, s); err != nil {
			return err
		}
		f.counted = true
	}
	f.queue, f.former, f.mixed, f.pacing = queue, nil, 0, pacing{}
	f.cancelled = l.ch.NotifyCancel(make(chan string, 4))
	return f.subscribe(l, f.w.first())
}

// subscribe begins to consume with a prefetch.
func (f *forwarder) subscribe(l *link, prefetch int) error {
	noAck := f.w.def.AckMode == NoAck
	if !noAck {
		if err := l.ch.Qos(prefetch, 0, false); err != nil {
			return err
		}
	}
	f.pacing = pacing{current: prefetch}
	f.consumers++
	f.consumer = fmt.Sprintf("shovel-%s-%d", f.w.def.Name, f.consumers)
	if len(f.consumer) > shortMax {
		f.consumer = fmt.Sprintf("shovel-%d", f.consumers)
	}
	var err error
	f.deliveries, err = l.ch.Consume(f.queue, f.consumer, noAck, false, false, false, f.w.def.Source.ConsumerArgs)
	return err
}

// ownQueue makes the queue through which the messages of an exchange come.
func ownQueue(ch *amqp.Channel, s *Source) (string, error) {
	q, err := ch.QueueDeclare("", false, false, true, false, s.QueueArgs)
	if err != nil {
		return "", err
	}
	return q.Name, ch.QueueBind(q.Name, s.Key, s.Exchange, false, nil)
}

// toCome is how many messages there are to be forwarded, -1 for no end of them.
func toCome(l *link, s *Source) (int, error) {
	switch s.DeleteAfter {
	case Never:
		return -1, nil
	case QueueLength:
		q, err := l.ch.QueueDeclarePassive(s.Queue, false, false, false, false, nil)
		return q.Messages, err
	}
	return s.DeleteAfter, nil
}

// ensureQueue declares a durable queue if there is none of that name, whatever it is like.
func ensureQueue(l *link, name string, args amqp.Table) error {
	ch, err := l.conn.Channel() // a refusal closes it
	if err != nil {
		return err
	}
	defer ch.Close() //nolint:errcheck // it is closed already, or was of use
	_, err = ch.QueueDeclarePassive(name, false, false, false, false, nil)
	if e, ok := errors.AsType[*amqp.Error](err); !ok || e.Code != amqp.NotFound {
		return err
	}
	_, err = l.ch.QueueDeclare(name, true, false, false, false, args)
	return err
}

// awaitExchange fails if there is no exchange of that name: each message would close the channel. What else is wrong with it shows then.
func awaitExchange(l *link, name string) error {
	ch, err := l.conn.Channel() // a refusal closes it
	if err != nil {
		return err
	}
	defer ch.Close() //nolint:errcheck // it is closed already, or was of use
	err = ch.ExchangeDeclarePassive(name, amqp.ExchangeDirect, true, false, false, false, nil)
	if e, ok := errors.AsType[*amqp.Error](err); ok && e.Code == amqp.NotFound {
		return err
	}
	return nil
}

// openDestination connects to the destination.
func (f *forwarder) openDestination(ctx context.Context) error {
	d := &f.w.def.Destination
	l, err := f.w.connect(ctx, d.URIs, "destination", 0)
	if err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() { _ = l.raw.Close() })
	defer stop()
	switch {
	case d.Queue != "" && !d.Predeclared:
		err = ensureQueue(l, d.Queue, d.QueueArgs)
	case d.Exchange != nil && *d.Exchange != "":
		err = awaitExchange(l, *d.Exchange)
	}
	if err == nil && f.w.def.AckMode == OnConfirm {
		err = l.ch.Confirm(false)
	}
	if err != nil {
		l.close()
		return errors.Join(err, ctx.Err())
	}
	// As much as is under way at most: the library's reader, which also reads the confirms, never waits for room in them.
	most := f.w.def.Source.Prefetch + 1
	f.confirms = l.ch.NotifyPublish(make(chan amqp.Confirmation, most))
	f.returns = l.ch.NotifyReturn(make(chan amqp.Return, most))
	f.dst, f.verdicts = l, 0
	f.watchBlocked(l)
	return nil
}

// watchBlocked notes when the destination takes nothing: the loop may hang in a write then. The library closes the channel with the connection.
func (f *forwarder) watchBlocked(l *link) {
	blocked := l.conn.NotifyBlocked(make(chan amqp.Blocking))
	go func() {
		for b := range blocked {
			l.blocked.Store(b.Active)
			f.w.note(func(s *Status) { s.Blocked = b.Active })
			select {
			case l.turned <- struct{}{}:
			default: // the loop has not seen the last one
			}
		}
	}()
}

func broken(which error, e error) error { return fmt.Errorf("%w: %w", which, e) }
