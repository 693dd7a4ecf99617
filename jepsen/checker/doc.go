// Package checker decides from a history whether the promises of docs/guarantees.md
// were kept.
//
// A Checker is a pure function. It has no clock, reads no files and knows nothing of the
// system but what clients saw, so that each has a test with a bad history made by hand: a
// checker that cannot fail proves nothing.
package checker
