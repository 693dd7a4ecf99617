// Command peers measures Warren beside RabbitMQ and NATS JetStream on this machine: three nodes
// of each, every work on each in turn, several times, and a table of the medians.
//
//	peers run --warren bin/warren --perf bin/warren-perf …   (make bench-peers)
//	peers nats MODE --urls nats://… [flags of warren-perf]
//	peers table FILE…
//
// It is a module of its own, so that NATS is no dependency of Warren's.
package main
