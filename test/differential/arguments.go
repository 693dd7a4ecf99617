package main

import (
	amqp "github.com/rabbitmq/amqp091-go"
)

// limit is an argument with values that RabbitMQ takes, and how often it comes.
type limit struct {
	name   string
	p      float64
	values []any
}

// limits are those of classic queues. What expires does so before the brokers have agreed, or never.
var limits = []limit{
	{"x-max-length", .2, []any{int32(2), int32(3), int32(0), int32(1), int64(2)}},
	{"x-overflow", .15, []any{"drop-head", "reject-publish", "reject-publish-dlx"}},
	{"x-max-length-bytes", .1, []any{int32(6), int32(0), int32(20)}},
	{"x-message-ttl", .12, []any{int32(600000), int64(900000), int32(1), int32(0)}},
	{"x-expires", .05, []any{int32(600000), int64(800000)}},
	{"x-max-priority", .15, []any{int32(2), int32(5), int32(255), byte(3)}},
	{"x-single-active-consumer", .12, []any{true, false}},
	{"x-dead-letter-exchange", .35, []any{"x0", "x1", "amq.fanout", "", "nowhere"}},
}

const deliveryLimit = "x-delivery-limit"

// quorumLimits are those of quorum queues. Without a delivery limit RabbitMQ 3.10 puts what comes back behind all others. With reject-publish it
// takes more than the limit, and max-length-bytes counts more than bodies.
var quorumLimits = []limit{
	{deliveryLimit, .97, []any{int32(100), int32(100), int64(50)}},
	{"x-max-length", .2, []any{int32(2), int32(3), int32(0), int32(1), int64(2)}},
	{"x-overflow", .3, []any{"drop-head", "reject-publish"}},
	{"x-max-length-bytes", .06, []any{int32(0), int32(1000000)}},
	{"x-message-ttl", .15, []any{int32(600000), int64(900000), int32(1)}},
	{"x-expires", .05, []any{int32(600000), int64(800000)}},
	{"x-single-active-consumer", .12, []any{true, false}},
	{"x-dead-letter-exchange", .4, []any{"x0", "x1", "amq.fanout", "", "nowhere"}},
	{"x-dead-letter-strategy", .3, []any{"at-most-once", atLeastOnce, atLeastOnce}},
	{"x-quorum-initial-group-size", .05, []any{int32(1), int32(3)}},
	{"x-queue-leader-locator", .05, []any{"client-local", "balanced"}},
	{"x-max-in-memory-length", .03, []any{int32(0), int32(5)}},
}

func (d dice) queueArguments(queue int) amqp.Table {
	kind := d.mix.types[queue%len(d.mix.types)]
	if d.chance(.03) {
		kind = pick(d, d.mix.types...)
	}
	t, limits := amqp.Table{"x-queue-type": kind}, limits
	if kind == quorum {
		limits = quorumLimits
	}
	for _, l := range limits {
		if d.chance(l.p) {
			t[l.name] = pick(d, l.values...)
		}
	}
	if _, ok := t[deliveryLimit]; ok && d.limited {
		t[deliveryLimit] = anyOf(d, int32(0), int32(1), int32(2), int64(3))
	}
	if kind == quorum && t["x-overflow"] == "reject-publish" {
		delete(t, "x-max-length")
		delete(t, "x-max-length-bytes")
		if d.mix.policies { // which may limit it
			t["x-overflow"] = "drop-head"
		}
	}
	if _, ok := t["x-dead-letter-exchange"]; ok && d.chance(.6) {
		t["x-dead-letter-routing-key"] = anyOf(d, "q0", "q1", "q2", "a.b", "")
	}
	if d.chance(.04) { // a wrong one
		t[pick(d, limits...).name] = anyOf(d, int32(-1), "text", true, 1.5, nil, amqp.Table{}, []any{})
	}
	return t
}

// operatorDefinition is that of a policy of operators, which limits.
func (d dice) operatorDefinition() amqp.Table {
	keys := []limit{
		{"max-length", .4, []any{0, 1, 2, 3}},
		{"max-length-bytes", .2, []any{0, 1000000}},
		{"message-ttl", .3, []any{600000, 700000}},
		{"expires", .2, []any{600000}},
	}
	if d.mix.replicated() {
		keys = append(keys, limit{"delivery-limit", .3, []any{100}})
	}
	t := amqp.Table{}
	for _, k := range keys {
		if d.chance(k.p) {
			t[k.name] = pick(d, k.values...)
		}
	}
	if _, ok := t["delivery-limit"]; ok && d.limited {
		t["delivery-limit"] = d.IntN(4)
	}
	if len(t) == 0 || d.chance(.05) { // a wrong one
		t[pick(d, "max-length", "message-ttl", "dead-letter-exchange", "overflow", "none")] = anyOf(d, -1, "text", "x0", "drop-head", true, 1.5, nil)
	}
	return t
}

// definition is that of a policy.
func (d dice) definition() amqp.Table {
	keys := []limit{
		{"max-length", .3, []any{0, 1, 2, 3}},
		{"max-length-bytes", .1, []any{0, 1000000}},
		{"overflow", .2, []any{"drop-head"}},
		{"message-ttl", .3, []any{600000, 600000, 600000, 1}},
		{"expires", .1, []any{600000}},
		{"dead-letter-exchange", .5, []any{"x0", "x1", "amq.fanout", "", "nowhere"}},
		{"dead-letter-routing-key", .3, []any{"q0", "q1", "q2", "a.b", ""}},
	}
	if d.mix.replicated() {
		keys = append(keys, limit{"delivery-limit", .3, []any{100}}, limit{"dead-letter-strategy", .2, []any{"at-most-once", atLeastOnce}})
	} else {
		keys[2].values = []any{"drop-head", "reject-publish", "reject-publish-dlx"}
	}
	t := amqp.Table{}
	for _, k := range keys {
		if d.chance(k.p) {
			t[k.name] = pick(d, k.values...)
		}
	}
	if _, ok := t["delivery-limit"]; ok && d.limited {
		t["delivery-limit"] = d.IntN(4)
	}
	if len(t) == 0 || d.chance(.03) { // a wrong one
		t[pick(d, keys...).name] = anyOf(d, -1, "text", true, 1.5, nil)
	}
	return t
}
