// Package jepsen breaks a real cluster while real clients use it, and checks what they
// saw. Run is one run; Suite is a list of them.
//
// What a run is made of has a package each:
//
//	workload   what clients do, and what must be true of it
//	nemesis    what is done to the cluster, and when
//	checker    pure functions that judge a history
//	history    what clients did and saw, on disk
//	client     AMQP clients that record
//	db         the cluster: start, stop, kill, ask
//	network    the links between the nodes, in namespaces or over proxies
//	report     text, JSON, and a page with a timeline
//
// A run goes: start the nodes, declare, let clients and faults work for a time, heal
// everything, wait until all nodes are ready, let the clients that stay come to their end,
// count and drain all queues, stop the nodes, read the history, judge, report. Each step
// has a time limit; when one passes, the nodes are told to write down what their
// goroutines do (SIGQUIT), and the run is invalid.
//
// docs/jepsen.md tells how to run it, how to add to it, and what it found.
package jepsen
