// Package placement decides on which nodes a new queue lives and which of them should lead it.
//
// It is pure: [Choose] is told what the caller knows of the nodes and answers the same to the
// same question. The caller need not know the newest counts: of each two nodes that are drawn by the
// request's seed the one with fewer replicas becomes a member, so that many callers with equal,
// late counts do not all choose the one node that looks emptiest.
package placement
