// Package load loads a broker with clients and measures it: the modes, the books of
// what was sent and came back, and the JSON line of a run.
//
// What protocol the clients speak is a [Driver]'s business: cmd/perf has that for AMQP,
// docs/benchmarks/peers, a module of its own, that for NATS.
package load
