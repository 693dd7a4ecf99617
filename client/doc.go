// Package client is Warren's client for Go, over the gRPC API (docs/grpc.md).
//
// A Client knows the addresses of a cluster's nodes and uses one at a time. When that one ends, leaves or does not answer, publishers and
// consumers go on at the next, with growing waits in between.
//
//   - A Publisher sends messages by one stream without waiting for each result. No error means that a quorum of every queue that got the message
//     has it on disk.
//   - Consume hands the messages of a queue to a handler, as many at once as it may, and settles each by what the handler returns.
//   - PublishDelayed publishes a message that waits in a delayed exchange, and CancelDelayed takes it back.
//   - Peek looks into a queue and takes nothing, and Redrive sends dead letters back.
//   - Get takes single messages; the methods beside it declare, delete and bind. Conn is for all the rest of the API, by the generated
//     packages.
//
// # What is sent again
//
// A message without a result when its stream broke may or may not have been taken. The publisher sends it again, in the order of the
// first time, until there is a result or it is closed. So every message without an error is there at least once. It is there exactly once in a queue
// that drops duplicates (argument or policy x-deduplication-window) if the message has a DeduplicationID, or the publisher gives it one
// (PublisherConfig.Deduplicate), and the publisher's stream is back within that window, before the queue forgot the id for others
// (x-deduplication-size). A queue that does not drop duplicates ignores the ids, and may have two of such a message; a sequence may then begin anew: a, b, a, b, c.
//
// Deliveries belong to the stream that brought them. If it breaks before they are settled they go back to the queue and come again, to whoever
// consumes it: handlers have to bear that.
//
// # Values of headers
//
// Headers and arguments keep AMQP's types. A value of any other type is refused.
//
//	Go                            AMQP
//	nil                           V  void
//	bool                          t
//	int8, int16, int32, int64     b, s, I, l
//	int                           l, comes back as int64
//	uint8, uint16, uint32         B, u, i
//	float32, float64              f, d
//	Decimal                       D
//	string                        S  any bytes
//	[]byte                        x
//	time.Time                     T  seconds
//	Table, map[string]any         F  comes back as Table
//	[]any                         A
//
// # Goroutines and memory
//
// A Publisher has one goroutine, and a second one while it has a stream; both end with Close. Consume has one for each message that it may handle
// at once and two more, and returns when all have ended. What waits for a result or for a handler is bounded, see the configurations.
//
// A Client has one connection to a node, by which 1,024 publishers, consumers and calls go at once: one more waits until another one ends. Programs with
// more of them make more clients.
package client
