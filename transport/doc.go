// Package transport carries every byte that travels between the nodes of a
// cluster: Raft traffic of all groups, application messages, calls and
// snapshots, over gRPC.
//
// # What it owns
//
// A [Mesh] owns one outgoing link to each peer and the incoming links the
// peers opened to it. A link is one bidirectional gRPC stream: requests and
// application messages flow from the side that dialled, answers flow back. All
// Raft groups of a pair of nodes share it; whatever is ready is coalesced into
// one message of at most 1 MiB. Snapshots travel on connections of their own.
//
// The package decides nothing. It does not know who should lead, which node is
// dead or what a message means; it reports observations ([PeerStatus]) and
// keeps promises about order and repetition.
//
// # Promises
//
//   - Frames of one link arrive in the order of their sending, at most once.
//     When a stream is lost, everything on it that was not answered is gone;
//     nothing is ever sent again by this package.
//   - A frame is accepted only with the epoch the receiver itself issued for
//     the newest stream of that peer, with the next sequence number, and
//     with a check value naming the receiver's identity. Once a newer stream of a
//     peer is active no frame of an older one is delivered.
//   - The reader of a link never waits for a Raft group, a handler or a disk. A
//     full Raft inbox answers "busy"; application messages are held back at the
//     sender by a byte window.
//   - Heartbeats of Raft take the same road as everything else:
//     SetHeartbeatHandler does nothing (hashicorp/raft#695).
//   - An AppendEntries frame never announces a commit index beyond the entries
//     it verifies itself, because a hashicorp/raft follower commits up to its own last
//     index, verified or not.
//
// # Duties of the caller, in order
//
//  1. [New] with a listener; register handlers with [Mesh.Handle] and
//     [Mesh.HandleCall] and listeners with [Mesh.OnPeerChange] before peers are set.
//  2. [Mesh.SetPeers] with the members of the cluster, again at each change.
//  3. For each group [Mesh.Raft], then raft.NewRaft with the result. Close the
//     RaftTransport before waiting for raft's Shutdown: calls that
//     wait for a lost peer end at once then.
//  4. After a peer returns, and after [RaftTransport.OnAppendFailed] reports, issue
//     a Barrier on groups with uncommitted entries: raft tries again only when
//     something triggers it.
//  5. [Mesh.Close] after the Raft instances.
//
// The bytes are described in docs/formats/node-protocol.md.
package transport
