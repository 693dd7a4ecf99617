package shovel

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

// letter is a message under way.
type letter struct {
	amqp.Delivery
	// returned: no queue wants it, as the destination has said.
	returned bool
	// again: it was sent before.
	again bool
	// verdict is what the destination says of it, once it has.
	verdict *amqp.DeferredConfirmation
	// until is when it may be sent again, zero: at once.
	until time.Time
	suspicion
}

// forwarder has the two connections of a worker, and what is under way between them. One that breaks does not take the other along: while the
// destination is away, the messages stay where they are, unacknowledged, so that no failure of it counts against a delivery limit at the source.
type forwarder struct {
	w        *Worker
	src, dst *link

	queue string
	// deliveries are those of the consumer; former has what is left of those of the one before, nil: nothing.
	deliveries, former <-chan amqp.Delivery
	consumer           string
	consumers          int // so far
	pacing             pacing
	// mixed is the highest tag of former consumers: up to it, messages were not taken in the order of their tags.
	mixed     uint64
	cancelled chan string

	confirms chan amqp.Confirmation
	returns  chan amqp.Return

	// sent have been published and not confirmed, in this order. waiting are to be published, the oldest first.
	sent, waiting []*letter
	// resent counts those of sent that are sent again: the order of sent is not that of the source then.
	resent int
	// suspects counts those of sent and waiting that are alone.
	suspects int
	// verdicts counts what this connection to the destination has said something of.
	verdicts int
	// again ends when the first of waiting may be sent again. retryAt is when those may that were refused last, and pause is how long after the next one.
	again   *time.Timer
	retryAt time.Time
	pause   time.Duration
	// remaining counts what is to come; -1: without end.
	remaining int
	counted   bool
}

func newForwarder(w *Worker) *forwarder {
	f := &forwarder{w: w, again: time.NewTimer(time.Hour), pause: againMin, remaining: -1}
	f.again.Stop()
	return f
}

// once connects what is not connected, and forwards until something fails. The error is never nil.
func (f *forwarder) once(ctx context.Context) error {
	if f.src != nil && f.src.ch.IsClosed() {
		f.closeSource() // it ended while the destination was away, and has taken back what is kept here
	}
	if f.dst == nil {
		if err := f.openDestination(ctx); err != nil {
			return fmt.Errorf("destination: %w", err)
		}
	}
	if f.src == nil {
		if err := f.openSource(ctx); err != nil {
			f.closeDestination()
			return fmt.Errorf("source: %w", err)
		}
	}
	f.w.enter(Running, f.reason())
	f.w.note(func(s *Status) { s.Source, s.Destination = f.src.uri.String(), f.dst.uri.String() })
	// A write may hang: it ends with the connections, some time after the shovel is to end.
	done := make(chan struct{})
	defer close(done)
	src, dst := f.src, f.dst
	defer context.AfterFunc(ctx, func() {
		t := time.NewTimer(stopTime)
		defer t.Stop()
		select {
		case <-t.C:
			_ = src.raw.Close()
			_ = dst.raw.Close()
		case <-done:
		}
	})()
	return f.forward(ctx)
}

// disconnect closes both connections. What is under way is under way no more: the source has it.
func (f *forwarder) disconnect() {
	f.closeSource()
	f.closeDestination()
	f.note()
}

func (f *forwarder) closeSource() {
	if f.src == nil {
		return
	}
	f.src.close()
	f.src, f.sent, f.waiting, f.resent, f.suspects, f.retryAt = nil, nil, nil, 0, 0, time.Time{}
	f.again.Stop()
}

// closeDestination closes the connection there. What was sent and not confirmed is sent again to the next one.
func (f *forwarder) closeDestination() {
	if f.dst == nil {
		return
	}
	f.dst.close()
	f.dst = nil
	f.waiting, f.sent, f.resent, f.retryAt = append(f.sent, f.waiting...), nil, 0, time.Time{}
	slices.SortFunc(f.waiting, func(a, b *letter) int { return cmp.Compare(a.DeliveryTag, b.DeliveryTag) })
	for _, l := range f.waiting {
		if !l.alone {
			l.until = time.Time{} // another connection may take it
		}
	}
	f.again.Stop()
	f.note()
}

var (
	errSource      = errors.New("source")
	errDestination = errors.New("destination")
	errQueueGone   = errors.New("the queue is gone")
)

// forward is the loop. What has broken is closed when it returns.
func (f *forwarder) forward(ctx context.Context) error {
	err := f.loop(ctx)
	switch {
	case errors.Is(err, errSource):
		f.disconnect() // the destination would confirm what the source has taken back
	case errors.Is(err, errDestination):
		err = f.suspect(err)
		f.closeDestination()
	}
	return err
}

func (f *forwarder) loop(ctx context.Context) error {
	if err := f.sendWaiting(); err != nil {
		return err
	}
	stopping := ctx.Done()
	var late <-chan time.Time
	for {
		f.note()
		if f.remaining == 0 && len(f.sent)+len(f.waiting) == 0 {
			return errFinished
		}
		if stopping == nil && len(f.sent) == 0 {
			return ctx.Err()
		}
		take, first := f.deliveries, f.former
		if stopping == nil || !f.room() {
			take, first = nil, nil
		} else if first != nil {
			take = nil // the order stays that of the source
		}
		select {
		case d, ok := <-take:
			if !ok {
				return f.sourceEnded()
			}
			if err := f.take(d); err != nil {
				return err
			}
		case d, ok := <-first:
			if !ok {
				f.former = nil
				continue
			}
			f.mixed = max(f.mixed, d.DeliveryTag)
			if err := f.take(d); err != nil {
				return err
			}
		case _, ok := <-f.confirms:
			if !ok {
				return f.destinationEnded()
			}
			if err := f.confirmed(); err != nil {
				return err
			}
		case r, ok := <-f.returns:
			if !ok {
				return f.destinationEnded()
			}
			if err := f.mark(&r); err != nil {
				return err
			}
		case <-f.again.C:
			if err := f.sendWaiting(); err != nil {
				return err
			}
		case <-f.dst.turned:
			if err := f.sendWaiting(); err != nil {
				return err
			}
		case _, ok := <-f.cancelled:
			if !ok {
				return f.sourceEnded()
			}
			return broken(errSource, errQueueGone)
		case e := <-f.src.closed:
			return broken(errSource, reason(e))
		case e := <-f.dst.closed:
			return broken(errDestination, reason(e))
		case <-f.w.restart:
			return errRestart
		case <-stopping:
			stopping = nil
			t := time.NewTimer(stopTime)
			defer t.Stop()
			late = t.C
		case <-late:
			return ctx.Err()
		}
	}
}

// take forwards a message of the source.
func (f *forwarder) take(d amqp.Delivery) error {
	if err := f.pace(&d); err != nil {
		return err
	}
	return f.send(&letter{Delivery: d})
}

// room tells whether another message may be taken.
func (f *forwarder) room() bool {
	if f.dst.blocked.Load() || f.careful() {
		return false
	}
	under := len(f.sent) + len(f.waiting)
	return under < f.w.def.Source.Prefetch && (f.remaining < 0 || under < f.remaining)
}

// sourceEnded says why no more messages come: the broker has cancelled the consumer, or the channel has ended.
func (f *forwarder) sourceEnded() error {
	select {
	case _, ok := <-f.cancelled:
		if ok {
			return broken(errSource, errQueueGone)
		}
		return broken(errSource, reason(<-f.src.closed))
	case e := <-f.src.closed:
		return broken(errSource, reason(e))
	}
}

func (f *forwarder) destinationEnded() error {
	return broken(errDestination, reason(<-f.dst.closed))
}

// send publishes a message.
func (f *forwarder) send(l *letter) error {
	exchange, key, message := f.w.outgoing(&l.Delivery, f.src, f.dst)
	mandatory := f.w.def.AckMode == OnConfirm
	f.dst.raw.published.Add(1)
	var err error
	if l.verdict, err = f.dst.ch.PublishWithDeferredConfirm(exchange, key, mandatory, false, message); err != nil {
		f.waiting = append(f.waiting, l)
		return broken(errDestination, f.dst.why(err))
	}
	if mandatory {
		if f.sent = append(f.sent, l); l.again {
			f.resent++
		}
		return nil
	}
	if f.w.def.AckMode == OnPublish {
		if err := f.src.ch.Ack(l.DeliveryTag, false); err != nil {
			return broken(errSource, err)
		}
	}
	f.done(l)
	return nil
}

// sendWaiting publishes what was refused, or not confirmed by a former connection, as far as its time has come.
func (f *forwarder) sendWaiting() error {
	if f.dst.blocked.Load() {
		return nil // until it turns
	}
	now, careful := time.Now(), f.careful()
	list := f.waiting
	f.waiting = nil
	for i, l := range list {
		if now.Before(l.until) || careful && (!l.alone || len(f.sent) > 0) {
			f.waiting = append(f.waiting, l)
			continue
		}
		l.returned, l.again = false, true
		if err := f.send(l); err != nil {
			f.waiting = append(f.waiting, list[i+1:]...)
			return err
		}
	}
	f.wake(now)
	return nil
}

// wake sets the timer for the first of those whose time has not come.
func (f *forwarder) wake(now time.Time) {
	var first time.Time
	for _, l := range f.waiting {
		if now.Before(l.until) && (first.IsZero() || l.until.Before(first)) {
			first = l.until
		}
	}
	if first.IsZero() {
		f.again.Stop()
	} else {
		f.again.Reset(first.Sub(now))
	}
}

// confirmed takes what the destination says of the oldest message that was sent, and of those behind it that it has spoken of already. The
// library gives confirms in the order of the messages. What is in them counts for nothing: a message that was refused ahead of its turn is
// confirmed there by a later ack of several, although the broker means the others by that. The verdict is the broker's.
func (f *forwarder) confirmed() error {
	var last *letter // the end of a row of messages that one ack stands for
	for more := true; more; {
		if err := f.drainReturns(); err != nil {
			return err
		}
		l, err := f.pop()
		if err != nil {
			return err
		}
		if !l.verdict.Acked() || l.returned {
			f.refused(l)
		} else {
			f.done(l)
			if f.inOrder(l) {
				last = l
			} else {
				if err := errors.Join(f.ack(last, true), f.ack(l, false)); err != nil {
					return err
				}
				last = nil
			}
		}
		select {
		case _, more = <-f.confirms:
		default:
			more = false
		}
	}
	if err := f.ack(last, true); err != nil {
		return err
	}
	if len(f.sent) == 0 && len(f.waiting) > 0 {
		return f.sendWaiting() // one that has to be alone, or what waited behind it
	}
	return nil
}

// inOrder tells whether all messages of the source before this one have been acknowledged, but for those that were confirmed just now, also those that
// have not been taken yet.
func (f *forwarder) inOrder(l *letter) bool {
	return !l.again && f.resent == 0 && len(f.waiting) == 0 && f.former == nil && l.DeliveryTag > f.mixed
}

// pop takes the oldest message that was sent and not confirmed.
func (f *forwarder) pop() (*letter, error) {
	if len(f.sent) == 0 {
		return nil, broken(errDestination, errors.New("it confirms what was not sent"))
	}
	l := f.sent[0]
	f.sent[0] = nil
	f.sent = f.sent[1:]
	if l.again {
		f.resent--
	}
	f.acquit(l)
	f.verdicts++
	return l, nil
}

func (f *forwarder) ack(l *letter, all bool) error {
	if l == nil {
		return nil
	}
	if err := f.src.ch.Ack(l.DeliveryTag, all); err != nil {
		return broken(errSource, err)
	}
	return nil
}

// done counts a message that has arrived.
func (f *forwarder) done(l *letter) {
	f.src.raw.release(len(l.Body))
	f.w.note(func(s *Status) { s.Forwarded++ })
	f.pause = againMin
	if f.remaining > 0 {
		f.remaining--
	}
}

// refused keeps a message for another attempt.
func (f *forwarder) refused(l *letter) {
	f.waiting = append(f.waiting, l)
	why := "the destination has refused a message (basic.nack)"
	if l.returned {
		why = "no queue wants a message: " + l.RoutingKey
	}
	f.w.note(func(s *Status) { s.Reason = why })
	now := time.Now()
	if !now.Before(f.retryAt) {
		f.retryAt = now.Add(f.pause)
		f.pause = min(2*f.pause, againMax)
	}
	l.until = f.retryAt
	f.wake(now)
}

// note writes what is under way into the status.
func (f *forwarder) note() {
	f.w.note(func(s *Status) {
		s.Pending, s.Waiting, s.Remaining = len(f.sent)+len(f.waiting), len(f.waiting), f.remaining
		if s.State == Running && len(f.waiting) == 0 {
			s.Reason = ""
		}
	})
}
