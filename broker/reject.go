package broker

import (
	"unicode/utf8"

	"github.com/warrenmq/warren/dlx"
	"github.com/warrenmq/warren/fsm"
	"github.com/warrenmq/warren/queue"
)

// Reject lets deliveries of this channel die, with what the client says of why, which is not empty; Flush sends it. An error, of a
// text that is no such or a cluster that does not know it yet, settles none.
func (ch *Channel) Reject(detail string, ds []*Delivery) error {
	if err := ch.conn.b.mayReject(detail); err != nil {
		return err
	}
	ch.tally.settled(fsm.Discard, ds)
	for _, d := range ds {
		d.queue.reject(detail, d.id, d.attempt)
		ch.touch(d.queue)
	}
	return nil
}

// mayReject checks what a client says of why it rejects messages.
func (b *Broker) mayReject(detail string) error {
	if err := CheckDetail(detail); err != nil {
		return err
	}
	if b.cat.View().Level() < levelDetails {
		return Errorf(PreconditionFailed, "some node of the cluster has a program that knows no texts of rejections yet")
	}
	return nil
}

// levelDetails is the level of the cluster from which on a rejection may say why.
const levelDetails = 2

// CheckDetail checks the text of a rejection by itself.
func CheckDetail(detail string) error {
	switch {
	case len(detail) > dlx.DetailMax:
		return Errorf(PreconditionFailed, "the text of a rejection has %d bytes, more than %d", len(detail), dlx.DetailMax)
	case !utf8.ValidString(detail):
		return Errorf(PreconditionFailed, "the text of a rejection is no UTF-8")
	}
	return nil
}

// reject is settle by a Discard that says why.
func (s *stream) reject(detail string, id queue.MessageID, attempt uint32) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.endLocked(fsm.Discard, detail, id, attempt)
}
