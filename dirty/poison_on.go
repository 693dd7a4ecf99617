//go:build invariants

package dirty

func init() { Poison() }
