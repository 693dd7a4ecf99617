// Package workload holds what clients do in a run, and what must be true of it
// afterwards.
//
// A Workload is a topology, a set of processes that use it, and the checkers that judge
// the history. A process lives many lives: each is one connection, given to its Live
// function, which returns when it wants another or the connection is lost. The frame
// opens the next one at another node. Publishers stop when the load ends; a process that
// Stays goes on, with all faults healed, until Settle returns.
//
// A new workload is a file with a type and one line in registry.go.
package workload
