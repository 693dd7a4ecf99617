// Command floor measures what no replicated broker can leave out, at a fixed rate: for each message three processes and two clients use their sockets, and two of
// the processes write it to their disk and sync it. There is no broker in it: no queue, no log that could be read, no terms, no checks.
//
//	go run ./docs/benchmarks/floor [--links grpc] [--no-disk]
//
// What Warren takes beyond it at the same rate, on the same machine and in the same minutes, is the cost of being a broker
// (docs/benchmarks/profiles-latency.md, "What cannot be left out"). The nodes run as Warren's do at this rate: with one processor of the Go runtime and a long timer slack (ADR 51).
package main
