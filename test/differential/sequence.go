package main

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

// What a sequence uses.
const (
	queues    = 4
	exchanges = 3
	conns     = 2
	channels  = 4 // those with even numbers on the first connection
)

// others are the exchanges behind those of the sequence.
var others = []string{"amq.direct", "amq.topic", "amq.fanout", "amq.headers", ""}

// lastQueue is the number of the queue that was declared last on the channel.
const lastQueue = -1

// toQueue is the number of the default exchange where the key is to be the name of a queue.
const toQueue = -1

// op is one method. What it concerns is a number that each world resolves.
type op struct {
	kind     string
	ch       int
	queue    int
	exchange int
	source   int // of exchange.bind and unbind
	key      string
	consumer int // number of its tag
	n        int // prefetch count, which of the held messages, or which type of exchange
	flags    []string
	args     amqp.Table
	pub      amqp.Publishing
	before   []op // which are sent on the same channel at once before this one
}

func (o *op) is(flag string) bool { return slices.Contains(o.flags, flag) }

func (o op) String() string {
	s := fmt.Sprintf("channel %d: %s queue %d, exchange %d, source %d, key %q, consumer %d, n %d", o.ch, o.kind, o.queue, o.exchange, o.source, o.key, o.consumer, o.n)
	if len(o.flags) > 0 {
		s += ", " + strings.Join(o.flags, " ")
	}
	if len(o.args) > 0 {
		s += fmt.Sprintf(", arguments %v", o.args)
	}
	if o.kind == "basic.publish" {
		s += fmt.Sprintf(", properties%s", properties(&o.pub))
	}
	for _, b := range slices.Backward(o.before) {
		s = b.String() + ", at once\n    " + s
	}
	return s
}

const hangUp = "connection.close"

// kind is a method with how often it comes.
type kind struct {
	name   string
	weight int
}

// kinds are those of every sequence.
var kinds = []kind{
	{"queue.declare", 17},
	{"queue.delete", 4},
	{"queue.purge", 2},
	{"queue.bind", 12},
	{"queue.unbind", 4},
	{"exchange.declare", 8},
	{"exchange.delete", 3},
	{"exchange.bind", 4},
	{"exchange.unbind", 2},
	{"basic.publish", 34},
	{"basic.get", 10},
	{"basic.consume", 12},
	{"basic.cancel", 4},
	{"basic.qos", 5},
	{"basic.ack", 9},
	{"basic.nack", 7},
	{"basic.reject", 5},
	{"basic.recover", 2},
	{"tx.select", 2},
	{"tx.commit", 4},
	{"tx.rollback", 2},
	{"confirm.select", 2},
	{"channel.close", 3},
	{hangUp, 1},
}

// policyKinds come, too, where a mix has policies.
var policyKinds = []kind{{setPolicy, 14}, {clearPolicy, 7}, {setOperator, 9}, {clearOperator, 5}}

// mix is what sequences are made of.
type mix struct {
	name     string
	types    []string // of the queues, in turn
	policies bool     // are set and cleared in between
}

var mixes = []mix{
	{"classic", []string{classic}, false},
	{"quorum", []string{quorum}, false},
	{"both", []string{quorum, classic}, false},
	{"classic-policies", []string{classic}, true},
	{"quorum-policies", []string{quorum}, true},
}

// replicated tells whether the mix has quorum queues.
func (m *mix) replicated() bool { return slices.Contains(m.types, quorum) }

// Types of queues.
const (
	classic = "classic"
	quorum  = "quorum"
)

// dice makes what is random in a sequence of the mix.
type dice struct {
	*rand.Rand
	mix *mix
	// limited: delivery limits are low. RabbitMQ 3.10 counts all that comes back, Warren as RabbitMQ 4.3 only what counts as failed.
	limited bool
}

func (d dice) chance(p float64) bool { return d.Float64() < p }

func pick[T any](d dice, of ...T) T { return of[d.IntN(len(of))] }

func anyOf(d dice, of ...any) any { return pick(d, of...) }

// sequence is always the same for a seed. It begins with the declaration of its queues and of two exchanges.
func (m *mix) sequence(seed uint64, length int) []op {
	d := dice{Rand: rand.New(rand.NewPCG(seed, 77)), mix: m}
	d.limited = m.replicated() && d.chance(.5)
	kinds, sum := kinds, 0
	if m.policies {
		kinds = slices.Concat(kinds, policyKinds)
	}
	if m.replicated() { // routing is the same for all types of queues
		kinds = slices.Clone(kinds)
		for i, k := range kinds {
			switch {
			case strings.HasPrefix(k.name, "exchange."):
				kinds[i].weight = (k.weight + 3) / 4
			case strings.HasPrefix(k.name, "basic."):
				kinds[i].weight = 2 * k.weight
			}
		}
	}
	for _, k := range kinds {
		sum += k.weight
	}
	ops := make([]op, length)
	for i := range ops {
		switch {
		case i < queues:
			ops[i] = d.op("queue.declare", i)
			ops[i].queue = i
		case i < queues+2:
			ops[i] = d.op("exchange.declare", i)
			ops[i].exchange = i - queues
		default:
			w, k := d.IntN(sum), 0
			for ; w >= kinds[k].weight; k++ {
				w -= kinds[k].weight
			}
			ops[i] = d.op(kinds[k].name, i)
			// RabbitMQ's quorum queues may be asked before they have what was published.
			if early := m.replicated() && (ops[i].kind == "basic.get" || ops[i].kind == purge); !early && !ops[i].isPolicy() && d.chance(.2) {
				ops[i].before = d.burst(&ops[i])
			}
		}
	}
	return ops
}

// unanswered are what bursts are of: methods without answers, or that can do without.
var unanswered = []string{
	"basic.publish", "basic.publish", "basic.publish", "basic.publish", "basic.publish", "basic.publish", "basic.ack", "basic.nack", "basic.reject",
	"queue.declare", "queue.bind", purge, "queue.delete", "exchange.declare", "exchange.bind", "basic.consume",
}

const purge = "queue.purge"

// burst is what is sent before o on its channel without waiting.
func (d dice) burst(o *op) []op {
	list := make([]op, 1+d.IntN(5))
	for i := range list {
		kind := pick(d, unanswered...)
		if kind == purge && d.mix.replicated() { // RabbitMQ's may overtake what was published before
			kind = "basic.publish"
		}
		b := d.op(kind, 1000*(i+1)+d.IntN(1000))
		b.ch = o.ch
		if probable[b.kind][noWait] > 0 && !b.is(noWait) {
			b.flags = append(b.flags, noWait)
		}
		list[i] = b
	}
	return list
}

var keys = []string{"a", "b", "a.b", "a.b.c", "", "a..b", "*", "#", "a.*", "*.b", "a.#", "#.c", "#.b.#", "a.*.c", ".", "*.*"}

// probable are the flags of each method.
var probable = map[string]map[string]float64{
	"queue.declare":    {"durable": .8, "exclusive": .15, "auto-delete": .12, "passive": .15, noWait: .06},
	"queue.bind":       {noWait: .1},
	"queue.purge":      {noWait: .1},
	"queue.delete":     {"if-unused": .4, "if-empty": .1, noWait: .1},
	"exchange.declare": {"durable": .7, "auto-delete": .15, "internal": .1, "passive": .1, noWait: .1},
	"exchange.bind":    {noWait: .1},
	"exchange.unbind":  {noWait: .1},
	"exchange.delete":  {"if-unused": .5, noWait: .1},
	"basic.publish":    {"mandatory": .3},
	"basic.get":        {"no-ack": .3},
	"basic.consume":    {"no-ack": .25, "exclusive": .1, "no-local": .05, noWait: .05},
	"basic.cancel":     {noWait: .1},
	"basic.qos":        {"global": .3},
	"basic.ack":        {"multiple": .3},
	"basic.nack":       {"multiple": .3, "requeue": .6},
	"basic.reject":     {"requeue": .5},
	"basic.recover":    {"requeue": .9},
	setPolicy:          {"every": .3, "exchange": .15},
	setOperator:        {"every": .3},
}

// op makes the i-th method of a sequence.
func (d dice) op(kind string, i int) op {
	o := op{
		kind: kind, ch: d.IntN(channels), queue: d.IntN(queues), exchange: d.IntN(exchanges), source: d.IntN(exchanges + len(others)),
		key: pick(d, keys...), consumer: d.IntN(6), n: d.IntN(8),
	}
	for _, f := range slices.Sorted(maps.Keys(probable[kind])) {
		if d.chance(probable[kind][f]) {
			o.flags = append(o.flags, f)
		}
	}
	if slices.Contains([]string{"queue.bind", "queue.unbind", "queue.purge", "queue.delete", "basic.get", "basic.consume"}, kind) && d.chance(.07) {
		o.queue = lastQueue
	}
	switch kind {
	case "queue.declare":
		o.args = d.queueArguments(o.queue)
		if o.args["x-queue-type"] == quorum && !d.chance(.03) { // RabbitMQ has no others
			o.flags = slices.DeleteFunc(o.flags, func(f string) bool { return f != "passive" })
			o.flags = append(o.flags, "durable")
		}
	case "queue.delete":
		if d.mix.replicated() && !d.chance(.03) { // RabbitMQ refuses them for quorum queues
			o.flags = nil
		}
	case setPolicy, clearPolicy, setOperator, clearOperator:
		o.n = d.IntN(policyNames)
		switch {
		case kind == setOperator:
			o.args = d.operatorDefinition()
		case kind == setPolicy && o.is("exchange"):
			o.args = amqp.Table{"alternate-exchange": pick(d, "x0", "x1", "x2", "amq.fanout", "nowhere")}
		case kind == setPolicy:
			o.args = d.definition()
		}
	case "queue.bind", "exchange.bind":
		o.exchange = d.IntN(exchanges + len(others))
		o.args = d.bindingArguments()
	case "queue.unbind", "exchange.unbind":
		o.exchange = d.IntN(exchanges + len(others))
		if d.chance(.3) {
			o.args = d.bindingArguments()
		}
	case "exchange.declare":
		if d.chance(.3) {
			o.args = amqp.Table{"alternate-exchange": fmt.Sprint("x", d.IntN(exchanges))}
			if d.chance(.05) {
				o.args = amqp.Table{"alternate-exchange": anyOf(d, int32(1), true, nil)}
			}
		}
	case "basic.publish":
		o.exchange = d.IntN(exchanges + len(others))
		direct := .5
		if d.mix.replicated() {
			direct = .8
		}
		if d.chance(direct) {
			o.exchange = toQueue
		}
		o.pub = d.publishing(i)
	case "basic.consume":
		if d.mix.replicated() { // RabbitMQ's quorum queues do not know exclusive consumers
			o.flags = slices.DeleteFunc(o.flags, func(f string) bool { return f == "exclusive" })
		}
		if d.chance(.25) {
			o.args = amqp.Table{"x-priority": anyOf(d, int32(1), int32(-1), int32(5), int64(2), "high", int16(3), true)}
		}
	case "basic.qos":
		o.n = d.IntN(4)
		if d.mix.replicated() { // RabbitMQ refuses consumers of quorum queues then
			o.flags = nil
		}
	case "basic.recover":
		if d.limited {
			o.kind = "basic.reject"
		}
	case "basic.ack", "basic.nack", "basic.reject":
		if d.limited && kind == "basic.nack" {
			o.flags = slices.DeleteFunc(o.flags, func(f string) bool { return f == "requeue" })
		}
		if d.chance(.06) {
			o.n = unknownTag
		}
	}
	return o
}

func (d dice) bindingArguments() amqp.Table {
	if d.chance(.45) {
		return nil
	}
	t := d.headers(.5)
	if d.chance(.8) {
		t["x-match"] = anyOf(d, "all", "any", "all", "any", "all-with-x", "any-with-x", "all", "any", "none", int32(1))
	}
	return t
}

// headers have values that are equal under different types, but no float of a whole number: RabbitMQ 3.10 has it equal to the integer, Warren
// does not.
func (d dice) headers(p float64) amqp.Table {
	t := amqp.Table{}
	for _, k := range []string{"h1", "h2", "x-h"} {
		if d.chance(p) {
			t[k] = anyOf(d, "v", []byte("v"), int32(1), int64(1), time.Unix(1, 0), 1.5, float32(1.5), nil, true, "w")
		}
	}
	return t
}

func (d dice) publishing(i int) amqp.Publishing {
	p := amqp.Publishing{Body: fmt.Append(nil, "m", i), DeliveryMode: pick[uint8](d, 1, 2), Headers: d.headers(.4)}
	if d.chance(.25) && !d.mix.replicated() { // quorum queues of RabbitMQ 3.10 have no priorities
		p.Priority = pick[uint8](d, 1, 2, 3, 5, 200, 255)
	}
	switch { // one of them: which is looked at first has changed since RabbitMQ 3.10
	case d.chance(.12):
		p.Expiration = pick(d, "600000", "600000", "600000", "600000", "1", "x", "-1")
	case d.chance(.1):
		p.Headers[pick(d, "CC", "BCC")] = anyOf(d, []any{"q0"}, []any{"q1", "q2"}, []any{"a.b", "a.b"}, []any{}, "q0", []any{int32(1)})
	case d.chance(.03):
		p.UserId = pick(d, "guest", "other")
	}
	if d.chance(.1) {
		p.Type, p.MessageId, p.CorrelationId, p.ContentType, p.AppId = "t", "id", "c", "text/plain", "app"
	}
	if len(p.Headers) == 0 {
		p.Headers = nil
	}
	return p
}
