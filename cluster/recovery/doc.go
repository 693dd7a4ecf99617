// Package recovery lets queues go on that have lost the majority of their replicas for good (docs/adr/0029-lost-majority.md). It asks the
// survivors how far their logs reach, chooses the one that a queue goes on from, and has the catalog decide that; nodes do the
// rest when they see it there. It is started by an operator, who says which nodes are lost, and by nobody else.
//
// Plan says what would be done and why something cannot be; Run does it. Package catalog checks every decision again.
//
// RecoverCluster does the same for the catalog itself (docs/adr/0034-lost-cluster.md): the nodes that are left promise themselves to a next life of the
// cluster, make what it begins with out of the newest copy, and go on in it when the node that conducts has decided. Local is a node's own part in
// that, Party its way to the others.
package recovery
