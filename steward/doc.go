// Package steward looks after where the replicas of queues are. Each node runs one; the one at the catalog's leader acts.
//
// It tells package repair what is known of nodes and queues, enters the plans that come back into the catalog (PlanMembers), and makes the next
// ones when those are reached, a few at a time. Carrying plans out is the groups' leaders' work (package cluster/group).
//
// The time for which a node has been down is that in which this process has seen the catalog say so while the catalog had a leader. A cluster that was
// down as a whole begins to count when it is back, and so does a leader that was started a moment ago: a repair may come late by that, and never
// because nobody was there to see the node. The catalog's record itself (Node.Down) survives everything.
//
// It also deletes queues that lived in the memory of a node that is dead.
package steward
