// Package nemesis does harm to a running cluster: to the nodes' processes through package
// db, to the links between them through package network.
//
// A Nemesis is one kind of fault. It chooses its victims by the Env's chance or, when told so, takes the
// node that leads one of the workload's queues. What it begins it can heal. A plan, made
// from a seed alone, says which faults come when, alone or two at a time; Run carries it out
// and records each fault in the history.
//
// A new nemesis is a function and one line in registry.go.
package nemesis
