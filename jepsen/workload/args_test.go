package workload

import (
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"
)

// TestArguments: for a system that replicates quorum queues only, all queues are such, and dead letters
// move at least once but for a maximum length, which RabbitMQ keeps at most once. Warren gets what
// the workload says.
func TestArguments(t *testing.T) {
	dies := amqp.Table{"x-dead-letter-exchange": ""}
	long := amqp.Table{"x-dead-letter-exchange": "", "x-max-length": int32(1)}
	if got := (Options{}).args(dies); len(got) != 1 {
		t.Errorf("for Warren: %v", got)
	}
	o := Options{Quorum: true}
	if got := o.args(nil); got["x-queue-type"] != "quorum" || len(got) != 1 {
		t.Errorf("plain: %v", got)
	}
	if got := o.args(dies); got["x-dead-letter-strategy"] != "at-least-once" || got["x-overflow"] != "reject-publish" || len(dies) != 1 {
		t.Errorf("with dead letters: %v", got)
	}
	if got := o.args(long); got["x-dead-letter-strategy"] != nil || got["x-overflow"] != nil {
		t.Errorf("with a maximum length: %v", got)
	}
	if _, err := New("mutex", o); err == nil {
		t.Error("a workload that needs more than RabbitMQ has is not refused")
	}
}
