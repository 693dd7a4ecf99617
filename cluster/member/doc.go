// Package member finds the other nodes and keeps their addresses. It hides
// memberlist behind a small interface; nobody else speaks gossip.
//
// # What it owns
//
// The gossip port, TCP and UDP. On it run two things. The lobby is a question and an
// answer over TCP: a node that belongs to no cluster asks the configured addresses who is
// there and learns of others that asked. Once a node knows its cluster, memberlist
// runs on the same port, with the cluster's id as label. Nodes of two clusters never
// merge: their packets carry different labels, and the delegates refuse members whose
// metadata name another cluster.
//
// The address book maps a node to where it was last heard of. It is kept in a
// file, so that a whole cluster that comes back finds itself even if the configured
// addresses are of no use. A node that restarts with a new address is entered
// again under its old identity, newest start first. It is bounded: who is not in the cluster goes first, and of
// these the one that was not heard of for the longest time.
//
// # What it does not do
//
// Gossip discovers, it never decides: who is in the cluster is the catalog's to say, whether a
// node is dead the failure detector's, and whether to found a cluster is package
// bootstrap's.
//
// # Duties of the caller, in order
//
//  1. [Open]. The lobby answers and asks from here on.
//  2. [Gossip.SetCluster] as soon as the cluster is known.
//  3. [Gossip.Close].
package member
