// Package grpc serves Warren's gRPC API, warren.v1 (api/warren/v1), on top of the broker.
//
// A stream is what a connection with one channel is in AMQP: it has a virtual host, counts as a connection against the
// limits of the vhost and the user, owns the exclusive queue that it declares, and what it was delivered and has not settled
// goes back when it ends. A call without a stream is such a connection of a moment. So permissions, limits and refusals
// are AMQP's by construction.
package grpc
