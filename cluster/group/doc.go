// Package group hosts the Raft groups of a node: thousands of hashicorp/raft
// instances over one store and one mesh, with the speed of the node-pair failure
// detector instead of that of their own timers.
//
// A [Host] owns the groups of a node, their elections, watchdogs and snapshots. A
// [Group] owns one Raft instance, the order of its proposals and the answers to
// them. What a proposal means is the [Machine]'s business: to this package it is
// bytes.
//
// # What the host adds to hashicorp/raft
//
//   - Leaders are made by injected elections, not by timeouts: at creation on the
//     preferred node, after a restart, and after a confirmed death, hottest groups
//     first and at most HostConfig.ElectionsMax at a time. Before an injection the other
//     voters are asked, in one call per node for all groups, who leads and how long
//     their logs are, because an injected election skips Raft's pre-vote.
//   - A replica that stays Candidate is freed, and re-created if that fails.
//   - Proposals have bounded memory, a deadline and an honest outcome: an answer of
//     [ErrUnknown] means "may or may not have happened" and every other error means
//     "was never appended".
//   - A Barrier after a broken replication stream, since raft re-sends only when
//     something triggers it.
//   - The lease of two seconds over the voters of a group: by pings between nodes, and void
//     as soon as voters turn away.
//   - Planned leader moves that do not use raft's own transfer.
//   - Snapshots by reclaimable bytes, a few at a time for the node.
//
// # Duties of the caller, in order
//
//  1. NewHost, before peers are set on the mesh.
//  2. Start for each group of the catalog, hot ones first. A machine passed to Start
//     belongs to the group from then on; Start again after Stop needs a fresh one.
//  3. Answer HostConfig.OnUnknown by starting the group if the catalog lists it.
//  4. Close before the mesh and the store are closed.
package group
