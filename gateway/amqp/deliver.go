package amqp

import (
	"slices"
	"time"

	wire "github.com/warrenmq/warren/amqp"
	"github.com/warrenmq/warren/broker"
)

// Deliver implements Sink.
func (ch *channel) Deliver(handle Consumer, d *broker.Delivery) {
	defer ch.c.srv.cfg.Guard.Keep(work, "gateway/amqp.(*channel).Deliver", ch.fault)
	ch.mu.Lock()
	defer ch.mu.Unlock()
	cons := ch.consumerOf(handle)
	switch {
	case ch.silent:
		d.Withhold() // the broker takes it back when the channel is closed there; its consumer may have more until then
		return
	case cons == nil:
		broker.GiveBack(d)
		return
	}
	if cons.handle == nil {
		cons.handle = handle
	}
	if ch.starting != nil && ch.starting.queue == cons.queue {
		ch.early = append(ch.early, gatedDelivery{cons, d})
		return
	}
	ch.deliverLocked(cons, d)
}

// startedLocked lets go what came while a consumer was asked for, and gives back what came for one that has ended.
func (ch *channel) startedLocked() {
	early := ch.early
	ch.starting, ch.early = nil, nil
	var lost []*broker.Delivery
	for _, g := range early {
		if ch.consumers[g.cons.tag] == g.cons {
			ch.deliverLocked(g.cons, g.d)
		} else {
			lost = append(lost, g.d)
		}
	}
	broker.GiveBack(lost...)
}

// consumerOf is the running consumer of a handle; called with mu held. A late event of an ended one must not hit
// another that has its tag. Of one that is starting the handle is not known yet.
func (ch *channel) consumerOf(handle Consumer) *consumer {
	cons := ch.consumers[handle.Tag()]
	if cons == nil || cons.started && cons.handle != handle {
		return nil
	}
	return cons
}

// deliverLocked sends d, or keeps it while the channel-wide limit is reached, or settlements are not heard.
func (ch *channel) deliverLocked(cons *consumer, d *broker.Delivery) {
	if !cons.noAck && (len(ch.gated) > 0 || !ch.gateOpen()) {
		if cons.ending {
			broker.GiveBack(d)
			return
		}
		d.Withhold()
		ch.gated = append(ch.gated, gatedDelivery{cons, d})
		ch.c.srv.cfg.Unread.Add(unreadSize(d))
		return
	}
	ch.sendLocked(cons, d)
}

func (ch *channel) sendLocked(cons *consumer, d *broker.Delivery) {
	if ch.silent {
		d.Withhold() // a message before it has closed the channel
		return
	}
	if err := ch.fits(d); err != nil {
		if ch.failedLocked(protocolError(err, 0)) { // it counts as an attempt, which a delivery limit ends
			ch.c.attend()
		}
		return
	}
	if ch.fetching == cons.queue && (ch.sent == nil || d.Behind(ch.sent)) {
		ch.sent = d
	}
	ch.lastTag++
	if !cons.noAck {
		ch.unacked.Push(ch.lastTag, d)
	}
	ch.c.out.content(outContent{
		channel: ch.num, redelivered: d.Redelivered, tag: ch.lastTag, consumer: cons, delivery: d,
	})
}

// fits sees to it that the client can take a message: its header is one frame, and the message may be of a client with larger ones, or of another
// protocol, or have died, or been tried, so often that what tells of that does not fit: less is said.
func (ch *channel) fits(d *broker.Delivery) error {
	frameMax := ch.c.frameMax
	if wire.ContentHeaderFits(d.Properties, frameMax/2) { // what is added to it has much less
		return nil
	}
	if d.Fit(wire.ContentHeaderRoom(frameMax)) {
		return nil
	}
	return broker.Errorf(broker.PreconditionFailed, "message with a header of %d bytes does not fit frame_max %d", len(d.Properties), frameMax)
}

// Cancelled implements Sink.
func (ch *channel) Cancelled(handle Consumer) {
	defer ch.c.srv.cfg.Guard.Keep(work, "gateway/amqp.(*channel).Cancelled", ch.fault)
	ch.mu.Lock()
	defer ch.mu.Unlock()
	cons := ch.consumerOf(handle)
	if ch.silent || cons == nil {
		return
	}
	cons.cancelled = true
	switch {
	case ch.deleting:
		ch.ended = append(ch.ended, cons)
	case cons.started:
		ch.cancelledLocked(cons)
	}
}

// TimedOut implements Sink. A client that does not understand the end of a consumer loses
// its channel.
func (ch *channel) TimedOut(handle Consumer, after time.Duration) {
	defer ch.c.srv.cfg.Guard.Keep(work, "gateway/amqp.(*channel).TimedOut", ch.fault)
	ch.mu.Lock()
	if handle != nil {
		cons := ch.consumers[handle.Tag()]
		if ch.silent || cons == nil || cons.handle != handle {
			ch.mu.Unlock()
			return // it ended meanwhile
		}
		if ch.c.cancelNotify {
			if cons.cancelled = true; cons.started {
				ch.cancelledLocked(cons)
			}
			ch.mu.Unlock()
			return
		}
	}
	ch.mu.Unlock()
	ch.Failed(broker.Errorf(broker.PreconditionFailed, "%s", broker.TimeoutText(ch.num, after)))
}

// whileDeleting runs a queue.delete and its answer before anybody is told that
// consumers ended with the queue.
func (ch *channel) whileDeleting(f func() error) error {
	ch.mu.Lock()
	ch.deleting = true
	ch.mu.Unlock()
	err := f()
	ch.mu.Lock()
	defer ch.mu.Unlock()
	ch.deleting = false
	for _, cons := range ch.ended {
		if !ch.silent && ch.consumers[cons.tag] == cons {
			ch.cancelledLocked(cons)
		}
	}
	ch.ended = nil
	return err
}

// cancelledLocked forgets a consumer that the broker ended and tells the client
// if it understands.
func (ch *channel) cancelledLocked(cons *consumer) {
	delete(ch.consumers, cons.tag)
	ch.ungate(cons)
	if ch.c.cancelNotify {
		ch.replyLocked(&wire.BasicCancel{ConsumerTag: cons.tag, NoWait: true})
	}
}

// gatedDelivery waits for the channel-wide limit, or until the server is not quiet any more.
type gatedDelivery struct {
	cons *consumer
	d    *broker.Delivery
}

// holding is the number of deliveries that count against the channel-wide limit.
// What was fetched by get does not, as in RabbitMQ; what a transaction settles does until
// its commit.
func (ch *channel) holding() int { return ch.unacked.Len() + ch.tx.settled() - ch.fetched.Len() }

// setLimit changes the channel-wide limit; 0 lifts it. It is one for the running consumers, too.
func (ch *channel) setLimit(n uint16) {
	ch.mu.Lock()
	ch.limit = n
	ch.openGate()
	surplus := ch.surplus()
	handles := make([]Consumer, 0, len(ch.consumers))
	for _, cons := range ch.consumers {
		handles = append(handles, cons.handle)
	}
	ch.mu.Unlock()
	for _, handle := range handles {
		handle.SetLimit(n)
	}
	ch.broker.GiveBack(surplus) // behind it, or it would come again
}

// surplus takes out of the gate what waits for a consumer beyond the limit, which was higher when it came: others may
// have it. It is called with mu held.
func (ch *channel) surplus() (ds []*broker.Delivery) {
	if ch.limit == 0 {
		return nil
	}
	waiting := map[*consumer]int{}
	ch.gated = slices.DeleteFunc(ch.gated, func(g gatedDelivery) bool {
		waiting[g.cons]++
		if waiting[g.cons] <= int(ch.limit) {
			return false
		}
		ch.c.srv.cfg.Unread.Add(-unreadSize(g.d))
		ds = append(ds, g.d)
		return true
	})
	return ds
}

// releaseGate sends gated deliveries in the place of settled ones; called with mu
// held.
func (ch *channel) releaseGate(settled []*broker.Delivery) {
	if len(ch.gated) > 0 && len(settled) > 0 {
		ch.openGate()
	}
}

// ungate takes back what waits for a consumer; called with mu held.
func (ch *channel) ungate(cons *consumer) (unseen []*broker.Delivery) {
	ch.gated = slices.DeleteFunc(ch.gated, func(g gatedDelivery) bool {
		if g.cons == cons {
			ch.c.srv.cfg.Unread.Add(-unreadSize(g.d))
			unseen = append(unseen, g.d)
		}
		return g.cons == cons
	})
	return unseen
}

// gateOpen tells whether another delivery that is to be settled may be sent; called with mu held.
func (ch *channel) gateOpen() bool {
	return (ch.limit == 0 || ch.holding() < int(ch.limit)) && !ch.c.unheard()
}

func (ch *channel) openGate() {
	for len(ch.gated) > 0 && ch.gateOpen() {
		g := ch.gated[0]
		ch.gated[0] = gatedDelivery{}
		ch.gated = ch.gated[1:]
		ch.c.srv.cfg.Unread.Add(-unreadSize(g.d))
		if g.d.Sent() {
			ch.sendLocked(g.cons, g.d) // which may end the channel, and the others with it
		} else { // it has gone back: its queue or consumer ends, or its leader took it for lost
			g.cons.handle.Written(1, g.d.WindowBytes)
		}
	}
	if len(ch.gated) == 0 {
		ch.gated = nil
	}
}
