package client

import (
	"fmt"
	"sync/atomic"
	"unicode/utf8"

	warrenv1 "github.com/warrenmq/warren/api/warren/v1"
)

// Settle is how a delivery ends.
type Settle int

const (
	// Ack is for what is done, the message is removed.
	Ack Settle = iota + 1
	// Reject is for what is dead, the message goes to the dead-letter exchange, or is removed where there is none.
	Reject
	// Requeue is for what is failed, the message is delivered again, which counts against the delivery limit.
	Requeue
	// Release is for what is not tried, the message is delivered again, which does not count.
	Release
)

func (s Settle) String() string {
	if s < Ack || s > Release {
		return "unknown"
	}
	return [...]string{"ack", "reject", "requeue", "release"}[s-Ack]
}

// proto is the kind as nodes know it.
func (s Settle) proto() warrenv1.SettleKind { return warrenv1.SettleKind(s) }

// Delivery is a message that is handed out.
type Delivery struct {
	Message
	// Queue it comes from.
	Queue string
	// Redelivered: it was handed out before.
	Redelivered bool
	// DeliveryCount is how often it was given back as failed, and AcquiredCount how often it was handed out before, failed or not: in quorum queues.
	DeliveryCount, AcquiredCount uint32
	// Deaths are what its x-death header tells, the newest first. The header is in Headers, too.
	Deaths []Death

	number  uint64
	of      *consumeStream // nil: it is settled since it came
	settled atomic.Int32   // a Settle, or 0
}

func deliveryOf(queue string, d *warrenv1.Delivery) *Delivery {
	return &Delivery{
		Message: messageOf(d.GetMessage()), Queue: queue, Redelivered: d.GetRedelivered(), DeliveryCount: d.GetDeliveryCount(),
		AcquiredCount: d.GetAcquiredCount(), Deaths: deathsOf(d.GetDeaths()), number: d.GetNumber(),
	}
}

// Ack settles the delivery before its handler returns. So do the others. ErrSettled tells that it was settled before, and ErrDeliveryLost that its
// stream has ended. No error means that the node will be told, not that it knows: a message whose settlement is lost with a stream comes again.
func (d *Delivery) Ack() error { return d.settle(Ack) }

// Reject settles the delivery as dead.
func (d *Delivery) Reject() error { return d.settle(Reject) }

// RejectWith settles the delivery as dead, and says why: the text is in its [Death]. It is UTF-8 of at most 255 bytes; another one settles nothing.
func (d *Delivery) RejectWith(detail string) error {
	if len(detail) > detailMax || !utf8.ValidString(detail) {
		return fmt.Errorf("%w: the text of a rejection is UTF-8 of at most %d bytes", ErrInvalid, detailMax)
	}
	return d.end(settlement{how: Reject, detail: detail})
}

const detailMax = 255

// Requeue settles the delivery as failed.
func (d *Delivery) Requeue() error { return d.settle(Requeue) }

// Release settles the delivery as not tried.
func (d *Delivery) Release() error { return d.settle(Release) }

// Extend tells that the handler is still at work: the time after which the node would take the delivery back and end the consumer (argument
// x-consumer-timeout, or the policy's consumer-timeout) begins anew, and with it that of the deliveries that wait for a handler. ErrSettled and ErrDeliveryLost are as in Ack. It may be called as often as one likes: what
// is not sent yet is sent once.
func (d *Delivery) Extend() error {
	if d.of == nil || d.settled.Load() != 0 {
		return ErrSettled
	}
	return d.of.extend(d.number)
}

func (d *Delivery) settle(how Settle) error { return d.end(settlement{how: how}) }

func (d *Delivery) end(s settlement) error {
	if d.of == nil || !d.settled.CompareAndSwap(0, int32(s.how)) {
		return ErrSettled
	}
	s.number = d.number
	return d.of.settle(s)
}
