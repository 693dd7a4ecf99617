// Package catalog holds the cluster's metadata: vhosts, users, permissions,
// exchanges, bindings, queues with their replicas, and nodes. It is one replicated
// machine in one Raft group that spans all nodes; it holds no message.
//
// # Halves
//
// The pure half is the machine: commands ([Command]) applied in log order to an
// immutable [View]. Every replica computes the same views. A view is a set of
// persistent trees, so that each command shares all but the changed paths with the
// view before it, and a pointer to a view is a consistent snapshot for as long as
// somebody holds it. Routing ([View.Route]) reads one view and never leaves the node.
//
// The moving half is [Catalog]: the Raft group on raft-boltdb, proposing from any
// node, read indexes, and the group's own membership and elections.
//
// # Duties of the caller, in order
//
//  1. [Open] with the mesh and the group's Raft transport, before the mesh gets
//     peers. A founding member of a new cluster passes [Founding].
//  2. A node that joins an existing cluster calls [Catalog.Join] until it succeeds.
//  3. Each node calls [Catalog.Register] once per start and uses the incarnation
//     of the result in everything it declares and sends.
//  4. [Catalog.NodeDead] when the failure detector has agreed that a node is dead.
//  5. [Catalog.Close] before the mesh is closed.
//
// A refusal by the machine is an [*amqp.Error] with the reply code and text a
// client may see. The formats are described in docs/formats/catalog.md.
package catalog
