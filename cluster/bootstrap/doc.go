// Package bootstrap gives a node its identity and brings it into exactly one
// cluster.
//
// # Identity
//
// A data directory belongs to one node id and carries a storage uuid, drawn when the
// directory was empty ([OpenIdentity]). An empty disk is therefore a new server; it never
// votes as the one whose disk was lost.
//
// # First start
//
// [Run] returns when the node knows its cluster. A node that was in one stays in it.
// A virgin node joins a founded cluster if any peer reports one. Otherwise a cluster is
// founded by unanimity only: all expected nodes are reachable, all are virgin, and each has
// promised itself to the same cluster id. The node with the lowest node id proposes.
// Every promise is on disk before it is answered, and a node that has founded never
// promises again, so a crash at any step leaves either nothing that counts or a cluster
// that the others find. docs/formats/bootstrap.md has the protocol and why it
// is safe.
//
// The package decides nothing by gossip: peers are hints, each is asked itself.
//
// # Next life
//
// A cluster that has lost most voters of its catalog goes on under another id (docs/adr/0034-lost-cluster.md). [Succession] is the promise to that;
// it binds like that of a first start, and is founded by one write of one node.
//
// # Duties of the caller, in order
//
//  1. [OpenIdentity]; one process at a time has a directory.
//  2. Give the mesh [Identity.ClusterID] and [OpenMethod], register
//     [Identity.Handlers].
//  3. [Run], then found or join the catalog by the [Membership] it returns.
//  4. [Identity.Close] last of all.
package bootstrap
