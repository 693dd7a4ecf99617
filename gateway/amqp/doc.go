// Package amqp is the AMQP 0-9-1 server: it owns listeners, connections and
// channels, their flow control, and the one place where errors of the broker
// become reply codes. It routes nothing and stores nothing; it knows the broker
// through the interfaces [Broker], [Conn], [Channel] and [Consumer]. The bytes of
// the protocol are the business of the codec (imported here under the name wire).
//
// # Goroutines
//
// A connection has two. The reader owns the protocol state: it decodes frames,
// calls the broker (blocking calls included, so methods of one connection run in
// order) and appends answers to the outbox. The writer owns the socket's sending
// side: it takes everything that the outbox collected, encodes it into few large
// writes, refills the consumers' transfer windows and sends heartbeats. The broker
// appends deliveries and confirms to the outbox from its own goroutines through
// [Sink]; these calls never block. There is no goroutine per channel or message.
//
// # Bounds
//
// Answers wait in the outbox as bytes; the reader stops reading while there are
// more than Config.WriteBufferBytes of them. Deliveries wait there as references to
// the broker's memory, so their number is bounded by the broker's transfer windows;
// those of closed channels stay until they are written, and while there are too many
// the client gets no other channel or consumer.
// Confirms wait as numbers and are merged when written. Messages that are
// still arriving are bounded by Config.AssemblyBytesMax for each connection, and all of
// them by Config.AssemblyBytesNodeMax: a connection is not read while there is no room for
// the message that it begins.
//
// # Order
//
// What was appended to the outbox leaves in that order. Confirms leave after the
// returns that precede them and never after the channel's close-ok; what is answered when the
// client closes the channel leaves before that. A channel's
// mutex is taken before the outbox's, and neither while calling the broker.
package amqp
