package policy

import (
	"math"
	"regexp"
	"slices"

	"github.com/warrenmq/warren/amqp"
)

// Bounds of values.
const (
	textBytesMax = 255             // names of exchanges, routing keys: short strings in AMQP
	millisMax    = 315_360_000_000 // ten years
	dedupSizeMax = 1_000_000       // of deduplication-size
	factorMax    = 1000            // of delayed-retry-multiplier
	segmentMax   = 3_000_000_000   // of stream-max-segment-size-bytes
)

// Target is a sort of object that policies apply to.
type Target uint8

// The targets. A queue that was declared without a type is a classic one.
const (
	Exchange Target = iota
	ClassicQueue
	QuorumQueue
	Stream
)

// targets is a set of them.
type targets uint8

func setOf(list ...Target) (s targets) {
	for _, t := range list {
		s |= 1 << t
	}
	return s
}

func (s targets) has(t Target) bool { return s&(1<<t) != 0 }

// key is one thing that a definition may say.
type key struct {
	name string
	// what names the value in refusals: "<value> is not a valid <what>".
	what  string
	check func(v any) bool
	// hides are queues that a policy with this key does not apply to at all.
	hides targets
	// operator: operator policies may have it, and its values are merged by merge.
	operator bool
	merge    func(policy, operator any) any
	// argument: the queue argument x-<name> says the same, and with merges the two.
	// Without one the argument wins. quorum, if not nil, is with for quorum queues.
	argument bool
	with     func(argument, policy any) any
	quorum   func(argument, policy any) any
	// idle: kept and shown, but of no effect so far.
	idle bool
}

// Queues that keys hide a policy from. What RabbitMQ has for one of the two types and
// Warren for both hides nothing.
var (
	notStream   = setOf(Stream)
	onlyQuorum  = setOf(ClassicQueue, Stream)
	onlyClassic = setOf(QuorumQueue, Stream)
	onlyStream  = setOf(ClassicQueue, QuorumQueue)
)

// keys are all that are known. Other names are refused.
var keys = []key{
	{name: "alternate-exchange", what: "alternate exchange name", check: shortText},

	{name: "dead-letter-exchange", what: "dead letter exchange name", check: shortText, argument: true},
	{name: "dead-letter-routing-key", what: "dead letter routing key", check: shortText, argument: true},
	{name: "dead-letter-strategy", what: "dead letter strategy", check: oneOf("at-most-once", "at-least-once"), hides: notStream, argument: true},
	{name: "dead-letter-on-removal", what: "truth value", check: truth, hides: notStream, argument: true},
	{name: "dead-letter-death-total", what: "truth value", check: truth, hides: notStream, argument: true},
	{name: "dead-letter-continue-history", what: "truth value", check: truth, hides: notStream, argument: true},
	{name: "dead-letter-cycle", what: "way out of a dead letter cycle", check: oneOf("strategy", "stop-ttl"), hides: notStream, argument: true},
	{name: "dead-letter-max-hops", what: "maximum of dead letter hops", check: between(1, math.MaxInt64), hides: notStream, operator: true, merge: smaller, argument: true, with: smaller},
	{name: "message-ttl-dead-letters", what: "truth value", check: truth, hides: notStream, argument: true},
	{name: "dead-letter-max-length", what: "maximum of dead letters", check: between(1, math.MaxInt64), operator: true, merge: smaller, argument: true, with: smaller},
	{name: "dead-letter-max-length-bytes", what: "maximum of dead letters in bytes", check: between(1, math.MaxInt64), operator: true, merge: smaller, argument: true, with: smaller},
	{name: "message-ttl", what: "message TTL", check: between(0, millisMax), operator: true, merge: smaller, argument: true, with: smaller},
	{name: "expires", what: "queue expiry", check: between(1, millisMax), operator: true, merge: smaller, argument: true, with: smaller},
	{name: "max-length", what: "maximum length", check: between(0, math.MaxInt64), operator: true, merge: smaller, argument: true, with: smaller},
	{name: "max-length-bytes", what: "maximum length in bytes", check: between(0, math.MaxInt64), operator: true, merge: smaller, argument: true, with: smaller},
	{name: "overflow", what: "overflow", check: oneOf("drop-head", "reject-publish", "reject-publish-dlx"), operator: true, merge: second, argument: true, quorum: second},
	{name: "delivery-limit", what: "delivery limit", check: between(math.MinInt64, math.MaxInt64), hides: notStream, operator: true, merge: limit, argument: true, with: limit},
	{name: "deduplication-window", what: "window of deduplication", check: between(1, millisMax), hides: notStream, argument: true},
	{name: "deduplication-size", what: "number of deduplication ids", check: between(1, dedupSizeMax), hides: notStream, operator: true, merge: smaller, argument: true, with: smaller},
	{name: "consumer-timeout", what: "consumer timeout", check: between(0, math.MaxInt64), hides: notStream, argument: true, with: smallerTimeout},
	{name: "delayed-retry-type", what: "delayed retry type", check: oneOf("disabled", "all", "failed", "returned"), hides: notStream, operator: true, merge: second, argument: true, with: second},
	{name: "delayed-retry-min", what: "delayed retry minimum", check: between(0, millisMax), hides: notStream, operator: true, merge: smaller, argument: true, with: smaller},
	{name: "delayed-retry-max", what: "delayed retry maximum", check: between(0, millisMax), hides: notStream, operator: true, merge: smaller, argument: true, with: smaller},
	{name: "delayed-retry-multiplier", what: "delayed retry multiplier", check: factor, hides: notStream, operator: true, merge: smaller, argument: true, with: smaller},
	{name: "delayed-retry-jitter", what: "delayed retry jitter", check: between(0, 100), hides: notStream, operator: true, merge: second, argument: true, with: second},
	{name: "queue-leader-locator", what: "queue leader locator value", check: oneOf("client-local", "balanced", "random", "least-leaders"), argument: true},

	// RabbitMQ's own affairs.
	{name: "queue-master-locator", what: "queue leader locator value", check: oneOf("min-masters", "client-local", "random"), hides: onlyClassic, idle: true},
	{name: "queue-mode", what: "queue-mode value", check: oneOf("default", "lazy"), hides: onlyClassic, idle: true},
	{name: "queue-version", what: "queue version", check: between(1, 2), hides: onlyClassic, operator: true, merge: second, idle: true},
	{name: "max-in-memory-length", what: "maximum memory in messages", check: between(0, math.MaxInt64), hides: onlyQuorum, operator: true, merge: smaller, idle: true},
	{name: "max-in-memory-bytes", what: "maximum memory in bytes", check: between(0, math.MaxInt64), hides: onlyQuorum, operator: true, merge: smaller, idle: true},
	{name: "target-group-size", what: "target group size", check: between(1, math.MaxInt32), hides: onlyQuorum, operator: true, merge: larger, idle: true},
	{name: "consumer-disconnected-timeout", what: "consumer disconnected timeout", check: between(0, math.MaxInt64), hides: onlyQuorum, idle: true},

	// Streams, which Warren does not have: a policy with one of these applies to no queue.
	{name: "max-age", what: "max age", check: maxAge, hides: onlyStream, idle: true},
	{name: "stream-max-segment-size-bytes", what: "max segment size", check: between(1, segmentMax), hides: onlyStream, idle: true},
	{name: "stream-filter-size-bytes", what: "stream filter size", check: between(16, 255), hides: onlyStream, idle: true},
	{name: "initial-cluster-size", what: "cluster size", check: between(1, math.MaxInt32), hides: onlyStream, idle: true},
}

func keyOf(name string) *key {
	for i := range keys {
		if keys[i].name == name {
			return &keys[i]
		}
	}
	return nil
}

// Idle reports whether a key is only kept and shown, and has no effect.
func Idle(name string) bool {
	k := keyOf(name)
	return k != nil && k.idle
}

// The checks.

func truth(v any) bool {
	_, ok := v.(bool)
	return ok
}

func between(low, high int64) func(any) bool {
	return func(v any) bool {
		n, ok := v.(int64)
		return ok && n >= low && n <= high
	}
}

func oneOf(words ...string) func(any) bool {
	return func(v any) bool {
		s, ok := v.(string)
		return ok && slices.Contains(words, s)
	}
}

func shortText(v any) bool {
	s, ok := v.(string)
	return ok && len(s) <= textBytesMax
}

func factor(v any) bool {
	f, ok := number(v)
	return ok && f >= 1 && f <= factorMax // not for what is no number
}

var ages = regexp.MustCompile(`^[0-9]{1,18}[YMDhms]$`)

func maxAge(v any) bool {
	s, ok := v.(string)
	return ok && ages.MatchString(s)
}

// The merges. Values were checked; those of arguments may have any integer type.

func second(_, b any) any { return b }

func smaller(a, b any) any {
	if less(b, a) {
		return b
	}
	return a
}

func larger(a, b any) any {
	if less(a, b) {
		return b
	}
	return a
}

// limit is the smaller of two limits. A negative one is unlimited and wins.
func limit(a, b any) any {
	x, _ := amqp.AsInt64(a)
	y, _ := amqp.AsInt64(b)
	if x < 0 || y < 0 {
		return larger(a, b)
	}
	return smaller(a, b)
}

// smallerTimeout is the shorter of two times, of which 0 means for ever.
func smallerTimeout(a, b any) any {
	x, _ := amqp.AsInt64(a)
	y, _ := amqp.AsInt64(b)
	switch {
	case x <= 0:
		return b
	case y <= 0:
		return a
	}
	return smaller(a, b)
}

func less(a, b any) bool {
	x, okA := amqp.AsInt64(a)
	y, okB := amqp.AsInt64(b)
	if okA && okB {
		return x < y
	}
	f, _ := number(a)
	g, _ := number(b)
	return f < g
}

func number(v any) (float64, bool) {
	switch v := v.(type) {
	case float32:
		return float64(v), true
	case float64:
		return v, true
	}
	n, ok := amqp.AsInt64(v)
	return float64(n), ok
}
