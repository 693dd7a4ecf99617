// Package restore makes the data folder of a node of a new cluster from a backup, and checks backups.
//
// [Run] is done once for each node of the new cluster, anywhere and in any order, with the same backup, the same names of nodes and the
// same options: what it makes depends on nothing else, so that the folders fit together. The new cluster has an id of its own, and so
// has each storage: nothing of the old cluster and nothing of another restore is taken for a part of it. Every replica of a queue
// begins with the same snapshot and the same members; nobody founds anything. The folder becomes a node's in its last step, when the whole
// backup has been read and compared with its checksums.
//
// [Verify] reads a backup as Run would and proves for each pair of queues what package backup/cut promises.
package restore
