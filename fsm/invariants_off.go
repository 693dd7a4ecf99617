//go:build !invariants

package fsm

// invariants turns on the recount after every apply.
const invariants = false
