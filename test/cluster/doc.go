// Package cluster runs real Warren nodes on this machine for tests, the
// demonstration and measurements.
//
// Each node is a process of the binary, started as an operator would start it:
// `warren serve` with flags, on loopback ports that were free and with a data
// folder of its own. The package knows nodes from outside only: their process,
// their files, and what they answer over HTTP.
//
// Duties of the caller, in order: Build (or bring a binary), Start, use the
// nodes, Close. Close ends every process that was started, by its id, also
// after a failed Start. A Cluster may be used by several goroutines; the
// methods of one Node that start and end its process may not overlap.
package cluster
