package leader

import (
	"time"

	"github.com/warrenmq/warren/fsm"
)

// Nobody waits for the log to take an ack: the client has no answer to it, the message is
// gone for everybody as soon as this leader has it, and so is what it took of its consumer's
// prefetch. So acks that are alone wait a little for an entry that is due anyway, and a
// queue whose messages come and go one by one needs one entry for each, not two. What is
// lost when this node and the acking client's end together is what is lost when they end
// while an ack is under way: the message is delivered again, flagged.

// acksLinger is how long acks wait for company, acksBytesMax how many bytes of them do.
const (
	acksLinger   = 5 * time.Millisecond
	acksBytesMax = 4 << 10
)

// acksWaiting tells of the pending operations of a stream whether they are acks only.
type acksWaiting struct {
	others int       // operations that are no acks
	since  time.Time // when the oldest ack came, if there are only such
}

func (a *acksWaiting) came(op fsm.Op) {
	if !isAck(op) {
		a.others++
	} else if a.since.IsZero() {
		a.since = time.Now()
	}
}

func (a *acksWaiting) taken(op fsm.Op) {
	if !isAck(op) {
		a.others--
	}
}

// publishes is 0 for a stream in which a few acks wait alone, and 1 for another.
func (p *peer) publishes() int {
	if p.acks.others == 0 && p.bytes <= acksBytesMax {
		return 0
	}
	return 1
}

func isAck(op fsm.Op) bool {
	s, ok := op.(fsm.Settle)
	return ok && s.Kind == fsm.Ack
}

// onlyAcks tells whether everything that waits in the streams is acks, and nobody waits
// for what comes of them: a get or a question for an answer that counts them, or the end of the
// queue. Consumers do not: their credit is back. What is returned to the queue is no ack.
func (l *Leader) onlyAcks() bool {
	if l.supply.bytes > 0 || len(l.gets) > 0 || len(l.queries) > 0 || len(l.asks) > 0 || l.closing.begun() {
		return false
	}
	bytes := 0
	for _, p := range l.peers {
		if p.acks.others > 0 {
			return false
		}
		bytes += p.bytes
	}
	return bytes <= acksBytesMax
}

// lingers is how much longer what is not urgent may wait.
func (l *Leader) lingers(acks bool) time.Duration {
	left := time.Duration(1<<63 - 1)
	if l.pending.lazy > 0 {
		left = transferDoneLinger - time.Since(l.pending.lazyFrom)
	}
	if !acks {
		return left
	}
	for _, p := range l.peers {
		if len(p.pending) > 0 {
			left = min(left, l.cfg.acksLinger-time.Since(p.acks.since))
		}
	}
	return left
}
