package broker

import (
	"github.com/warrenmq/warren/amqp"
	"github.com/warrenmq/warren/exchange"
	"github.com/warrenmq/warren/queue"
)

// dedupID digests the deduplication id of the message whose headers were read last. What is
// not one is no concern of queues that do not look at it; checkDedup asks them.
func (ch *Channel) dedupID() (id queue.DedupID) {
	id, ch.badDedup = exchange.DedupID(ch.headers)
	return id
}

// checkDedup refuses a message with a bad id if one of the queues that it was routed to drops
// duplicates.
func (ch *Channel) checkDedup() error {
	if ch.badDedup == nil {
		return nil
	}
	for _, q := range ch.targets {
		if ch.conn.b.stream(q).dedups.Load() {
			return Errorf(PreconditionFailed, "invalid message: %v", ch.badDedup)
		}
	}
	return nil
}

// dedupOf is the deduplication that arguments ask for.
func dedupOf(args amqp.Table) queue.Dedup {
	window := intArg(args, "x-deduplication-window", 0)
	if window <= 0 {
		return queue.Dedup{}
	}
	return queue.Dedup{WindowMillis: window, Size: min(intArg(args, "x-deduplication-size", queue.DedupSizeDefault), queue.DedupSizeMax)}
}

func dedupSize(v any) string {
	if isZero(v) {
		return "{value_zero,0}"
	}
	return bounded(v, 1, queue.DedupSizeMax, "value_negative", "value_too_large")
}

// pluginDedup checks the argument of RabbitMQ's deduplication plugin. It asks for something
// else than a window: an id is taken for as long as its message is in the queue.
func pluginDedup(v any) string {
	if wrong := boolean(v); wrong != "" {
		return wrong
	}
	if v == true {
		return "\"duplicates are dropped by a window of time here: use x-deduplication-window\""
	}
	return ""
}
