// Package web serves the management page: a single-page application that uses the public
// HTTP API and nothing else.
//
// The page is TypeScript in src/, made into files in dist/ by the program in bundle/, and is a
// part of a node's program by go:embed. dist/ is not committed: a program that was built
// without it, by a bare `go build`, serves a page that says how to build it.
//
// [Handler] holds no state and asks for no login: what it serves is the same for everybody.
// What somebody may see is decided by package management.
package web
