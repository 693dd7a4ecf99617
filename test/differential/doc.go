// Command differential sends the same random sequences of AMQP methods to a cluster of Warren and to RabbitMQ, and
// shows what they answer differently.
//
// Both run in a network namespace of the command's own. Two connections with two channels each, at two nodes of the
// cluster, take turns; after each method all that came back is compared: the answer, deliveries with all their
// properties, returns, confirms, cancellations, closed channels, and what the queues hold. A sequence that ends with a
// difference is shortened to what the difference needs. What docs/compatibility.md names as different is generated as
// little as possible; what is left of it is for people to tell from faults.
//
// The sequences are of several mixes in turn: of classic queues, of quorum queues, of both, and of each of them with
// policies, of users and of operators, of queues and of exchanges, that are set and cleared over the management API between the methods.
//
// With -wire it sends a table of frames that are wrong, or in the wrong place, and of odd methods, to both in place of sequences, and compares
// what comes back: code, text, and whether the channel or the connection ends.
package main
