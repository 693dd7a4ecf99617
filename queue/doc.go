// Package queue holds the state of one queue: its live messages in id order,
// their priority lanes, their expiry instants and their totals.
//
// The package is pure: no clock, goroutine, randomness or I/O. It does not know
// which messages consumers hold; that is the leader's knowledge, kept beside it
// in its own sub-package. Bodies stay in the log; a message here is a reference
// and a few numbers.
//
// Messages lie in chunks of 4,096 ids. A chunk that is full is packed: lengths
// and sizes in as few bytes as their spread needs, places in the log as one start
// for each entry. An untouched backlog costs some 2 to 6 bytes a message. Of a packed
// chunk in which two thirds are dead, what the dead took is dropped. Lanes
// and expiry runs are bitmaps over the same blocks of ids, made on demand.
//
// A Queue has one owner, the replicated machine (package fsm), which alone calls
// the methods that change it: Append, Remove, RemoveRange, Touch. Everybody else
// reads, serialised with the owner by the caller. Freeze gives an immutable view
// in time proportional to the number of chunks, which another goroutine may walk
// while the owner goes on.
package queue
