// Package recovery lets queues go on that have lost the majority of their replicas for good (docs/adr/0029-lost-majority.md). It asks the
// survivors how far their logs reach, chooses the one that a queue goes on from, and has the catalog decide that; nodes do the
// rest when they see it there. It is started by an operator, who says which nodes are lost, and by nobody else.
//
// Plan says what would be done and why something cannot be; Run does it. Package catalog checks every decision again.
package recovery
