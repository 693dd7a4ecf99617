//go:build !failpoints

package fsm

const anyCatalog = false
