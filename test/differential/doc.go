// Command differential sends the same random sequences of AMQP methods to a cluster of Warren and to RabbitMQ, and
// shows what they answer differently.
//
// Both run in a network namespace of the command's own. Two connections with two channels each, at two nodes of the
// cluster, take turns; after each method all that came back is compared: the answer, deliveries with all their
// properties, returns, confirms, cancellations, closed channels, and what the queues hold. A sequence that ends with a
// difference is shortened to what the difference needs. What docs/compatibility.md names as different is generated as
// little as possible; what is left of it is for people to tell from faults.
package main
