// Package stats keeps samples of counters, so that tools can show rates and plots.
//
// A [Sampler] reads its sources at fixed moments, the same ones on every node, and remembers of each object
// what it had counted at the last two, which is the rate. Of the node as a whole, and of so many objects that were
// looked at or active lately, it keeps a history of ten minutes.
//
// It counts nothing itself: sources are read when it samples. Its memory is bounded by the objects that its sources
// have now, and by [histories].
package stats
