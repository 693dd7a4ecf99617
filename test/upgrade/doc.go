// Package upgrade has folders of three nodes that a former program wrote, and the test that this one reads them.
//
// A Scene is what a cluster has in such a folder: messages with all properties, held and requeued ones, dead letters that have not arrived, parked and delayed
// ones, windows of deduplication, policies, users, limits. Make makes it by a cluster's own clients, Check tells what of it is missing. Pack and Unpack
// keep folders in a file.
package upgrade
