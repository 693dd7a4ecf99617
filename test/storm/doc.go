// Package storm plays many clients that keep to no rules at a cluster of real nodes, and sees that no node comes to harm.
//
// AMQP clients speak frame by frame, in every state that a connection and its channels may have: methods in their place and
// out of it, halves of frames, channels that are closed from both sides at once, clients that do not read, or die. gRPC clients call all methods of
// the API with all kinds of fields, and requests of the management API have any body. Meanwhile queues, exchanges, users and virtual hosts come and
// go under them, and nodes are killed, stopped, frozen, drained and cut off; queues lose their majority and are recovered.
//
// What is a finding: a node that ends, a panic, a data race, an invariant that does not hold; an answer that is an internal error;
// and, when all clients have left, a queue that does not answer, a listing that is not empty, goroutines, memory or open files that stay.
//
// What each client does follows from the run's seed and from what it is answered, which depends on time: a seed makes a run that is
// like another, not the same. Each client's last steps are written to the run's folder when there is a finding.
package storm
