package broker

import (
	"slices"

	"github.com/warrenmq/warren/amqp"
)

// RabbitMQ refuses an argument that belongs to another type of queue. Warren's types
// differ in defaults only, so that it takes such an argument wherever it has a meaning
// here. These have none: accepting them would promise what does not happen.
var (
	// streamArguments belong to streams.
	streamArguments = []string{"x-max-age", "x-stream-max-segment-size-bytes", "x-stream-filter-size-bytes", "x-initial-cluster-size"}
	// classicArguments tell classic queues how to store messages and where to be. On a
	// classic queue they are checked and change nothing.
	classicArguments = []string{"x-queue-mode", "x-queue-version", "x-queue-master-locator"}
	// memoryArguments are quorum queues' and change nothing there.
	memoryArguments = []string{"x-max-in-memory-length", "x-max-in-memory-bytes"}
	// placementTag chooses a quorum queue's nodes by tags that nodes do not have here.
	placementTag = "x-member-placement-tag"
	// streamConsumerArguments belong to consumers of streams.
	streamConsumerArguments = []string{"x-stream-offset", "x-stream-filter", "x-stream-match-unfiltered"}
)

// typeModule is what RabbitMQ's errors call the type of a queue.
func typeModule(args amqp.Table) string {
	if isQuorum(args) {
		return "rabbit_quorum_queue"
	}
	return "rabbit_classic_queue"
}

// checkType refuses the arguments of a new queue that its type does not know.
func checkType(d QueueDeclare, vhost string) error {
	for _, f := range d.Arguments {
		if slices.Contains(streamArguments, f.Name) || f.Name == placementTag ||
			isQuorum(d.Arguments) && slices.Contains(classicArguments, f.Name) || !isQuorum(d.Arguments) && slices.Contains(memoryArguments, f.Name) {
			return notOfType(f.Name, d.Name, vhost, d.Arguments)
		}
	}
	return nil
}

// checkConsumer refuses the arguments of a consumer that the queue's type does not know, a priority that is no number, and a
// timeout that is none.
func checkConsumer(consumer amqp.Table, queue, vhost string, args amqp.Table) error {
	for _, f := range consumer {
		if slices.Contains(streamConsumerArguments, f.Name) {
			return notOfType(f.Name, queue, vhost, args)
		}
	}
	for _, a := range []struct {
		name  string
		wrong func(any) string
	}{{"x-priority", integer}, {consumerTimeoutArg, natural}} {
		v, ok := consumer.Get(a.name)
		if !ok {
			continue
		}
		if wrong := a.wrong(v); wrong != "" {
			return Errorf(PreconditionFailed, "invalid arg '%s' for queue '%s' in vhost '%s': %s", a.name, queue, vhost, wrong)
		}
	}
	return nil
}

func notOfType(arg, queue, vhost string, args amqp.Table) error {
	return Errorf(PreconditionFailed, "invalid arg '%s' for queue '%s' in vhost '%s' of queue type %s", arg, queue, vhost, typeModule(args))
}
