package broker

import (
	"fmt"
	"math"

	"github.com/warrenmq/warren/amqp"
	"github.com/warrenmq/warren/queue"
)

// The retry delay: x-delayed-retry-type, -min and -max as in RabbitMQ 4.3, and the
// multiplier and jitter that it does not have.

// number returns a numeric argument of any width.
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

func multiplier(v any) string {
	switch n, ok := number(v); {
	case !ok:
		return fmt.Sprintf("\"expected number, got %s\"", amqp.TypeName(v))
	case !(n >= 1 && n <= queue.RetryFactorMax/1000): // not a number included
		return fmt.Sprintf("{value_out_of_range,%v}", n)
	}
	return ""
}

func percent(v any) string { return bounded(v, 0, 100, "value_negative", "max_value_exceeded") }

// checkRetry tells what is wrong with the arguments together.
func checkRetry(args amqp.Table) string {
	kind := stringArg(args, "x-delayed-retry-type")
	if kind == "" || kind == "disabled" {
		return ""
	}
	low := intArg(args, "x-delayed-retry-min", 0)
	switch {
	case low == 0:
		return "delayed_retry_min_required"
	case intArg(args, "x-delayed-retry-max", low) < low:
		return "delayed_retry_max_below_min"
	}
	return ""
}

func retryDelay(args amqp.Table) (r queue.RetryDelay) {
	switch stringArg(args, "x-delayed-retry-type") {
	case "all":
		r.On = queue.RetryAll
	case "failed":
		r.On = queue.RetryFailed
	case "returned":
		r.On = queue.RetryReturned
	default:
		return r
	}
	r.MinMillis = intArg(args, "x-delayed-retry-min", 0)
	r.MaxMillis = intArg(args, "x-delayed-retry-max", r.MinMillis)
	if v, ok := args.Get("x-delayed-retry-multiplier"); ok {
		n, _ := number(v)
		r.Factor = uint32(math.Round(n * 1000))
	}
	r.JitterPercent = uint8(intArg(args, "x-delayed-retry-jitter", 0))
	return r
}
