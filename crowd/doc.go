// Package crowd keeps the open connections of a listener within a number in such a way that those of which nothing is known, or which nobody uses just now,
// keep nobody out: the oldest of them goes for the next one that comes. Its users say which connections these are. It knows no protocol.
package crowd
