// Package history holds what a run's clients did and saw, as the checkers read it.
//
// A history is a list of operations in the order in which the harness recorded them.
// A call of a client is two of them: an invoke when it begins and, with Of naming
// it, its end:
//
//	ok    it happened
//	fail  it certainly did not
//	info  it may have happened, now or later: the answer did not come
//
// A call that has no end counts as info. What comes without being called for, such as
// a delivery, is a single ok. Faults are recorded by the process Nemesis.
//
// On disk a history is a file of JSON, one operation a line. The Recorder writes it
// while the run goes on and keeps nothing in memory; Load reads it for the checkers.
package history
