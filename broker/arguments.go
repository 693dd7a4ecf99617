package broker

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/warrenmq/warren/amqp"
	"github.com/warrenmq/warren/catalog"
	"github.com/warrenmq/warren/queue"
)

// Defaults of a queue's settings.
const (
	quorumDeliveryLimit   = 20 // RabbitMQ's for quorum queues since 4.0
	quorumPriorityMax     = 31
	quorumPriorityDefault = 4
	outboxMessagesMax     = 1_000_000
	outboxBytesMax        = 4 << 30
)

// argument describes one queue argument: how it is checked, and whether a
// repeated declaration has to repeat it.
type argument struct {
	name  string
	check func(v any) string // "" or what is wrong with it, in RabbitMQ's notation
}

// queueArguments are in the order in which RabbitMQ checks and compares them, those that it does not know last.
var queueArguments = []argument{
	{"x-expires", expires},
	{"x-message-ttl", ttl},
	{"x-dead-letter-exchange", shortText},
	{"x-dead-letter-routing-key", shortText},
	{"x-dead-letter-strategy", oneOf(always("invalid_dlx_strategy"), "at-most-once", "at-least-once")},
	{"x-max-length", natural},
	{"x-max-length-bytes", natural},
	{"x-max-in-memory-length", natural},
	{"x-max-in-memory-bytes", natural},
	{"x-max-priority", priority},
	{"x-overflow", oneOf(always("invalid_overflow"), "drop-head", "reject-publish", "reject-publish-dlx")},
	{"x-queue-mode", anything},
	{"x-queue-version", version},
	{"x-single-active-consumer", boolean},
	{"x-queue-type", oneOf(unsupported("queue type"), "classic", "quorum")},
	{"x-queue-master-locator", text},
	{"x-queue-leader-locator", locator},
	{"x-quorum-initial-group-size", positive},
	{"x-delivery-limit", integer},
	{"x-consumer-timeout", natural},
	{"x-consumer-disconnected-timeout", natural},
	{"x-delayed-retry-type", oneOf(unacceptable, "disabled", "all", "failed", "returned")},
	{"x-delayed-retry-min", ttl},
	{"x-delayed-retry-max", ttl},
	{"x-delayed-retry-multiplier", multiplier},
	{"x-delayed-retry-jitter", percent},
	{"x-dead-letter-on-removal", boolean},
	{"x-dead-letter-death-total", boolean},
	{"x-dead-letter-continue-history", boolean},
	{"x-dead-letter-cycle", oneOf(unacceptable, cycleByStrategy, cycleStopsTTL)},
	{"x-dead-letter-max-hops", positive},
	{"x-message-ttl-dead-letters", boolean},
	{"x-dead-letter-max-length", positive},
	{"x-dead-letter-max-length-bytes", positive},
	{"x-deduplication-window", expires},
	{"x-deduplication-size", dedupSize},
	{"x-message-deduplication", pluginDedup},
}

// anything accepts x-queue-mode, which means nothing: RabbitMQ looks at it no more.
func anything(any) string { return "" }

func integer(v any) string {
	if _, ok := amqp.AsInt64(v); !ok {
		return fmt.Sprintf("\"expected integer, got %s\"", amqp.TypeName(v))
	}
	return ""
}

func bounded(v any, low, high int64, lowWord, highWord string) string {
	if s := integer(v); s != "" {
		return s
	}
	n, _ := amqp.AsInt64(v)
	switch {
	case n < low:
		return fmt.Sprintf("{%s,%d}", lowWord, n)
	case n > high:
		return fmt.Sprintf("{%s,%d}", highWord, n)
	}
	return ""
}

func natural(v any) string { return bounded(v, 0, math.MaxInt64, "value_negative", "value_too_large") }

func ttl(v any) string      { return bounded(v, 0, ttlMillisMax, "value_negative", "value_too_large") }
func priority(v any) string { return bounded(v, 0, 255, "value_negative", "max_value_exceeded") }

func expires(v any) string {
	if isZero(v) {
		return "{value_zero,0}"
	}
	return ttl(v)
}

func positive(v any) string {
	if isZero(v) {
		return "{value_zero,0}"
	}
	return natural(v)
}

func isZero(v any) bool {
	n, ok := amqp.AsInt64(v)
	return ok && n == 0
}

// version checks x-queue-version, which changes nothing here.
func version(v any) string {
	if s := natural(v); s != "" {
		return s
	}
	if n, _ := amqp.AsInt64(v); n != 1 && n != 2 {
		return fmt.Sprintf("\"unsupported queue version '%d'\"", n)
	}
	return ""
}

func text(v any) string {
	if _, ok := v.(string); !ok {
		return fmt.Sprintf("{unacceptable_type,%s}", amqp.TypeName(v))
	}
	return ""
}

// shortText is what has to fit into AMQP's short strings, as names and routing keys do. RabbitMQ takes more and cannot send it.
func shortText(v any) string {
	if wrong := text(v); wrong != "" {
		return wrong
	}
	if n := len(v.(string)); n > nameBytesMax {
		return fmt.Sprintf("{longer_than_%d_bytes,%d}", nameBytesMax, n)
	}
	return ""
}

func boolean(v any) string {
	if _, ok := v.(bool); !ok {
		return fmt.Sprintf("{unacceptable_type,%s}", amqp.TypeName(v))
	}
	return ""
}

// locator checks x-queue-leader-locator. Those besides client-local mean balanced.
func locator(v any) string {
	s, ok := v.(string)
	switch {
	case !ok:
		return text(v)
	case !slices.Contains([]string{clientLocal, "balanced", "random", "least-leaders", "min-masters"}, s):
		return "invalid_queue_locator_arg"
	}
	return ""
}

const clientLocal = "client-local"

// The words of x-dead-letter-cycle.
const (
	cycleByStrategy = "strategy"
	cycleStopsTTL   = "stop-ttl"
)

// oneOf accepts some words; other tells what RabbitMQ says of another one.
func oneOf(other func(word string) string, words ...string) func(any) string {
	return func(v any) string {
		s, ok := v.(string)
		if !ok {
			return fmt.Sprintf("{unacceptable_type,%s}", amqp.TypeName(v))
		}
		if slices.Contains(words, s) {
			return ""
		}
		return other(s)
	}
}

func unacceptable(word string) string { return fmt.Sprintf("{unacceptable_value,<<\"%s\">>}", word) }

func always(text string) func(string) string { return func(string) string { return text } }

func unsupported(what string) func(string) string {
	return func(word string) string { return fmt.Sprintf("\"unsupported %s '%s'\"", what, word) }
}

// checkArguments validates the arguments of a new queue.
func checkArguments(d QueueDeclare, vhost string) error {
	if err := checkType(d, vhost); err != nil {
		return err
	}
	for _, a := range queueArguments {
		v, ok := d.Arguments.Get(a.name)
		if !ok {
			continue
		}
		if wrong := a.check(v); wrong != "" {
			if _, ok := v.(string); a.name == "x-dead-letter-exchange" && !ok {
				return Errorf(PreconditionFailed, "invalid type '%s' for arg '%s' in queue '%s' in vhost '%s'", amqp.TypeName(v), a.name, d.Name, vhost)
			}
			return Errorf(PreconditionFailed, "invalid arg '%s' for queue '%s' in vhost '%s': %s", a.name, d.Name, vhost, wrong)
		}
		if _, dlx := d.Arguments.Get("x-dead-letter-exchange"); a.name == "x-dead-letter-routing-key" && !dlx {
			return Errorf(PreconditionFailed, "invalid arg '%s' for queue '%s' in vhost '%s': routing_key_but_no_dlx_defined", a.name, d.Name, vhost)
		}
	}
	if wrong := checkRetry(d.Arguments); wrong != "" {
		return Errorf(PreconditionFailed, "invalid arg 'x-delayed-retry-type' for queue '%s' in vhost '%s': %s", d.Name, vhost, wrong)
	}
	return nil
}

// quorumArguments are queueArguments in the order in which RabbitMQ compares those of a quorum queue: the first that differs is named.
var quorumArguments = func() []argument {
	order := []string{
		"x-dead-letter-exchange", "x-dead-letter-routing-key", "x-dead-letter-strategy", "x-expires", "x-max-length", "x-max-length-bytes",
		"x-max-in-memory-length", "x-max-in-memory-bytes", "x-overflow", "x-single-active-consumer", "x-queue-type",
		"x-quorum-initial-group-size", "x-delivery-limit", "x-message-ttl", "x-queue-leader-locator",
	}
	place := func(a argument) int {
		if i := slices.Index(order, a.name); i >= 0 {
			return i
		}
		return len(order)
	}
	list := slices.Clone(queueArguments)
	slices.SortStableFunc(list, func(a, b argument) int { return cmp.Compare(place(a), place(b)) })
	return list
}()

// checkEquivalent compares a repeated declaration with the queue that is there.
func checkEquivalent(d QueueDeclare, q *catalog.Queue) error {
	flags := []struct {
		name     string
		got, has bool
	}{{"durable", d.Durable, q.Durable}, {"auto_delete", d.AutoDelete, q.AutoDelete}}
	for _, f := range flags {
		if f.got != f.has {
			return Errorf(PreconditionFailed, "inequivalent arg '%s' for queue '%s' in vhost '%s': received '%t' but current is '%t'",
				f.name, q.Name, q.Vhost, f.got, f.has)
		}
	}
	arguments := queueArguments
	if isQuorum(q.Arguments) {
		arguments = quorumArguments
	}
	for _, a := range arguments {
		got, hasGot := d.Arguments.Get(a.name)
		cur, hasCur := q.Arguments.Get(a.name)
		if a.name == "x-queue-type" {
			got, hasGot, cur, hasCur = orClassic(got, hasGot), true, orClassic(cur, hasCur), true
		}
		if hasGot == hasCur && (!hasGot || sameValue(got, cur)) {
			continue
		}
		return Errorf(PreconditionFailed, "inequivalent arg '%s' for queue '%s' in vhost '%s': %s", a.name, q.Name, q.Vhost, unlike(got, hasGot, cur, hasCur))
	}
	return nil
}

func orClassic(v any, ok bool) any {
	if !ok {
		return "classic"
	}
	return v
}

// sameValue compares argument values; integer widths are interchangeable.
func sameValue(a, b any) bool {
	x, okA := amqp.AsInt64(a)
	y, okB := amqp.AsInt64(b)
	if okA || okB {
		return okA && okB && x == y
	}
	return amqp.EqualValues(a, b)
}

// unlike tells what was received and what is there, in RabbitMQ's words: with the type if there is nothing to compare with.
func unlike(got any, hasGot bool, cur any, hasCur bool) string {
	if hasGot && hasCur {
		return fmt.Sprintf("received '%v' but current is '%v'", got, cur)
	}
	show := func(v any, ok bool) string {
		if !ok {
			return "none"
		}
		if v == nil {
			return "the value 'undefined' of type 'void'"
		}
		return fmt.Sprintf("the value '%v' of type '%s'", v, amqp.TypeName(v))
	}
	return fmt.Sprintf("received %s but current is %s", show(got, hasGot), show(cur, hasCur))
}

func isQuorum(args amqp.Table) bool {
	v, _ := args.Get("x-queue-type")
	return v == "quorum"
}

// withDefaultType names the vhost's default queue type in the arguments of a queue that
// names none and can have it: RabbitMQ's quorum queues are durable and shared, so that
// others are classic whatever the default is.
func withDefaultType(d QueueDeclare, h *catalog.Vhost) amqp.Table {
	_, named := d.Arguments.Get("x-queue-type")
	if named || h == nil || h.DefaultQueueType != "quorum" || !d.Durable || d.Exclusive || d.AutoDelete {
		return d.Arguments
	}
	return append(slices.Clone(d.Arguments), amqp.Field{Name: "x-queue-type", Value: h.DefaultQueueType})
}

// singleActive tells whether one consumer at a time gets the queue's messages.
func singleActive(args amqp.Table) bool {
	v, _ := args.Get("x-single-active-consumer")
	return v == true
}

// showsCounts tells whether deliveries of a queue carry x-delivery-count and
// x-acquired-count: quorum queues do, and others that count toward a limit.
func showsCounts(args amqp.Table) bool {
	_, limited := args.Get("x-delivery-limit")
	return limited || isQuorum(args)
}

// deliveryLimit is how many failed returns a message survives, -1: any number.
func deliveryLimit(args amqp.Table) int64 {
	none := int64(-1)
	if isQuorum(args) {
		none = quorumDeliveryLimit
	}
	return max(intArg(args, "x-delivery-limit", none), -1)
}

// settingsOf derives a queue's effective settings from the arguments in effect.
func settingsOf(q *catalog.Queue, args amqp.Table) queue.Settings {
	if q.DelayOf != "" {
		return queue.Settings{
			MessageTTLMillis: -1, MaxLength: -1, MaxLengthBytes: -1, DeliveryLimit: -1,
			DeadLetter: true, DeadLetterExchange: q.DelayOf, Delayed: true,
			OutboxMax: outboxMessagesMax, OutboxMaxBytes: outboxBytesMax,
		}
	}
	s := queue.Settings{
		Paused:           q.Paused,
		MessageTTLMillis: intArg(args, "x-message-ttl", -1),
		MaxLength:        intArg(args, "x-max-length", -1),
		MaxLengthBytes:   intArg(args, "x-max-length-bytes", -1),
		DeliveryLimit:    deliveryLimit(args),
		OutboxMax:        intArg(args, "x-dead-letter-max-length", outboxMessagesMax),
		OutboxMaxBytes:   intArg(args, "x-dead-letter-max-length-bytes", outboxBytesMax),
	}
	s.MaxPriority = uint8(intArg(args, "x-max-priority", 0))
	if isQuorum(args) {
		if _, ok := args.Get("x-max-priority"); !ok {
			s.MaxPriority, s.DefaultPriority = quorumPriorityMax, quorumPriorityDefault
		}
	}
	switch stringArg(args, "x-overflow") {
	case "reject-publish":
		s.Overflow = queue.RejectPublish
	case "reject-publish-dlx":
		s.Overflow = queue.RejectPublishDLX
	}
	if v, ok := args.Get("x-dead-letter-exchange"); ok {
		s.DeadLetterExchange, s.DeadLetter = v.(string)
	}
	if v, ok := args.Get("x-dead-letter-routing-key"); ok {
		s.DeadLetterRoutingKey, s.DeadLetterKeySet = v.(string)
	}
	s.Retry = retryDelay(args)
	if v, ok := args.Get("x-dead-letter-on-removal"); ok {
		s.DeadLetterOnRemoval, _ = v.(bool)
	}
	if v, ok := args.Get("x-dead-letter-death-total"); ok {
		s.DeathTotal, _ = v.(bool)
	}
	if v, ok := args.Get("x-dead-letter-continue-history"); ok {
		s.ContinueHistory, _ = v.(bool)
	}
	s.Dedup = dedupOf(args)
	s.AtLeastOnce = stringArg(args, "x-dead-letter-strategy") == "at-least-once"
	s.StopTTL = stringArg(args, "x-dead-letter-cycle") == cycleStopsTTL
	s.MaxHops = intArg(args, "x-dead-letter-max-hops", 0)
	if v, ok := args.Get("x-message-ttl-dead-letters"); ok {
		s.DeadLettersKeep = v == false
	}
	return s
}

func intArg(t amqp.Table, name string, absent int64) int64 {
	v, ok := t.Get(name)
	if !ok {
		return absent
	}
	n, ok := amqp.AsInt64(v)
	if !ok {
		return absent
	}
	return n
}

func stringArg(t amqp.Table, name string) string {
	v, _ := t.Get(name)
	s, _ := v.(string)
	return s
}
