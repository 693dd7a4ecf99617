// Package detector decides which nodes of the cluster are dead.
//
// The transport measures (is the stream up, was the last dial refused, when was
// the newest answered ping sent); this package judges. It owns one verdict per
// watched node and nothing else: it opens no connection and never elects.
//
// A node becomes a suspect when its stream is down and a fresh dial was refused,
// or when it has not answered for Config.Silence. Before a suspect is declared
// dead the other nodes are asked whether they hear it, because what follows a
// death (an injected election) skips Raft's pre-vote: the verdict needs a majority
// of the nodes of the cluster, this one included, that do not hear it. Nodes that are dead
// already do not count, or the third death of five, when everything the first two had has been
// rebuilt on the others, would be nobody's to find. Of two that are left neither finds the other one dead. Where half of the nodes or more are lost
// at once, most of the catalog's voters (three at least) are enough, if nobody hears the suspect and all who pass for living have said so.
//
// A node must not take its own starvation for the silence of others. Silence is
// therefore counted in attended time: a tick that comes late adds no more than
// twice the tick period, and recent lateness stretches the limits, of this node's silence
// and of the opinion that it gives others. Nor must it take a peer's starvation for its end:
// as long as the peer's own pings arrive, its answers may be five seconds late. A suspect is
// looked at once more when the others' opinions are in.
//
// Use: New, SetPeers whenever the membership changes, Subscribe, Close. Verdicts
// are handed to subscribers from one goroutine in the order in which they fell, the newest
// ones also to who subscribes later.
package detector
