// Package store is a node's log: one stream of segments under all Raft groups of the node, and on top of it for each group
// a raft.LogStore, a raft.StableStore and a raft.SnapshotStore.
//
// It owns the directory it is opened on. A record is written once; one flusher writes and syncs what all groups
// have appended since the last sync and wakes everybody who waited. A call that changes something returns
// when the change is durable, but for Group.Stage.
//
// A group's log moves forward by snapshots. A snapshot is a manifest plus pins: ranges of entries that stay on disk and readable by
// Group.Read after raft has compacted its log past them. An entry's bytes are kept while it is in the log, or named by the
// newest published manifest, or referenced by an open snapshot reader; segments without such bytes are freed.
//
// Duties of the caller, in order:
//
//   - open the store once per directory and treat OnFatal as the end of the process;
//   - take each group's stores from Group, and not use a handle after DeleteGroup;
//   - in FSMSnapshot.Persist call WriteManifest on the sink, which is a ManifestSink, and in FSM.Restore read the
//     stream's head with ReadManifest;
//   - treat entry bytes as shared and constant;
//   - close snapshot readers and sinks, stop all Raft instances, then close the store.
//
// It does not know what entries mean, does not talk to other nodes and does not decide when to take snapshots. The
// formats are described in docs/formats/segment-log.md and docs/formats/snapshot-stream.md.
package store
