// Command perf loads an AMQP 0-9-1 broker, checks that nothing was lost or
// repeated, and prints one JSON line for each run.
//
//	warren-perf MODE --urls amqp://…,amqp://… [flags]
//	warren-perf MODE --start bin/warren --nodes 3 [flags]
//
// --protocol grpc speaks Warren's gRPC API in place of AMQP, in the first four modes.
//
// The first form drives any broker, RabbitMQ too; the second starts nodes of
// its own on free ports. The modes are
//
//	throughput  publish with confirms and consume with acks, as fast as it goes
//	latency     the same at --rate
//	deadletter  dead-letter from a source into a target (--via reject, ttl or delivery-limit;
//	            --preload measures the move alone)
//	backlog     publish --messages without a consumer, then drain
//	failover    publish at --rate and kill (or --freeze) the node that leads the queue
//	queues      declare --queues, watch the idle servers, publish to all in turn
//	start       start an empty node until it accepts a client
//
// Every message carries its publisher, its number and its time of sending. A
// message is lost when it was confirmed and did not arrive before --drain went
// by without any progress; duplicates are second deliveries without the
// redelivered flag. docs/benchmarks/README.md tells how to read the figures.
//
// The exit code is 1 when a run failed, or lost or repeated messages.
package main
