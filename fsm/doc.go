// Package fsm is the replicated machine of one queue: versioned commands in,
// state and results out.
//
// Apply is a pure function of the state and the entry: no clock, map order,
// randomness, logging or goroutine. It never decides by what consumers hold,
// because only the leader knows that. The leader names in the log every message
// that expires, falls to a limit or is purged, and its verdict on every publish;
// apply checks again what the state can tell (present, due, attempt number) and
// answers with a Result. Every replica computes the same state, the same manifest
// bytes and the same results.
//
// # Duties of the caller
//
//   - Apply entries in log order, each once, from one goroutine at a time.
//   - Serialise reading (Queue, Outbox and the accessors) with Apply.
//   - Keep the payload of every log entry that Pins names readable, together
//     with the newest manifest, until a later capture no longer names it.
//   - Run what Capture returns at any time, on any goroutine, once.
//
// A panic of Apply means that this replica can no longer trust its state or its
// log, and must stop.
//
// The formats are described in docs/formats/entry.md and docs/formats/manifest.md.
package fsm
