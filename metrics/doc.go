// Package metrics shows a node's figures in Prometheus' format: RabbitMQ's names where the
// meaning is RabbitMQ's, names with the prefix warren_ for what RabbitMQ does not have.
//
// Everything is read when somebody asks: there is no metric object, timer or goroutine for a
// queue that nobody looks at. Each node tells of itself: the queues that it leads, the
// clients that it serves, its disk. Sums over nodes are the asker's.
//
// /metrics gives sums, /metrics/per-object the figures of each queue in their place, and
// /metrics/detailed?family=…&vhost=… those of single families and virtual hosts, under the
// prefixes rabbitmq_detailed_ and warren_detailed_. docs/operations.md lists all names.
package metrics
