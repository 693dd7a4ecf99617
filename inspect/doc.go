// Package inspect reads the data folder of a node that is stopped, or broken, or running, without a lock and without changing
// anything: for people who look for what became of a message, or decide which of several folders is the newest.
//
// A folder does not tell what is committed: Raft keeps that in memory. What a snapshot holds is; of what stands above it in the log
// a newer leader may have something else. Reports say up to where it is certain.
//
// While a node uses the folder, a report shows some moment of it. Segments that are given back meanwhile can make a report fail or
// show damage that is none: repeat it.
package inspect
