package main

import (
	"slices"
	"strings"
)

// documented tells whether docs/compatibility.md names the difference.
func (d *difference) documented() bool {
	rabbit, warren := d.answers[0], d.answers[1]
	if len(d.op.before) > 0 && slices.ContainsFunc(d.events[0], func(e string) bool { return strings.Contains(e, ": closed 504") }) {
		return true // what was sent on a channel that had ended
	}
	switch d.op.kind {
	case "queue.unbind": // another connection's exclusive queue, where there is no such binding
		return rabbit == "ok" && strings.HasPrefix(warren, "405")
	case "queue.delete":
		return d.op.is("if-empty") && strings.HasPrefix(rabbit, "ok") && strings.HasPrefix(warren, "406") || // what consumers hold is in the queue for if-empty
			strings.HasPrefix(rabbit, "540") // not with quorum queues
	case "queue.declare":
		return strings.Contains(rabbit, "invalid property") && strings.HasPrefix(warren, "ok") || // quorum queues that are not durable, and so on
			strings.HasPrefix(rabbit, "ok") && strings.Contains(warren, "invalid arg '"+deliveryLimit) || // which RabbitMQ does not check
			strings.Contains(rabbit, "inequivalent") && strings.Contains(warren, "inequivalent arg 'x-dead-letter-strategy'") // which its classic queues do not have
	}
	return d.routed() || d.expired()
}

// expired tells whether messages of Warren's may have expired behind others that live longer: RabbitMQ looks at the head of a queue only.
func (d *difference) expired() bool {
	return d.short && d.states[0] != d.states[1] && d.answers[0] == d.answers[1]
}

// expires tells whether a method makes messages expire at once that may be behind others.
func (o *op) expires() bool {
	return o.pub.Expiration == "1" || o.args["message-ttl"] == 1 || slices.ContainsFunc(o.before, func(b op) bool { return b.expires() })
}

// routed tells whether Warren has sent dead letters of the strategy at-least-once on as soon as there was a route: RabbitMQ tries again after
// minutes, and keeps none of a queue that does not reject publishes.
func (d *difference) routed() bool {
	return d.kept && slices.Contains([]string{"queue.declare", "queue.bind", "exchange.declare", "exchange.bind", "queue.delete", setPolicy, clearPolicy}, d.op.kind) &&
		d.answers[0] == d.answers[1] && len(d.events[0]) <= len(d.events[1])
}

// keeps tells whether a method makes queues keep dead letters without a route.
func (o *op) keeps() bool {
	return o.args["x-dead-letter-strategy"] == atLeastOnce || o.args["dead-letter-strategy"] == atLeastOnce ||
		slices.ContainsFunc(o.before, func(b op) bool { return b.keeps() })
}

const atLeastOnce = "at-least-once"
