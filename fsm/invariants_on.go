//go:build invariants

package fsm

const invariants = true
