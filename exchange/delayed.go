package exchange

import (
	"math"
	"strconv"

	"github.com/warrenmq/warren/amqp"
)

const argDelayedType = "x-delayed-type"

// HeaderDelay asks a delayed exchange to keep a message back for so many
// milliseconds. The message then carries the negated value.
const HeaderDelay = "x-delay"

// delayMillisMax is the longest delay, the longest timer of RabbitMQ's plugin. A
// message that asks for more is routed at once, as there.
const delayMillisMax = math.MaxUint32

func validateDelayed(args amqp.Table) error {
	v, _ := args.Get(argDelayedType)
	name, ok := v.(string)
	if !ok || name == typeNames[Delayed] {
		return refused("Invalid argument, 'x-delayed-type' must be an existing exchange type")
	}
	t, err := ParseType(name)
	if err != nil {
		return err
	}
	return Validate(t, args)
}

// inner is the type by which a delayed exchange routes in the end. The arguments
// are validated.
func inner(args amqp.Table) Type {
	v, _ := args.Get(argDelayedType)
	name, _ := v.(string)
	t, err := ParseType(name)
	if err != nil || t == Delayed {
		panic("exchange: x-delayed-type " + name + " was not validated")
	}
	return t
}

// Delay returns for how many milliseconds a delayed exchange keeps a message with these
// headers back; 0: it is routed at once. Like RabbitMQ's plugin it takes integers of
// every width, decimal digits in a string, and numbers with a fraction, which it cuts
// off; anything else asks for nothing.
func Delay(headers amqp.Table) int64 {
	n, ok := delayValue(headers)
	if !ok || n <= 0 || n > delayMillisMax {
		return 0
	}
	return n
}

func delayValue(headers amqp.Table) (int64, bool) {
	v, ok := headers.Get(HeaderDelay)
	if !ok {
		return 0, false
	}
	if n, ok := amqp.AsInt64(v); ok {
		return n, true
	}
	var f float64
	switch x := v.(type) {
	case string:
		n, err := strconv.ParseInt(x, 10, 64)
		return n, err == nil
	case float32:
		f = float64(x)
	case float64:
		f = x
	default:
		return 0, false
	}
	// Far outside of what is a delay, and without what has no integer.
	if !(f > -1e15 && f < 1e15) {
		return 0, false
	}
	return int64(f), true
}

// Released returns the headers of a message whose delay has passed: the delay is
// negated, so that no exchange keeps the message back again.
func Released(headers amqp.Table) amqp.Table {
	n, ok := delayValue(headers)
	if !ok {
		return headers
	}
	out := headers.Clone()
	if n = -n; n >= math.MinInt32 && n <= math.MaxInt32 {
		out.Set(HeaderDelay, int32(n))
	} else {
		out.Set(HeaderDelay, n)
	}
	return out
}
